"""The end of throttles that reassignments have left behind.

A client sets a throttle before it starts moves, and ends it when they are done. A client that ends before,
such as a closed browser, leaves it behind. `reassignment.throttle` has the memory by which it is known.
"""

from __future__ import annotations

from penstock.metadata.configs import config_records
from penstock.metadata.image import BROKER, NO_TIME, TOPIC, ClusterImage, Origin
from penstock.model.steps import Steps, is_slice_over
from penstock.reassignment.throttle import MEMORY, end_limit
from penstock.wire.schema import Struct

__all__ = ["end_throttles", "has_throttle", "is_moving"]


def has_throttle(image: ClusterImage) -> bool:
    """Whether a broker is limited by the throttle of a reassignment."""
    return any(MEMORY in image.configs.get((BROKER, str(broker)), ()) for broker in image.brokers)


def is_moving(image: ClusterImage) -> bool:
    """Whether a reassignment is in progress that a client has requested."""
    return any(partition.origin == Origin.REQUEST for partition in image.reassigning.values())


def end_throttles(image: ClusterImage, now_ms: int = NO_TIME) -> Steps[tuple[list[Struct], int]]:
    """The records that return brokers and topics to their values before the throttle, and their number."""
    records: list[Struct] = []
    count = 0
    for number, (resource, values) in enumerate(image.configs.items(), 1):
        if resource[0] in (BROKER, TOPIC) and MEMORY in values:
            changes = end_limit(values)
            wanted = {name: value for name, value in values.items() if name not in changes}
            wanted |= {name: value for name, value in changes.items() if value is not None}
            records += config_records(image, resource, wanted, now_ms)
            count += 1
        if is_slice_over(number):
            yield
    return records, count
