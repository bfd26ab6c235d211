"""Programs that work on the archive of a run: a backup, the collector, and the faults of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.archive.errors import ArchiveError
from penstock.archive.objects import open_archive
from penstock.archive.sweeping import collect, prune_cuts
from penstock.backup.source import Cluster, SourceFailed
from penstock.backup.taking import Backup
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.node import PORT
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.ports import SimClock, SimRng

__all__ = ["BackupWorker", "Collector", "Unrest", "bootstrap_of", "new_backup"]

#: longer than the grace period of the collector
_DAY_MS: Final = 26 * 3600 * 1000
_KEEP_MS: Final = 2 * _DAY_MS
#: small enough that backups merge segments, and that a cut has several
_SEGMENT_BYTES: Final = 4000
_LOOK_S: Final = 0.1


async def new_backup(client: Client, cluster: Cluster, store: SimulatedStore) -> Backup:
    """A backup as a process that has just been started."""
    rng = SimRng(client.rng)
    root = await open_archive(store, rng, client.clock.now_ms())
    return Backup(cluster, store, root.id, rng, client.clock, segment_bytes=_SEGMENT_BYTES)


class BackupWorker:
    """Takes cuts. Now and then it is killed in the middle of one, and started again."""

    def __init__(self, client: Client, bootstrap: str, store: SimulatedStore) -> None:
        self._client = client
        self._bootstrap = bootstrap
        self._store = store
        self._cluster: Cluster | None = None
        self._backup: Backup | None = None
        self.stopping = False

    async def run(self) -> None:
        rng = self._client.rng
        while not self.stopping:
            await asyncio.sleep(rng.uniform(0.05, 0.6))
            cut = asyncio.get_running_loop().create_task(self._cut())
            looks = rng.randint(1, 60)
            while looks and not cut.done() and not self.stopping:
                looks -= 1
                await asyncio.wait([cut], timeout=_LOOK_S)
            if not cut.done():
                cut.cancel()
                self._end()
            await asyncio.gather(cut, return_exceptions=True)
        self._end()

    async def _cut(self) -> None:
        try:
            if self._backup is None or self._cluster is None:
                self._cluster = Cluster(self._bootstrap, SimRng(self._client.rng))
                self._backup = await new_backup(self._client, self._cluster, self._store)
            await self._backup.take()
        except (ArchiveError, SourceFailed, OSError):
            return  # as a running backup: the next interval tries again

    def _end(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._backup = None


class Collector:
    """`penstock backup prune`, again and again."""

    def __init__(self, client: Client, store: SimulatedStore, clock: SimClock) -> None:
        self.client = client
        self._store = store
        self._clock = clock
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.client.rng.uniform(0.1, 1.0))
            await self.collect()

    async def collect(self) -> None:
        now_ms = self._clock.now_ms()
        try:
            await prune_cuts(self._store, now_ms - _KEEP_MS)
            await collect(self._store, SimRng(self.client.rng), now_ms)
        except (ArchiveError, OSError):
            return  # what cannot be read stops a collection


class Unrest:
    """The faults of the store, and machines that sleep for a day."""

    def __init__(
        self,
        client: Client,
        cluster: SimCluster,
        store: SimulatedStore,
        clock: SimClock,
        collector: Collector,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._collector = collector
        self.stopping = False

    async def run(self) -> None:
        rng = self._client.rng
        steps: list[Callable[[], None]] = [self._fail, self._fail, self._fail, self._calm, self._go_down]
        while not self.stopping:
            await asyncio.sleep(rng.uniform(0.1, 0.8))
            self._store.is_down = False
            if rng.random() < 0.2:
                await self._sleep_a_day()
            else:
                rng.choice(steps)()
        self._store.is_down = False
        self._calm()

    def _calm(self) -> None:
        self._store.faults = StoreFaults()

    def _fail(self) -> None:
        share = self._client.rng.choice((0.02, 0.1, 0.3))
        self._store.faults = StoreFaults(
            failure=share,
            lost_answer=share,
            late_put=share / 2,
            wrong_bytes=share / 4,
            wrong_puts=share / 4,
            short_reads=share / 4,
            delay_s=self._client.rng.choice((0.0, 0.02, 0.3)),
            listing_lag_ms=self._client.rng.choice((0, 500)),
        )
        self._cluster.note("store", f"fails in {share:.0%} of the calls")

    def _go_down(self) -> None:
        self._store.is_down = True
        self._cluster.note("store", "is down")

    async def _sleep_a_day(self) -> None:
        """Collections before and after a day that passes for all clocks; some programs sleep through it."""
        rng = self._client.rng
        asleep = [node for node in self._cluster.nodes if rng.random() < 0.4]
        for node in asleep:
            node.pause()
        await self._collector.collect()
        for node in self._cluster.nodes:
            node.clock.jump(_DAY_MS)
        for clock in (self._clock, self._client.clock, *(c.clock for c, _ in self._cluster.workers)):
            clock.jump(_DAY_MS)
        self._cluster.note("store", "a day passes")
        await asyncio.sleep(rng.uniform(0.0, 0.1))
        await self._collector.collect()
        for node in asleep:
            node.resume()


def bootstrap_of(cluster: SimCluster) -> str:
    return ",".join(f"{node.name}:{PORT}" for node in cluster.nodes)
