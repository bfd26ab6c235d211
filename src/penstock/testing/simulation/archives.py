"""Runs with an archive: brokers copy tiered topics to it, and cuts of a backup are restored at the end.

`StoreInvariants` check the archive whenever it changes. At the end, without faults, the copies of all
partitions become complete, a cut succeeds, and clusters that are restored from cuts equal the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final

from penstock.archive.cuts import Cut
from penstock.archive.errors import ArchiveError
from penstock.archive.names import TIER, ArchivedPartition
from penstock.archive.objects import read_document
from penstock.archive.sweeping import list_cuts
from penstock.archive.verifying import verify_cut, verify_partition
from penstock.backup.restoring import QUIET, check_restorable, restore_with
from penstock.backup.source import Cluster, SourceFailed
from penstock.broker.replica.copy_source import copyable_end, sealed_since
from penstock.broker.replica.partition import Partition
from penstock.model.config import BrokerConfig
from penstock.model.ids import TopicPartition
from penstock.ports import World
from penstock.testing.simulation.archive_invariants import StoreInvariants
from penstock.testing.simulation.archive_rollbacks import Rollbacks, rolls_back
from penstock.testing.simulation.archive_workers import (
    BackupWorker,
    Collector,
    Unrest,
    bootstrap_of,
    new_backup,
)
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.cluster import SimCluster, Worker
from penstock.testing.simulation.history import Event, History
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.ports import SimClock, SimRng, SimWorkers
from penstock.testing.simulation.transaction_checker import TransactionChecker
from penstock.testing.simulation.transaction_events import TransactionalRead
from penstock.testing.simulation.transaction_workers import TransactionReader, stored_offset
from penstock.testing.simulation.workload import read_all

__all__ = ["TIERED", "Archives", "tiered_settings"]

#: virtual seconds for the archive to become complete once all faults have ended
_PATIENCE_S: Final = 40.0
_LOOK_S: Final = 0.2
_CUTS_RESTORED: Final = 2
_ATTEMPTS: Final = 10
#: fetches without records after which a partition is read to its end
_IDLE_READS: Final = 3
#: configs of tiered topics, whose local segments go as soon as the archive has them
TIERED: Final = {"remote.storage.enable": "true", "local.retention.bytes": "0"}

Logs = Mapping[TopicPartition, Sequence[tuple[int, bytes]]]


def tiered_settings(archived: bool) -> dict[str, str]:
    """Broker configs: sealed segments are copied soon; none without an archive."""
    if not archived:
        return {}
    return {
        "remote.log.storage.system.enable": "true",
        "penstock.remote.log.address": "/archive",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "400",
        "log.segment.delete.delay.ms": "100",
        # In virtual time: a reader of everything takes an empty answer for the end.
        "remote.fetch.max.wait.ms": "20000",
    }


class Archives:
    """The archive of one run. `violated` gets the first violation that it finds."""

    def __init__(self, cluster: SimCluster, violated: Callable[[Violation], None]) -> None:
        self._cluster = cluster
        self._rng = Random(f"{cluster.seed}/archive")
        self.clock = SimClock(cluster.loop)
        self.store = SimulatedStore(
            Random(f"{cluster.seed}/store"), self.clock, asyncio.sleep, later=cluster.loop.world_later
        )
        self.invariants = StoreInvariants(self.store, violated)
        #: cuts that were restored and compared
        self.restored = 0
        for node in cluster.nodes:
            node.archive = self.store
        #: None if the store keeps what it has
        self._rollbacks: Rollbacks | None = None
        if rolls_back(cluster.seed):
            client = cluster.client("rollbacks")
            self._rollbacks = Rollbacks(client, cluster, self.store, self.invariants)

    def workers(self) -> list[tuple[Client, Worker]]:
        cluster = self._cluster
        collector = Collector(cluster.client("collector"), self.store, self.clock)
        unrest = cluster.client("store")
        backup = cluster.client("backup")
        made: list[tuple[Client, Worker]] = [
            (backup, BackupWorker(backup, bootstrap_of(cluster), self.store)),
            (collector.client, collector),
            (unrest, Unrest(unrest, cluster, self.store, self.clock, collector)),
        ]
        if self._rollbacks is not None:
            made.append((self._rollbacks.client, self._rollbacks))
        return made

    def mend(self) -> None:
        """Have the operator bring back what a rollback of the store has taken, and the cluster needs."""
        if self._rollbacks is not None:
            self._rollbacks.mend()

    # -- the end

    async def settle(self) -> None:
        """Wait until all sealed segments are copied, and take a last cut."""
        self.store.faults, self.store.is_down = StoreFaults(), False
        loop = self._cluster.loop
        deadline = loop.time() + _PATIENCE_S
        # Also where nothing waits to be copied: the store may lack what no disk has any more.
        self.mend()
        while (waiting := self._waiting()) is not None:
            if loop.time() > deadline:
                raise Violation("liveness", f"{_PATIENCE_S:g} s after all was healed: {waiting}")
            self.mend()
            await asyncio.sleep(_LOOK_S)
        client = self._cluster.client("last-backup")
        client.clock = self.clock
        await client.process.spawn(loop, self._last_cut(client))

    def _waiting(self) -> str | None:
        """A partition whose archive is not complete, or whose disk is not freed; None if there is none."""
        for node in self._cluster.nodes:
            for each in node.broker.stages.storage.partitions if node.broker is not None else ():
                if not each.log.config.remote_storage_enable:
                    continue
                manifest = self.invariants.newest(_owner(each), TIER)
                freed = min(-1 if manifest is None else manifest.next_offset, copyable_end(each))
                if len(each.log.segments) > 1 and list(each.log.segments)[1].base_offset <= freed:
                    return f"{node.name} keeps {each.name} from {each.log.segments.first.base_offset} on"
                if not each.leading:
                    continue
                start = each.log.log_start_offset
                end = start if manifest is None else max(start, manifest.next_offset)
                left = sealed_since(each.log, end)
                if left and left[0].next_offset <= copyable_end(each):
                    return f"{each.name} is archived up to {end}, {left[0].next_offset} may be"
        return None

    async def _last_cut(self, client: Client) -> None:
        cluster = Cluster(bootstrap_of(self._cluster), SimRng(client.rng))
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                await (await new_backup(client, cluster, self.store)).take()
            except (ArchiveError, SourceFailed, OSError) as e:
                reason = str(e) or repr(e)
            else:
                cluster.close()
                return
            await asyncio.sleep(1.0)
        raise Violation("no cut", f"without faults, a backup fails: {reason}")

    async def verify(self, logs: Logs, transactions: TransactionChecker | None) -> None:
        """Compare the archive, and clusters restored from it, with the records of the source.

        `logs` has the topics without transactions; `transactions` knows the others.
        """
        known = {partition: dict(records) for partition, records in logs.items()}
        client = self._cluster.client("verifier")
        await client.process.spawn(self._cluster.loop, self._verify_objects(known))
        cuts = await client.process.spawn(self._cluster.loop, self._cuts())
        last = cuts.pop()
        others = self._rng.sample(cuts, min(len(cuts), _CUTS_RESTORED - 1))
        for number, cut in enumerate([last, *others]):
            found = await self._restored(cut, number, known.keys())
            for partition in found.keys() & known.keys():
                _compare(cut, partition, found[partition], known[partition])
            if transactions is not None:
                transactions.check_restored({p: found[p] for p in found.keys() - known.keys()})
            self.restored += 1
        _check_last(last, logs)

    async def _verify_objects(self, known: Mapping[TopicPartition, Mapping[int, bytes]]) -> None:
        for owner in self.invariants.owners():
            for writer in ("tier", "backup"):
                manifest = self.invariants.newest(owner, writer)
                if manifest is not None:
                    try:
                        await verify_partition(self.store, manifest)
                    except ArchiveError as e:
                        raise Violation("archive damaged", f"{writer} of {owner}: {e}") from e
            records = known.get(TopicPartition(owner.topic, owner.partition), {})
            start = min(records, default=0)
            for offset, value in self.invariants.archived(owner):
                if records and offset >= start and records.get(offset) != value:
                    raise Violation(
                        "archive differs",
                        f"{owner} has {value!r} at {offset}, the cluster {records.get(offset)!r}",
                    )

    async def _cuts(self) -> list[Cut]:
        return [(await read_document(self.store, name, Cut))[0] for name in await list_cuts(self.store)]

    # -- restores

    async def _restored(
        self, cut: Cut, number: int, plain: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        """The records of a cluster that is restored from a cut and loses power at the end of the restore.

        Partitions that are not in `plain` are read with read_committed.
        """
        loop = self._cluster.loop
        node = Node(loop, f"{self._cluster.seed}/restored-{number}", 90 + number, {"penstock.flush": "group"})
        node.clock = SimClock(loop)
        loop.network.host_up(node.name)
        node.process = loop.new_process(f"restore-{number}", node.name)
        problems = await node.process.spawn(loop, self._restore(cut, node))
        if problems:
            raise Violation("cut cannot be restored", f"{cut.time_ms}: {problems}")
        node.process.kill()
        loop.network.process_died(node.process, silently=True)
        node.boot()
        history = History(lambda client, text: None)
        reader = Client(loop, f"reader-{number}", [node.address], Random(number), history)
        found = {}
        for key in [TopicPartition(t.topic, p.partition) for t in cut.topics for p in t.partitions]:
            reading = read_all(reader, key) if key in plain else _read_committed(reader, history, key)
            found[key] = await reader.process.spawn(loop, reading)
        await reader.process.spawn(loop, _check_groups(reader, cut))
        node.kill()
        return found

    async def _restore(self, cut: Cut, node: Node) -> str:
        damaged = [each.problem for each in await verify_cut(self.store, cut) if each.verified is None]
        if damaged:
            return damaged[0]
        config = BrokerConfig({**node.settings, **QUIET})
        world = World(node.clock, node.rng, node.disk, SimWorkers(self._cluster.loop), node.clock.computing)
        try:
            topics = list(cut.topics)
            manifests = await check_restorable(self.store, topics)
            await restore_with(self.store, cut, topics, manifests, config, world)
        except (ArchiveError, SourceFailed, OSError) as e:
            return str(e) or repr(e)
        return ""


def _owner(partition: Partition) -> ArchivedPartition:
    return ArchivedPartition(partition.topic, partition.topic_id, partition.index)


def _compare(
    cut: Cut,
    partition: TopicPartition,
    restored: Sequence[tuple[int, bytes]],
    source: Mapping[int, bytes],
) -> None:
    """Violation unless a restored partition has exactly the source's records in the cut."""
    (found,) = (
        each
        for topic in cut.topics
        if topic.topic == partition.topic
        for each in topic.partitions
        if each.partition == partition.partition
    )
    # Records that were deleted since are not in the source any more.
    start = max(found.log_start_offset, min(source, default=found.end_offset))
    expected = {o: v for o, v in source.items() if start <= o < found.end_offset}
    got = {o: v for o, v in restored if o >= start}
    if got != expected or (restored and restored[0][0] < found.log_start_offset):
        wrong = sorted(got.items() ^ expected.items())[:3]
        raise Violation("restored cluster differs", f"{partition} of the cut at {cut.time_ms}: {wrong}")


async def _read_committed(
    reader: Client, history: History, partition: TopicPartition
) -> list[tuple[int, bytes]]:
    """All committed records of a partition."""
    found: list[tuple[int, bytes]] = []

    def note(client: str, event: Event) -> None:
        if isinstance(event, TransactionalRead):
            found.extend(event.records)

    history.observers[:] = [note]
    worker, position, idle = TransactionReader(reader, [partition], committed=True), 0, 0
    while idle < _IDLE_READS:
        end = await worker.read(partition, position, max_wait_ms=0)
        idle, position = (0 if end > position else idle + 1), end
    return found


async def _check_groups(reader: Client, cut: Cut) -> None:
    for group in cut.groups:
        for each in group.offsets:
            partition = TopicPartition(each.topic, each.partition)
            found, _ = await stored_offset(reader, group.group, partition)
            if found != each.offset:
                raise Violation(
                    "restored group differs", f"{group.group} has {found} in {partition}, not {each.offset}"
                )


def _check_last(cut: Cut, logs: Logs) -> None:
    """Violation unless the last cut, taken without faults, has all records."""
    ends = {(t.topic, p.partition): p.end_offset for t in cut.topics for p in t.partitions}
    for partition, records in logs.items():
        end = records[-1][0] + 1 if records else 0
        if ends.get((partition.topic, partition.partition), -1) < end:
            raise Violation("cut incomplete", f"{partition} ends at {end}, in the last cut at {ends}")
