"""The throttle of a reassignment as values of configs: the limits, and the memory of what they have replaced.

Kafka's throttle is a rate of brokers, for replicas that topics name. A broker or topic with a throttle also
has the config `penstock.reassignment.throttle`: the values that the throttle has replaced. It changes
together with them, in one change of the resource. So a throttle can be told from the one of an operator, any
client and the controller can end it, and a value that was set before comes back.

Invariant: a throttle never raises a limit. If a broker already has a lower rate, that rate stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

__all__ = ["ALL", "MEMORY", "RATES", "REPLICAS", "Changes", "end_limit", "limit_broker", "limit_topic"]

#: the config with the memory of a throttle, of a broker and of a topic
MEMORY: Final = "penstock.reassignment.throttle"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: all replicas of a topic
ALL: Final = "*"

#: new values of configs; None returns a config to its default
Changes: TypeAlias = dict[str, str | None]


class _Memory(msgspec.Struct, frozen=True):
    """The values that a throttle has set, and the ones before it: of the leader and the follower side."""

    #: more than one if the rate was changed while partitions moved
    set: list[str]
    previous: list[str | None]


def limit_broker(own: Mapping[str, str], effective: Mapping[str, str], bytes_per_s: int) -> Changes:
    """The changes that limit a broker.

    `own` has the values that are set for this broker, `effective` those that apply, also by a default of all
    brokers.
    """
    memory = _memory_of(own)
    previous = [own.get(name) for name in RATES] if memory is None else memory.previous
    wanted: Changes = {}
    for name, before in zip(RATES, previous, strict=True):
        limits = [bytes_per_s]
        if before is not None:
            limits.append(int(before))
        elif memory is None and name in effective:
            limits.append(int(effective[name]))
        wanted[name] = str(min(limits))
    values = [value for value in wanted.values() if value is not None]
    known = [] if memory is None else memory.set
    wanted[MEMORY] = _encoded(_Memory(list(dict.fromkeys([*known, *values])), previous))
    return wanted


def limit_topic(own: Mapping[str, str]) -> Changes:
    """The changes that throttle all replicas of a topic which are not in sync."""
    memory = _memory_of(own)
    previous = [own.get(name) for name in REPLICAS] if memory is None else memory.previous
    return {**dict.fromkeys(REPLICAS, ALL), MEMORY: _encoded(_Memory([ALL], previous))}


def end_limit(own: Mapping[str, str]) -> Changes:
    """The changes that end the throttle of a broker or a topic; none if it has no memory of one.

    A value that the throttle has not set is an operator's, who has changed it meanwhile: it stays.
    """
    if MEMORY not in own:
        return {}
    changes: Changes = {MEMORY: None}
    memory = _memory_of(own)
    if memory is not None:
        for names in (RATES, REPLICAS):
            for name, before in zip(names, memory.previous, strict=True):
                if own.get(name) in memory.set and own.get(name) != before:
                    changes[name] = before
    return changes


def _memory_of(own: Mapping[str, str]) -> _Memory | None:
    """The memory among the values of a resource; None without one, and for one that a user has damaged."""
    try:
        found = msgspec.json.decode(own.get(MEMORY, ""), type=_Memory)
    except msgspec.DecodeError:
        return None
    return found if len(found.previous) == len(RATES) else None


def _encoded(memory: _Memory) -> str:
    return msgspec.json.encode(memory).decode()
