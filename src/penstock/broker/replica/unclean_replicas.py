"""Replicas on this broker that may lack committed records, until the controller has excluded them.

A replica is unclean if the metadata assigns it to this broker and the disk lacks it, if its log does not
match what was recorded at the last clean shutdown, or if its log has a hole. The heartbeat lists it, and the
controller takes it out of the ISR, the eligible leader replicas and the last known leader. A heartbeat that
was answered without an error settles what it listed: from then on the replica may catch up as any other.

A broker that is a cluster of its own sends no heartbeats; there each replica is only logged.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.base.logs import get_logger
from penstock.model.ids import TopicId
from penstock.replication.fetch_plan import PartitionKey
from penstock.wire.apis.broker_heartbeat import UncleanTopic

__all__ = ["UncleanReplicas", "UncleanReport"]

log = get_logger("partitions")


class _Mark:
    """One finding. Compared by identity: a replica that is marked again is reported again."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class UncleanReport:
    """The unclean replicas of one heartbeat."""

    __slots__ = ("_marks",)

    def __init__(self, marks: dict[PartitionKey, _Mark]) -> None:
        self._marks = marks

    @property
    def topics(self) -> list[UncleanTopic]:
        topics: dict[TopicId, UncleanTopic] = {}
        for topic_id, index in self._marks:
            topics.setdefault(topic_id, UncleanTopic(topic_id=topic_id)).partitions.append(index)
        return list(topics.values())

    def __bool__(self) -> bool:
        return bool(self._marks)

    def is_current(self, key: PartitionKey, mark: _Mark) -> bool:
        """Returns true if the heartbeat reported this very finding."""
        return self._marks.get(key) is mark


class UncleanReplicas:
    """The replicas that a heartbeat has yet to report. Not thread-safe: use it on the event loop."""

    def __init__(self, on_marked: Callable[[], None]) -> None:
        """`on_marked` is called after a replica was marked."""
        self._marks: dict[PartitionKey, _Mark] = {}
        self._on_marked = on_marked

    @property
    def reasons(self) -> dict[PartitionKey, str]:
        """Why each replica is unclean, by topic id and partition index."""
        return {key: mark.reason for key, mark in self._marks.items()}

    def mark(self, topic_id: TopicId, index: int, topic: str, reason: str) -> None:
        """Report a replica with the next heartbeat, which is sent at once."""
        log.error("replica_unclean", topic=topic, partition=index, reason=reason)
        self._marks[topic_id, index] = _Mark(reason)
        self._on_marked()

    def report(self) -> UncleanReport:
        """The unclean replicas to list in a heartbeat; call `settle` with them after the response."""
        return UncleanReport(dict(self._marks))

    def settle(self, report: UncleanReport) -> None:
        """Drop replicas that were reported to the controller, unless they were marked again meanwhile."""
        self._marks = {key: mark for key, mark in self._marks.items() if not report.is_current(key, mark)}
