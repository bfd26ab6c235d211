"""Decisions about configs: what an alteration makes of the values that are set now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.metadata.image import BROKER, NO_TIME, ROLE, TOPIC, ClusterImage
from penstock.metadata.policy import MIN_ISR
from penstock.model.config import BROKER_KEYS
from penstock.model.config.mirrored_topics import LINK_CONFIG, check_order
from penstock.model.errors import InvalidConfig, InvalidRequest, PolicyViolation
from penstock.wire.metadata_records import ClearElrRecord, ConfigRecord
from penstock.wire.schema import Struct

__all__ = [
    "GROUP",
    "Alteration",
    "Operation",
    "alter_incrementally",
    "check_change",
    "config_records",
    "settle_min_isr",
]

#: configs of a broker, or of all brokers, whose names are no broker configs, and members of a role
_OTHERS_MAX: Final = 1000
_MEMBERS_MAX: Final = 10_000
#: the characters of their names and values
_CHARACTERS_MAX: Final = 1 << 20
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
                named = Operation(operation).name
                raise InvalidConfig(f"Can't {named} to key {name} because its type is not LIST.")
            values[name] = _alter_list(values.get(name, defaults[name]), operation, value)
        else:
            raise InvalidRequest(f"Unknown config operation {operation}; it must be 0, 1, 2 or 3")
    return values


def _alter_list(text: str, operation: int, value: str) -> str:
    listed = [item for item in text.split(",") if item]
    if operation == Operation.APPEND:
        known = set(listed)
        return ",".join(listed + [item for item in dict.fromkeys(value.split(",")) if item not in known])
    # One occurrence for each time that it is named, the first ones first.
    times = Counter(value.split(","))
    kept = []
    for item in listed:
        if times[item] > 0:
            times[item] -= 1
        else:
            kept.append(item)
    return ",".join(kept)


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


def check_change(resource: tuple[int, str], current: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Refuse `values` that a resource must not have, whatever each of them is."""
    _check_min_isr(resource, values)
    kind = resource[0]
    if kind == TOPIC and values.get(LINK_CONFIG):
        check_order(current.get(LINK_CONFIG, ""), values[LINK_CONFIG])
    if kind == BROKER:
        # Like Kafka, brokers accept names that they do not know: those of plugins, and of any listener.
        _check_number("a broker", _others(current), _others(values), _OTHERS_MAX)
    elif kind == ROLE:
        _check_number("a role", current, values, _MEMBERS_MAX)


def _others(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in BROKER_KEYS}


def _check_number(owner: str, current: Mapping[str, str], values: Mapping[str, str], most: int) -> None:
    """Raise PolicyViolation if values are too many, or too long, unless the change only removes some.

    Why: each change, and each description, takes time for all of them.
    """
    size = _characters(values)
    grows = len(values) > len(current) or size > _characters(current)
    if grows and (len(values) > most or size > _CHARACTERS_MAX):
        raise PolicyViolation(
            f"{len(values)} names with {size} characters are more than {owner} may have: "
            f"{most} names, {_CHARACTERS_MAX} characters"
        )


def _characters(values: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in values.items())


def _check_min_isr(resource: tuple[int, str], values: Mapping[str, str]) -> None:
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
