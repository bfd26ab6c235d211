"""Checks the guarantees of transactions from the history of transactional clients and readers.

A transaction is visible if a reader of committed records got one of its records, and invisible if such a
reader passed the offset of one without getting it. No transaction may be both. The client knows the outcome
of most transactions; of the others only that they are visible as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.history import Coordinates
from penstock.testing.simulation.transaction_events import (
    Ended,
    Ending,
    Initialized,
    Initializing,
    RefusedAsFenced,
    StoredOffset,
    Transaction,
    TransactionalAck,
    TransactionalRead,
    TransactionalSend,
)

__all__ = ["TransactionChecker", "copy_value", "source_of"]

_COPY = b"copy"


def copy_value(partition: TopicPartition, offset: int, transaction: Transaction) -> bytes:
    """The value of the record that a worker writes for the input record at `offset`."""
    return b"%s.%d.%d.%s" % (_COPY, partition.partition, offset, str(transaction).encode())


def source_of(value: bytes) -> tuple[int, int] | None:
    """The (partition, offset) of the input record of a copy; None for any other value."""
    parts = value.split(b".")
    return (int(parts[1]), int(parts[2])) if parts[0] == _COPY else None


class _TransactionSeen:
    """The knowledge of all clients about one transaction."""

    __slots__ = ("commit_requested", "committed", "ended", "invisible", "sent", "visible")

    def __init__(self) -> None:
        self.sent: dict[bytes, TopicPartition] = {}
        self.commit_requested = False
        self.ended = False
        self.committed: bool | None = None
        self.visible = False
        self.invisible = False

    def show(self, name: Transaction, value: bytes) -> None:
        """A reader of committed records got `value`."""
        if self.ended and self.committed is False:
            raise Violation("aborted record read", f"{value!r} of {name}")
        if not self.commit_requested:
            raise Violation("undecided record read", f"{value!r} of {name}, which no client has committed")
        self.visible = True
        self._check(name, value)

    def hide(self, name: Transaction, value: bytes) -> None:
        """A reader of committed records passed `value`."""
        if self.committed:
            raise Violation("committed record not read", f"{value!r} of {name}")
        self.invisible = True
        self._check(name, value)

    def _check(self, name: Transaction, value: bytes) -> None:
        if self.visible and self.invisible:
            raise Violation("torn transaction", f"{name} at {value!r}")


class _Instances:
    """The instances of one transactional id."""

    __slots__ = ("newest", "pending", "sole")

    def __init__(self) -> None:
        #: the instance whose InitProducerId was answered last, by the order of epochs
        self.newest: tuple[tuple[int, int], int] | None = None
        #: instances whose InitProducerId is not answered
        self.pending: set[int] = set()
        #: the instance that no other one can have fenced, None if there is none
        self.sole: int | None = None


class TransactionChecker:
    """Observes a history. `finish` compares it with the content of the logs at the end."""

    def __init__(self, check_fencing: bool) -> None:
        """`check_fencing` is false if a coordinator may abort a transaction before its timeout."""
        self._check_fencing = check_fencing
        self._transactions: dict[Transaction, _TransactionSeen] = {}
        self._owners: dict[bytes, Transaction] = {}
        self._at: dict[TopicPartition, dict[int, bytes]] = {}
        self._offset_of: dict[bytes, int] = {}
        self._instances: dict[str, _Instances] = {}
        #: values that an instance sent after it was fenced
        self._fenced: set[bytes] = set()
        #: broker -> the epoch in which it takes itself for the coordinator of groups with checked offsets.
        #: One that was replaced and does not know it yet answers with older offsets, as in Kafka.
        self._coordinators: dict[int, int] = {}
        self._coordinator_epoch = -1
        #: visible copies by their input records
        self._copies: dict[tuple[int, int], bytes] = {}

    @property
    def committed(self) -> int:
        """The number of transactions with a known commit: a run without any shows nothing."""
        return sum(seen.committed is True for seen in self._transactions.values())

    def observe(self, client: str, event: object) -> None:
        match event:
            case Initializing(name, instance):
                self._of(name).pending.add(instance)
                self._of(name).sole = None
            case Initialized():
                self._initialized(event)
            case RefusedAsFenced():
                self._refused(event)
            case TransactionalSend():
                self._sent(event)
            case TransactionalAck():
                self._acked(event)
            case Ending(transaction, committed):
                self._seen(transaction).commit_requested |= committed
            case Ended(transaction, committed):
                self._ended(transaction, committed)
            case TransactionalRead():
                self._read(event)
            case Coordinates(_, node_id, epoch):
                self._coordinators[node_id] = -1 if epoch is None else epoch
                self._coordinator_epoch = max(self._coordinator_epoch, self._coordinators[node_id])
            case StoredOffset(group, partition, offset, expected, node_id):
                is_replaced = self._coordinators.get(node_id, -1) < self._coordinator_epoch
                if offset > expected or (offset < expected and not is_replaced):
                    raise Violation(
                        "stored offset changed", f"{group} {partition}: {expected} stored, {offset} found"
                    )

    # -- producers

    def _initialized(self, event: Initialized) -> None:
        instances = self._of(event.transactional_id)
        instances.pending.discard(event.instance)
        key, newest = (event.producer_id, event.epoch), instances.newest
        if newest is not None and key == newest[0] and event.instance != newest[1]:
            raise Violation("two producers with one epoch", f"{event} after {newest}")
        if newest is None or key > newest[0]:
            newest = instances.newest = key, event.instance
        # Responses may arrive in another order than that of the epochs.
        instances.sole = None if instances.pending else newest[1]

    def _refused(self, event: RefusedAsFenced) -> None:
        is_sole = self._of(event.transaction.transactional_id).sole == event.transaction.instance
        if self._check_fencing and event.is_certain and is_sole:
            raise Violation("fenced without a cause", str(event))

    def _sent(self, event: TransactionalSend) -> None:
        transaction = event.transaction
        seen = self._seen(transaction)
        newest = self._of(transaction.transactional_id).newest
        for value in event.values:
            seen.sent[value] = event.partition
            self._owners[value] = transaction
            if newest is not None and newest[1] > transaction.instance:
                self._fenced.add(value)

    def _acked(self, event: TransactionalAck) -> None:
        for i, value in enumerate(event.values):
            if value in self._fenced:
                raise Violation("fenced producer wrote", f"{value!r} of {event.transaction}")
            if event.offset is not None:
                self._found(event.partition, event.offset + i, value)

    def _ended(self, transaction: Transaction, committed: bool | None) -> None:
        seen = self._seen(transaction)
        seen.ended, seen.committed = True, committed
        if committed is False and seen.visible:
            raise Violation("aborted record read", f"{transaction} was visible and is aborted")
        if committed and seen.invisible:
            raise Violation("committed record not read", f"{transaction} was passed and is committed")

    # -- readers

    def _found(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A response says that `value` is at `offset`."""
        if value not in self._owners:
            raise Violation("phantom", f"{partition}: no client sent {value!r}, which is at {offset}")
        if value in self._fenced:
            raise Violation("fenced producer wrote", f"{value!r} is at {offset} of {partition}")
        known = self._at.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            raise Violation("record changed", f"{partition} at {offset}: {known!r}, now {value!r}")
        where = self._offset_of.setdefault(value, offset)
        if where != offset:
            raise Violation("duplicate", f"{value!r} is at {where} and at {offset}")

    def _read(self, read: TransactionalRead) -> None:
        expected = read.position
        for offset, value in read.records:
            if offset < expected:
                raise Violation("non-monotonic read", f"{read.partition}: {offset} after {expected - 1}")
            expected = offset + 1
            self._found(read.partition, offset, value)
        if not read.is_committed:
            return
        if read.records and read.records[-1][0] >= read.last_stable_offset:
            raise Violation("read above the last stable offset", str(read))
        got = dict(read.records)
        for offset in range(read.position, read.next_position):
            known = self._at.get(read.partition, {}).get(offset)
            if known is None:
                continue
            transaction = self._owners[known]
            if offset in got:
                self._seen(transaction).show(transaction, known)
                self._show_copy(known)
            else:
                self._seen(transaction).hide(transaction, known)

    def _show_copy(self, value: bytes) -> None:
        source = source_of(value)
        if source is not None and self._copies.setdefault(source, value) != value:
            raise Violation("processed twice", f"{source}: {self._copies[source]!r} and {value!r}")

    # -- the end

    def finish(
        self,
        logs: Mapping[TopicPartition, Sequence[tuple[int, bytes]]],
        positions: Mapping[int, int],
        inputs: Mapping[int, Sequence[int]],
    ) -> None:
        """`logs` has all committed records, `positions` the workers' offsets by input partition.

        `inputs` has the offsets of all records of the input partitions.
        """
        visible = [value for records in logs.values() for _, value in records]
        if len(set(visible)) < len(visible):
            raise Violation("duplicate", "a committed record is there twice")
        found = set(visible)
        for transaction, seen in self._transactions.items():
            missing = [value for value in seen.sent if value not in found]
            if seen.committed and missing:
                raise Violation("committed record lost", f"{missing} of {transaction}")
            if missing and len(missing) < len(seen.sent):
                raise Violation("torn transaction", f"{transaction} lacks {missing}")
        for partition, offsets in inputs.items():
            due = {(partition, offset) for offset in offsets if offset < positions.get(partition, 0)}
            done = {source for value in found if (source := source_of(value)) and source[0] == partition}
            if due != done:
                raise Violation(
                    "offsets and outputs differ",
                    f"input {partition} up to {positions.get(partition, 0)}: "
                    f"lacks {sorted(due - done)}, has {sorted(done - due)}",
                )

    def check_restored(self, logs: Mapping[TopicPartition, Sequence[tuple[int, bytes]]]) -> None:
        """`logs` has all committed records of a cluster that was restored from a cut."""
        found = {value for records in logs.values() for _, value in records}
        for partition, records in logs.items():
            for offset, value in records:
                if self._at.get(partition, {}).get(offset, value) != value:
                    raise Violation("restored cluster differs", f"{partition} has {value!r} at {offset}")
        for transaction, seen in self._transactions.items():
            there = [value for value in seen.sent if value in found]
            if there and (seen.committed is False or not seen.commit_requested):
                raise Violation("aborted transaction restored", f"{there} of {transaction}")
            if there and len(there) < len(seen.sent):
                raise Violation("torn transaction restored", f"{transaction} has only {there}")

    def _seen(self, transaction: Transaction) -> _TransactionSeen:
        found = self._transactions.get(transaction)
        if found is None:
            found = self._transactions[transaction] = _TransactionSeen()
        return found

    def _of(self, transactional_id: str) -> _Instances:
        return self._instances.setdefault(transactional_id, _Instances())
