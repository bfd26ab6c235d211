"""Brokers without one of the rules of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.coordinators import transaction_additions
from penstock.broker.coordinators.effects import UncommittedEffects
from penstock.broker.coordinators.shard_host import CoordinatorShardHost
from penstock.broker.coordinators.transaction_additions import PartitionAdditions, gathered
from penstock.broker.replica.txn_markers import MarkerWriter
from penstock.coordination.outbox import Effect
from penstock.groups.offsets import Offsets
from penstock.ports import Buffer
from penstock.records.batch import TRANSACTIONAL_BIT
from penstock.records.header_fields import ATTRIBUTES, PRODUCER_EPOCH, PRODUCER_ID
from penstock.records.record import iter_batches
from penstock.storage import producers
from penstock.storage.appending import Appender
from penstock.storage.producers import ProducerStates
from penstock.transactions import metadata, shard
from penstock.transactions.shard import TransactionShard
from penstock.transactions.states import PREPARED
from penstock.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tests.testing.simulation.hunting import Mutant

__all__ = ["TRANSACTION_MUTANTS"]

#: no clock jumps, which end timeouts early
_CALM: Final = ("stop", "resets")
#: the last epoch of a producer id, for the overflow of epochs
_EPOCH_MAX: Final = 4


# -- decisions and markers


def _take_all(self: UncommittedEffects, high_watermark: int) -> list[Effect]:
    due = [effect for _, effects in self._waiting for effect in effects]
    self._waiting.clear()
    return due


_loaded = CoordinatorShardHost._loaded


def _resend_at_once(self: CoordinatorShardHost[Any], loaded: Any) -> None:
    _loaded(self, loaded)
    units = self.decisions.units
    for number, unit in enumerate(units):
        units[number] = unit._replace(effects=())
        for effect in unit.effects:
            self._run_effect(effect)


_end, _append_replicated = ProducerStates._end, Appender.append_replicated


def _end_at_once(self: ProducerStates, state: Any, offset: int, marker: Any) -> Any:
    completed = _end(self, state, offset, marker)
    if completed is not None:
        del self._unreplicated[completed.first_offset]
        self._find_first_unstable()
    return completed


def _check_replicated_markers(self: Appender, batches: Buffer, newest_epoch: int | None = None) -> int:
    states = self._log.producers
    for _, header in iter_batches(batches):
        if header.is_control and header.producer_id >= 0:
            states.check_marker_epoch(header.producer_id, header.producer_epoch, 2)
    return _append_replicated(self, batches, newest_epoch)


# -- guards


_check, _check_guard = ProducerStates.check, ProducerStates._check_guard


def _check_any_guard(self: ProducerStates, state: Any, header: Any, origin: Any, guard: Any) -> None:
    """A guard says only that some verification is under way."""
    held = self.guards.get(header[PRODUCER_ID])
    _check_guard(self, state, header, origin, held if guard is not None else None)


def _check_guard_first(self: ProducerStates, header: Any, origin: Any, marker: Any, guard: Any = None) -> Any:
    state = self.states.get(header[PRODUCER_ID])
    is_first = state is not None and not state.is_within(header[PRODUCER_EPOCH])
    if marker is None and is_first and header[ATTRIBUTES] & TRANSACTIONAL_BIT:
        self._check_guard(state, header, origin, guard)
    return _check(self, header, origin, marker, guard)


# -- the coordinator


_add_partitions, _add, _prepare = (
    TransactionShard.add_partitions,
    PartitionAdditions.add,
    TransactionShard._prepare,
)


def _check_producer_first(self: TransactionShard, addition: Any, respond: Any, reply_to: Any) -> Any:
    found = self._ledger.by_id.get(addition.transactional_id)
    if found is not None and found.state in PREPARED:
        code = shard._check_producer(found, addition)
        if code:
            return respond(code)
    return _add_partitions(self, addition, respond, reply_to)


def _add_the_good(self: PartitionAdditions, transaction: AddPartitionsToTxnTransaction, version: int) -> Any:
    of_client = version < transaction_additions.BATCHED_FROM
    bad = {
        (topic.name, index): code
        for topic in transaction.topics
        for index in topic.partitions
        if (code := self._check_partition((topic.name, index), of_client))
    }
    transaction.topics = [
        AddPartitionsToTxnTopic(
            name=topic.name, partitions=[i for i in topic.partitions if (topic.name, i) not in bad]
        )
        for topic in transaction.topics
    ]

    def finish(results: list[Any]) -> Any:
        results[0].topic_results += [
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                ],
            )
            for (name, index), code in bad.items()
        ]
        return results[0]

    return gathered([_add(self, transaction, version)], finish)


def _prepare_by_the_cluster(
    self: TransactionShard, transactional_id: str, found: Any, committed: bool, version: int
) -> Any:
    return _prepare(self, transactional_id, found, committed, self._env.level())


# -- offsets


def _materialise_by_marker(self: Offsets, producer_id: int, committed: bool) -> None:
    for (group, topic, partition), offset in self.pending.end(producer_id).items():
        if committed:
            self._put(group, topic, partition, offset)


_new_writer: Callable[..., None] = MarkerWriter.__init__


def _without_targets(self: MarkerWriter, partitions: Any, clock: Any, timeout_s: float, targets: Any) -> None:
    _new_writer(self, partitions, clock, timeout_s, {})


def _nothing(*_: object) -> None:
    return None


TRANSACTION_MUTANTS: Final = (
    Mutant(
        guard="markers wait for the committed decision",
        changes=((UncommittedEffects, "take_committed", _take_all),),
        transactional=True,
        directed_fault="prepare_unreplicated",
    ),
    Mutant(
        guard="loaded decisions wait for their commit",
        changes=((CoordinatorShardHost, "_loaded", _resend_at_once),),
        # With three brokers, the quorum cannot elect the next coordinator.
        brokers=5,
        transactional=True,
        directed_fault="prepare_on_one",
    ),
    Mutant(
        guard="a guard is unique",
        changes=((ProducerStates, "_check_guard", _check_any_guard),),
        transactional=True,
        directed_fault="verified_after_the_end",
    ),
    Mutant(
        guard="duplicates before guards",
        changes=((ProducerStates, "check", _check_guard_first),),
        transactional=True,
        directed_fault="retried_after_the_end",
    ),
    Mutant(
        guard="the LSO waits for replicated markers",
        changes=((ProducerStates, "_end", _end_at_once),),
        transactional=True,
        directed_fault="marker_unreplicated",
    ),
    Mutant(
        guard="markers have a higher epoch",
        changes=((ProducerStates, "check_marker_epoch", _nothing),),
        transactional=True,
        directed_fault="late_markers",
    ),
    Mutant(
        guard="followers take any marker",
        changes=((Appender, "append_replicated", _check_replicated_markers),),
        transactional=True,
        allowed=_CALM,
    ),
    Mutant(
        guard="pending decisions before producer ids",
        changes=((TransactionShard, "add_partitions", _check_producer_first),),
        conditions=(
            (metadata, "EPOCH_MAX", _EPOCH_MAX),
            (metadata, "LAST_EPOCH", _EPOCH_MAX - 1),
            (producers, "_EPOCH_MAX", _EPOCH_MAX),
        ),
        transactional=True,
        allowed=_CALM,
    ),
    Mutant(
        guard="partitions are added together",
        changes=((PartitionAdditions, "add", _add_the_good),),
        transactional=True,
        allowed=_CALM,
    ),
    Mutant(
        guard="offsets count by their position",
        changes=((Offsets, "end_transaction", _materialise_by_marker),),
        transactional=True,
        allowed=_CALM,
    ),
    Mutant(
        guard="markers pass through the group shard",
        changes=((MarkerWriter, "__init__", _without_targets),),
        transactional=True,
        allowed=_CALM,
    ),
    Mutant(
        guard="clients end by their own version",
        changes=((TransactionShard, "_prepare", _prepare_by_the_cluster),),
        transactional=True,
        allowed=_CALM,
    ),
)
