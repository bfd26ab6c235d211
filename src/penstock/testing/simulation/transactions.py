"""Runs with transactions: their topics, their clients, and the verdict at the end.

Plain producers write to `events`, the input of read-process-write workers. Their copies, and the records of
other transactional producers, go to `ledger`, which readers of both isolation levels read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from penstock.coordination.partitioning import partition_of
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.cluster import GROUP, SimCluster, Worker
from penstock.testing.simulation.faults import OFFSETS_PARTITIONS
from penstock.testing.simulation.history import Event
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.transaction_checker import TransactionChecker
from penstock.testing.simulation.transaction_events import TransactionalRead
from penstock.testing.simulation.transaction_faults import LEDGER
from penstock.testing.simulation.transaction_invariants import TransactionObservation, open_transactions
from penstock.testing.simulation.transaction_requests import TransactionalId
from penstock.testing.simulation.transaction_workers import (
    Copier,
    LedgerWriter,
    MixedCommitter,
    TransactionReader,
    stored_offset,
)

__all__ = ["Transactions", "transaction_settings"]

_GROUP: Final = "copiers"
_MIXED_GROUP: Final = "mixed"
_CHECK_MS: Final = 500
#: virtual seconds for markers to be written once a transaction is decided
_MARKERS_S: Final = 10.0
_TIMEOUTS_MS: Final = (1500, 4000)
#: fetches without records after which a partition is read to its end
_IDLE_READS: Final = 3


def transaction_settings(nodes: int) -> dict[str, str]:
    """Broker configs: few state partitions, and frequent checks for timed-out transactions."""
    return {
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(min(3, nodes)),
        "transaction.state.log.min.isr": str(min(2, nodes)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(_CHECK_MS),
    }


@dataclass(frozen=True, slots=True)
class _Plan:
    """The choices of a seed about transactions."""

    partitions: int
    writers: int
    copiers: int
    versions: tuple[int, ...]
    timeouts_ms: tuple[int, ...]

    @classmethod
    def draw(cls, seed: int, inputs: int) -> _Plan:
        rng = Random(f"{seed}/transactions")
        writers, copiers = rng.randint(1, 2), rng.randint(1, inputs)
        count = writers + copiers + 1
        return cls(
            partitions=rng.randint(1, 3),
            writers=writers,
            copiers=copiers,
            versions=tuple(rng.choice((1, 2, 2)) for _ in range(count)),
            timeouts_ms=tuple(rng.choice(_TIMEOUTS_MS) for _ in range(count)),
        )


class Transactions:
    """The transactional part of one run. `violated` gets the first violation that it finds."""

    def __init__(
        self, cluster: SimCluster, violated: Callable[[Violation], None], *, check_fencing: bool
    ) -> None:
        self._cluster = cluster
        self._violated = violated
        self._plan = _Plan.draw(cluster.seed, len(cluster.partitions))
        self.checker = TransactionChecker(check_fencing)
        self.partitions = [TopicPartition(LEDGER, i) for i in range(self._plan.partitions)]
        cluster.history.observers.append(self._observe)
        observation = TransactionObservation(cluster.nodes)
        before = cluster.loop.after_step

        def after_step(process: Process) -> None:
            if before is not None:
                before(process)
            observation.after_step(process)

        cluster.loop.after_step = after_step
        self._ended = False
        #: the records that the admin client has read
        self._final_read: list[tuple[int, bytes]] = []

    def workers(self) -> list[tuple[Client, Worker]]:
        plan, cluster, made = self._plan, self._cluster, []
        names = [f"writer-{i}" for i in range(plan.writers)] + [f"copier-{i}" for i in range(plan.copiers)]
        for number, name in enumerate(names):
            identity = TransactionalId(name, plan.versions[number], plan.timeouts_ms[number])
            late = cluster.client(f"{name}-late")
            for suffix in "ab":
                client = cluster.client(f"{name}-{suffix}")
                made.append((client, self._worker(client, late, identity, number)))
        # The history has the coordinators of one group: the checker takes them for those of this one, too.
        assert partition_of(_MIXED_GROUP, OFFSETS_PARTITIONS) == partition_of(GROUP, OFFSETS_PARTITIONS)
        client = cluster.client("mixed")
        identity = TransactionalId("mixed", plan.versions[-1], plan.timeouts_ms[-1])
        mixed = MixedCommitter(client, identity, cluster.partitions[0], _MIXED_GROUP, pause_s=0.2)
        made.append((client, mixed))
        for committed in (True, False):
            client = cluster.client(f"reader-{'committed' if committed else 'uncommitted'}")
            made.append((client, TransactionReader(client, self.partitions, committed)))
        return made

    def _worker(self, client: Client, late: Client, identity: TransactionalId, number: int) -> Worker:
        writers = self._plan.writers
        if number < writers:
            return LedgerWriter(client, late, identity, self.partitions, pause_s=0.15)
        source = self._cluster.partitions[number - writers]
        return Copier(client, late, identity, source, self.partitions, _GROUP, pause_s=0.15)

    async def create_topics(self, replicas: int, configs: Mapping[str, str]) -> None:
        admin = self._cluster.admin
        creating = admin.create_topic(LEDGER, self._plan.partitions, replicas, configs)
        await admin.process.spawn(self._cluster.loop, creating)

    # -- the end

    async def await_end(self) -> None:
        """Wait until every transaction has ended: it must, once its timeout is over and faults have ended."""
        loop = self._cluster.loop
        deadline = loop.time() + max(_TIMEOUTS_MS) / 1000 + _CHECK_MS / 1000 + _MARKERS_S
        while left := open_transactions(self._cluster.nodes):
            if loop.time() > deadline:
                raise Violation("transaction does not end", "; ".join(left))
            await asyncio.sleep(0.1)

    async def verify(self, inputs: dict[TopicPartition, list[tuple[int, bytes]]]) -> None:
        """Read everything that is committed, and compare it with the history. `inputs` are the logs."""
        cluster = self._cluster
        admin, loop = cluster.admin, cluster.loop
        logs = {p: await admin.process.spawn(loop, self._read_all(p)) for p in self.partitions}
        sources = cluster.partitions[: self._plan.copiers]
        positions = {
            source.partition: (await admin.process.spawn(loop, stored_offset(admin, _GROUP, source)))[0]
            for source in sources
        }
        offsets = {source.partition: [offset for offset, _ in inputs[source]] for source in sources}
        self.checker.finish(logs, positions, offsets)

    async def _read_all(self, partition: TopicPartition) -> list[tuple[int, bytes]]:
        """All committed records; TransactionalRead events check them as well."""
        reader = TransactionReader(self._cluster.admin, [partition], committed=True)
        position, idle = 0, 0
        self._final_read.clear()
        while idle < _IDLE_READS:
            end = await reader.read(partition, position, max_wait_ms=0)
            idle = 0 if end > position else idle + 1
            position = end
        return list(self._final_read)

    def _observe(self, client: str, event: Event) -> None:
        if client == self._cluster.admin.name and isinstance(event, TransactionalRead):
            self._final_read += event.records
        if not self._ended:
            try:
                self.checker.observe(client, event)
            except Violation as e:
                self._ended = True
                self._violated(e)
