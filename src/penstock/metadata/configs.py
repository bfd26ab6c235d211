"""Decisions about configs: what an alteration makes of the values that are set now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.metadata.image import BROKER, NO_TIME, TOPIC, ClusterImage
from penstock.metadata.policy import MIN_ISR
from penstock.model.errors import InvalidConfig, InvalidRequest
from penstock.wire.metadata_records import ClearElrRecord, ConfigRecord
from penstock.wire.schema import Struct

__all__ = [
    "GROUP",
    "Alteration",
    "Operation",
    "alter_incrementally",
    "check_min_isr",
    "config_records",
    "settle_min_isr",
]

#: the resource type of groups, as the protocol numbers it
GROUP: Final = 32


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: int
    value: str | None


def alter_incrementally(
    current: Mapping[str, str], defaults: Mapping[str, str], alterations: Iterable[Alteration]
) -> dict[str, str]:
    """The values after `alterations`; `defaults` has the default, as text, of every config that is a list."""
    values = dict(current)
    names: set[str] = set()
    for name, operation, value in alterations:
        if name in names:
            raise InvalidRequest(f"The config {name} is altered more than once in one request")
        names.add(name)
        if operation == Operation.DELETE:
            values.pop(name, None)
            continue
        if value is None:
            raise InvalidRequest(f"The config {name} is altered without a value")
        if operation == Operation.SET:
            values[name] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            if name not in defaults:
                raise InvalidConfig(f"Can't append to or subtract from {name}: it is not a list")
            values[name] = _alter_list(values.get(name, defaults[name]), operation, value)
        else:
            raise InvalidRequest(f"Unknown config operation {operation}; it must be 0, 1, 2 or 3")
    return values


def _alter_list(text: str, operation: int, value: str) -> str:
    items = [item for item in text.split(",") if item]
    for item in value.split(","):
        if operation == Operation.APPEND and item not in items:
            items.append(item)
        elif operation == Operation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def settle_min_isr(image: ClusterImage, min_isr: int) -> list[Struct]:
    """The records of a cluster whose brokers all have the same minimum ISR: `min_isr` if none is set yet.

    A leader acknowledges by it, and the controller chooses the next leader by it. If they differed, for
    example between config files, the controller would treat replicas as eligible that lack records which a
    leader has committed with fewer replicas (KIP-966). The current eligible replicas were chosen by
    `min_isr`, and stay.
    """
    records: list[Struct] = []
    for (kind, name), values in image.configs.items():
        if kind == BROKER and name and MIN_ISR in values:
            records.append(ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_ISR, value=None))
    if MIN_ISR not in image.configs.get((BROKER, ""), {}):
        records.append(ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value=str(min_isr)))
    return records


def check_min_isr(resource: tuple[int, str], values: Mapping[str, str]) -> None:
    """Refuse a minimum ISR of one broker's own, and to leave all brokers without one."""
    kind, name = resource
    if kind != BROKER:
        return
    if name and MIN_ISR in values:
        raise InvalidConfig(f"{MIN_ISR} can be set for topics or for all brokers, not for one broker")
    if not name and MIN_ISR not in values:
        raise InvalidConfig(f"{MIN_ISR} of all brokers can be changed, not removed")


def config_records(
    image: ClusterImage, resource: tuple[int, str], values: Mapping[str, str], now_ms: int = NO_TIME
) -> list[Struct]:
    """The records that leave exactly `values` set for the resource; `now_ms` is the controller's wall clock.

    Eligible leader replicas depend on the minimum ISR, so a change of it removes all of them (KIP-966).
    """
    current = image.configs.get(resource, {})
    kind, name = resource
    changed = {key: value for key, value in values.items() if current.get(key) != value}
    removed: dict[str, str | None] = {key: None for key in current if key not in values}
    records: list[Struct] = [
        ConfigRecord(
            resource_type=kind,
            resource_name=name,
            name=key,
            value=value,
            changed_ms=now_ms if kind == TOPIC else NO_TIME,
        )
        for key, value in (changed | removed).items()
    ]
    if MIN_ISR in changed or MIN_ISR in removed:
        records.append(ClearElrRecord(topic_name=name if kind == TOPIC else ""))
    return records
