"""Classes of durability, and how each system is configured for each of them.

Invariant: a table of results has one class. A system without a configuration for a class is not measured in
it, and `absent` says why. The page publishes the settings from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CLASSES", "CONTENDERS", "DurabilityClass", "class_named"]

CONTENDERS = ("penstock", "kafka", "nats", "rabbitmq-quorum", "rabbitmq-stream", "valkey")
"""In the order of the columns."""


@dataclass(frozen=True, slots=True)
class DurabilityClass:
    """`settings[contender]` is how a contender is started; `replicas` is of every topic, stream and queue."""

    name: str
    title: str
    meaning: str
    nodes: int
    settings: Mapping[str, Mapping[str, str]]
    absent: Mapping[str, str]
    is_synced: bool = False

    @property
    def contenders(self) -> tuple[str, ...]:
        return tuple(name for name in CONTENDERS if name in self.settings)

    def row(self, name: str) -> str:
        """The name of a row in the results: no two classes share one."""
        return f"{self.name}/{name}"


_ALWAYS_SYNCED = (
    "a quorum queue syncs its write-ahead log before it confirms; there is no setting without "
    "([Ra](https://github.com/rabbitmq/ra/blob/main/docs/internals/INTERNALS.md))"
)
_NEVER_SYNCED = (
    "a stream is never synced before it confirms, and has no setting for it "
    "([persistence](https://www.rabbitmq.com/docs/persistence-conf))"
)
_NO_QUORUM = (
    "replication is asynchronous, and `WAIT` does not make it a quorum: a failover can lose acknowledged "
    "writes ([WAIT](https://valkey.io/commands/wait/))"
)
_KAFKA_CACHE = {"log.flush.interval.messages": "9223372036854775807"}
_KAFKA_SYNCED = {"log.flush.interval.messages": "1"}
_IN_SYNC = {"default.replication.factor": "3", "min.insync.replicas": "2"}

CLASSES: tuple[DurabilityClass, ...] = (
    DurabilityClass(
        "cache",
        "One server, operating-system cache",
        "The server acknowledges a message when it has written it to a file. The operating system writes it "
        "to the disk later. A crash of the process loses nothing, a power failure may.",
        1,
        {
            "penstock": {"penstock.flush": "os"},
            "kafka": _KAFKA_CACHE,
            "nats": {"sync_interval": "2m"},
            "rabbitmq-stream": {},
            "valkey": {"appendonly": "yes", "appendfsync": "no"},
        },
        {"rabbitmq-quorum": _ALWAYS_SYNCED},
    ),
    DurabilityClass(
        "synced",
        "One server, synced before the acknowledgement",
        "The server acknowledges a message when a sync of the file has returned. Neither a crash nor a power "
        "failure loses it.",
        1,
        {
            "penstock": {"penstock.flush": "group"},
            "kafka": _KAFKA_SYNCED,
            "nats": {"sync_interval": "always"},
            "rabbitmq-quorum": {},
            "valkey": {"appendonly": "yes", "appendfsync": "always"},
        },
        {"rabbitmq-stream": _NEVER_SYNCED},
        is_synced=True,
    ),
    DurabilityClass(
        "quorum",
        "Three servers, a quorum in operating-system caches",
        "The servers acknowledge a message when a majority of three has written it to files. One server may "
        "be lost for good. A power failure of all three may lose the latest messages.",
        3,
        {
            "penstock": {"penstock.flush": "os", **_IN_SYNC},
            "kafka": {**_KAFKA_CACHE, **_IN_SYNC},
            "nats": {"sync_interval": "2m"},
            "rabbitmq-stream": {},
        },
        {"rabbitmq-quorum": _ALWAYS_SYNCED, "valkey": _NO_QUORUM},
    ),
    DurabilityClass(
        "quorum-synced",
        "Three servers, synced on a quorum before the acknowledgement",
        "The servers acknowledge a message when a majority of three has synced it. One server may be lost "
        "for good, and a power failure of all three loses nothing.",
        3,
        {
            "penstock": {"penstock.flush": "group", **_IN_SYNC},
            "kafka": {**_KAFKA_SYNCED, **_IN_SYNC},
            "nats": {"sync_interval": "always"},
            "rabbitmq-quorum": {},
        },
        {"rabbitmq-stream": _NEVER_SYNCED, "valkey": _NO_QUORUM},
        is_synced=True,
    ),
)


def class_named(name: str) -> DurabilityClass:
    return next(each for each in CLASSES if each.name == name)
