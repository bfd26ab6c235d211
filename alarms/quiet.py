"""A time without a fault, with the rules as users get them: no alert may fire.

Clients do what is not a fault: a group commits and leaves, another keeps up, a message goes to a topic that
gets no other. Each broker is stopped and started once, in good order.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from alarms.cluster import ORDERS, SINGLE, Cluster
from lab.prometheus import Prometheus

__all__ = ["is_quiet"]

_LOOK_S: Final = 2.0
_TIMEOUT_S: Final = 30.0


def is_quiet(cluster: Cluster, prometheus: Prometheus, seconds: float) -> bool:
    """Prints the alerts that fire within the time; returns whether there was none."""
    began = time.monotonic()
    # In four equal parts, with a restart at the end of each but the last.
    restarts = {number: began + number * seconds / 4 for number in (1, 2, 3)}
    reader = _reader(cluster)
    fired: set[str] = set()
    try:
        while (now := time.monotonic()) - began < seconds:
            for number in [number for number, due in restarts.items() if due <= now]:
                del restarts[number]
                _restart(cluster, number)
            reader.consume(10_000, _LOOK_S)
            try:
                firing = prometheus.firing() - fired
            except OSError:
                continue
            for name in sorted(firing):
                print(f"{now - began:6.0f} s: {name} fires without a fault", flush=True)
            fired |= firing
    finally:
        reader.close()
    print("verdict: " + ("BAD" if fired else f"good, no alert in {seconds:.0f} s"))
    return not fired


def _reader(cluster: Cluster) -> Consumer:
    """A group that keeps up; before it, one that commits an offset once, as of a consumer that is gone."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "auto.offset.reset": "latest"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(SINGLE, b"x")
    producer.flush(_TIMEOUT_S)
    once = Consumer({**settings, "group.id": "once"})
    _, end = once.get_watermark_offsets(TopicPartition(SINGLE, 0), _TIMEOUT_S)
    once.commit(offsets=[TopicPartition(SINGLE, 0, end)], asynchronous=False)
    once.close()
    reader = Consumer({**settings, "group.id": "reader", "auto.commit.interval.ms": 1000})
    reader.subscribe([ORDERS])
    return reader


def _restart(cluster: Cluster, number: int) -> None:
    server = cluster.servers[number - 1]
    server.stop()
    server.launch()
    cluster.wait_ready()
