"""Checks the guarantees to clients. The input is only the history of requests and responses of clients.

Each violation has a name. The rules hold for topics without retention, compaction and transactions, which are
the topics of simulated clients. Records may be gone as soon as a client sends a DeleteRecords request for
them, unless the request is refused.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from math import inf

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.history import (
    Acked,
    Batch,
    CommitsRead,
    CommitsRequested,
    Committed,
    Coordinates,
    Deleting,
    DeletionRefused,
    Event,
    Read,
    Refused,
    Sent,
    Unsure,
)

__all__ = ["ClientChecker", "Violation"]


class Violation(Exception):
    """A promise was broken. `name` says which."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


class _PartitionSeen:
    """All that clients know about one partition's log."""

    __slots__ = ("acked", "at", "deleting", "excused", "offset_of", "refused", "sent")

    def __init__(self) -> None:
        self.sent: dict[bytes, Batch] = {}
        self.refused: dict[bytes, str] = {}
        #: offset -> value, from answers to producers and to consumers alike
        self.at: dict[int, bytes] = {}
        self.offset_of: dict[bytes, int] = {}
        #: acknowledged values, each with its offset if the response had one
        self.acked: dict[bytes, int | None] = {}
        #: offsets of DeleteRecords requests: records before any of them may be gone
        self.deleting: list[int] = []
        #: producers (id and epoch) that a disaster took records from
        self.excused: set[tuple[int, int]] = set()

    def excuse(self, values: AbstractSet[bytes]) -> None:
        """Drop the expectations about records that are permanently lost."""
        for value in [value for value in self.sent if value in values]:
            batch = self.sent[value]
            self.excused.add((batch.producer_id, batch.producer_epoch))
            self.acked.pop(value, None)
            self.at.pop(self.offset_of.pop(value, -1), None)

    def found(self, offset: int, value: bytes) -> None:
        """A response says that `value` is at `offset`."""
        known = self.at.setdefault(offset, value)
        if known != value:
            raise Violation("record changed", f"offset {offset} was {known!r} and is {value!r}")
        where = self.offset_of.setdefault(value, offset)
        if where != offset:
            raise Violation("duplicate", f"{value!r} is at {where} and at {offset}")

    def may_be_gone(self, offset: int | None) -> bool:
        """Returns true if a DeleteRecords request covers `offset`, or any offset for None (unknown)."""
        return (0 if offset is None else offset) < max(self.deleting, default=0)


class _Question:
    """Where is my group?"""

    __slots__ = ("epochs", "stored")

    def __init__(self, stored: int, leading: dict[int, int]) -> None:
        #: the stored offset when the request was sent
        self.stored = stored
        #: in which each broker has had the group since
        self.epochs = {node_id: {epoch} for node_id, epoch in leading.items()}


class _GroupSeen:
    """The committed offsets of a group, and the epochs in which brokers coordinate it.

    A coordinator that was replaced may not know it yet, because the network is cut or slow. It then answers
    OffsetFetch from its own state, as in Kafka: all offsets that were committed before another broker became
    coordinator in a later epoch. A response without one of these is a violation. So is an outdated response
    once the broker knows that it was replaced.
    """

    __slots__ = ("_begun", "_leading", "_questions", "_stored")

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, int] = {}
        #: broker -> the epoch in which it takes itself for the coordinator
        self._leading: dict[int, int] = {}
        #: epoch -> offsets committed before a broker became coordinator in it, in the order of these moments
        self._begun: dict[int, dict[TopicPartition, int]] = {}
        self._questions: dict[tuple[str, TopicPartition], _Question] = {}

    def stored(self, partition: TopicPartition, offset: int) -> None:
        self._stored[partition] = max(offset, self._stored.get(partition, -1))

    def coordinates(self, node_id: int, epoch: int | None) -> None:
        if epoch is None:
            self._leading.pop(node_id, None)
            return
        self._leading[node_id] = epoch
        self._begun.setdefault(epoch, self._stored.copy())
        for question in self._questions.values():
            question.epochs.setdefault(node_id, set()).add(epoch)

    def requested(self, client: str, partition: TopicPartition) -> None:
        self._questions[client, partition] = _Question(self._stored.get(partition, -1), self._leading)

    def answered(self, client: str, partition: TopicPartition, offset: int, node_id: int) -> None:
        question = self._questions.pop((client, partition))
        known = [self._known_in(epoch, partition) for epoch in question.epochs.get(node_id, ())]
        due = min([question.stored, *known])
        if offset < due:
            raise Violation(
                "committed offset regressed", f"{partition}: {due} was stored, {node_id} answers {offset}"
            )

    def _known_in(self, epoch: int, partition: TopicPartition) -> float:
        """The least that a coordinator knows which has heard of no later epoch than this."""
        for later, stored in self._begun.items():
            if later > epoch:
                return stored.get(partition, -1)
        return inf


class ClientChecker:
    """Observes a history. `finish` compares it with the content of the logs at the end."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _PartitionSeen] = {}
        self._groups: dict[str, _GroupSeen] = {}
        self._checks_groups = self._checks = True
        self._excused_reads: set[TopicPartition] = set()

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged: a run without any shows nothing."""
        return sum(len(seen.acked) for seen in self._partitions.values())

    def known_values(self) -> set[bytes]:
        """The values of all records that were acknowledged or read."""
        return {value for seen in self._partitions.values() for value in (*seen.acked, *seen.at.values())}

    def excuse(self, values: AbstractSet[bytes]) -> None:
        """Expect these records no longer: a disaster has taken every copy."""
        for seen in self._partitions.values():
            seen.excuse(values)

    def excuse_groups(self) -> None:
        """Stop checking committed offsets: a disaster has taken every copy of some."""
        self._checks_groups = False

    def excuse_reads(self, partition: TopicPartition) -> None:
        """Check reads of a partition only at the end from now on: damage on a disk has changed offsets."""
        self._excused_reads.add(partition)

    def suspend(self) -> None:
        """Check nothing from now on: the cluster may have to start over from an older state."""
        self._checks = False

    def observe(self, client: str, event: Event) -> None:
        if not self._checks or (
            not self._checks_groups and isinstance(event, CommitsRequested | CommitsRead)
        ):
            return
        match event:
            case Sent(batch):
                seen = self._seen(batch.partition)
                seen.sent.update(dict.fromkeys(batch.values, batch))
            case Acked(batch, offset):
                self._acknowledged(batch, offset)
            case Refused(batch, reason):
                self._seen(batch.partition).refused.update(dict.fromkeys(batch.values, reason))
            case Unsure():
                """Anything may have become of it."""
            case Read():
                if event.partition not in self._excused_reads:
                    self._read(event)
            case Committed(group, partition, offset):
                self._group(group).stored(partition, offset)
            case Deleting(partition, before):
                self._seen(partition).deleting.append(before)
            case DeletionRefused(partition, before):
                self._seen(partition).deleting.remove(before)
            case CommitsRequested(group, partition):
                self._group(group).requested(client, partition)
            case CommitsRead(group, partition, offset, node_id):
                self._group(group).answered(client, partition, offset, node_id)
            case Coordinates(group, node_id, epoch):
                self._group(group).coordinates(node_id, epoch)

    def finish(self, logs: dict[TopicPartition, list[tuple[int, bytes]]]) -> None:
        """`logs` is everything that can be read when all is well again."""
        for partition, seen in self._partitions.items():
            records = logs.get(partition, [])
            _check_nothing_lost(partition, seen, {value: offset for offset, value in records})
            _check_sequences(partition, seen, records)

    def _acknowledged(self, batch: Batch, offset: int | None) -> None:
        seen = self._seen(batch.partition)
        for i, value in enumerate(batch.values):
            seen.acked[value] = None if offset is None else offset + i
            if offset is not None:
                seen.found(offset + i, value)

    def _read(self, read: Read) -> None:
        seen = self._seen(read.partition)
        expected = read.position
        for offset, value in read.records:
            if offset < expected:
                raise Violation("non-monotonic read", f"{read.partition}: {offset} after {expected - 1}")
            if offset > expected:
                raise Violation("gap", f"{read.partition}: {expected} to {offset - 1} are missing")
            expected = offset + 1
            if seen.at.get(offset) == value and not seen.refused:
                continue  # checked before: consumers read from the start again and again
            if value not in seen.sent:
                raise Violation(
                    "phantom", f"{read.partition}: no client sent {value!r}, which is at {offset}"
                )
            if value in seen.refused:
                raise Violation("refused record read", f"{read.partition}: {value!r} is at {offset}")
            seen.found(offset, value)

    def _seen(self, partition: TopicPartition) -> _PartitionSeen:
        return self._partitions.setdefault(partition, _PartitionSeen())

    def _group(self, name: str) -> _GroupSeen:
        return self._groups.setdefault(name, _GroupSeen())


def _check_nothing_lost(partition: TopicPartition, seen: _PartitionSeen, offsets: dict[bytes, int]) -> None:
    for value, offset in seen.acked.items():
        if value not in offsets and not seen.may_be_gone(offset):
            raise Violation("lost write", f"{partition}: {value!r} was acknowledged at {offset} and is gone")
    for offset, value in seen.at.items():
        is_kept = offsets[value] == offset if value in offsets else seen.may_be_gone(offset)
        if not is_kept:
            raise Violation(
                "record changed", f"{partition}: {value!r} was at {offset} and is at {offsets.get(value)}"
            )


def _check_sequences(
    partition: TopicPartition, seen: _PartitionSeen, records: list[tuple[int, bytes]]
) -> None:
    """Each producer's records lie in the order of their sequences, each once, none left out in between."""
    next_sequence: dict[tuple[int, int], int] = {}
    for offset, value in records:
        batch = seen.sent[value]
        sequence = batch.sequence + batch.values.index(value)
        producer = batch.producer_id, batch.producer_epoch
        if producer in seen.excused:
            continue
        expected = next_sequence.get(producer, sequence)
        if sequence != expected:
            name = "sequence gap" if sequence > expected else "sequence repeated"
            raise Violation(
                name, f"{partition}: {producer} has {sequence} at {offset} where {expected} was due"
            )
        next_sequence[producer] = sequence + 1
