"""A simulated partition of three replicas whose leaders copy to a store that fails.

Leaders change, some of them without noticing, and go on copying. Copies end in the middle, the retention of
the leader and the collector of the archive run, and the store fails, is slow, loses answers, lists late, and
stores or returns wrong bytes. After each step, every object that the newest manifest names has to be there
and to have the acknowledged records. At the end, without faults, the archive has to become complete.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from penstock.archive.batches import split_batches
from penstock.archive.documents import Manifest, SegmentEntry, decode, digest
from penstock.archive.errors import ArchiveError
from penstock.archive.manifests import check_manifest
from penstock.archive.names import TIER, manifest_number
from penstock.archive.segment_object import parse_table
from penstock.archive.sweeping import collect
from penstock.archive.verifying import verify_partition
from penstock.model.errors import PenstockError
from penstock.records.record import iter_batches
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.ports import SimRng
from tests.archive.logs import OWNER, FixedClock
from tests.storage.logs import batch
from tests.tiering.leaders import Replica, archive_in

__all__ = ["Violation", "simulate"]

_STEPS: Final = 60
_DAY_S: Final = 24 * 3600
_OFFSET_BYTES: Final = 8


class Violation(AssertionError):
    """An invariant does not hold."""


class _Clock(FixedClock):
    """The clock of the brokers and of the store: that of the loop."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__()
        self._loop = loop

    def now_ms(self) -> int:
        return self.time_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class World:
    """One run."""

    def __init__(self, seed: int, loop: SimLoop) -> None:
        self.rng = Random(seed)
        self.clock = _Clock(loop)
        self.store = SimulatedStore(Random(f"{seed}/store"), self.clock, asyncio.sleep)
        self.replicas = [Replica.new() for _ in range(3)]
        for replica in self.replicas:
            replica.leads = False
        self.leader = self.replicas[0]
        self.leader.leads = True
        #: base offset -> bytes of the acknowledged batches
        self.acknowledged: dict[int, bytes] = {}
        self.copies: dict[int, asyncio.Task[None]] = {}
        self._checked: set[str] = set()
        self.epoch = 0

    # -- steps

    def produce(self) -> None:
        before = self.leader.log.high_watermark
        self.leader.produce(self.rng.randrange(1, 12), value=self.rng.randbytes(self.rng.randrange(1, 60)))
        found = self.leader.log.read(before, 1 << 20, upper=self.leader.log.end_offset)
        while found is not None:
            data = found.read()
            for position, header in iter_batches(data):
                self.acknowledged[header.base_offset] = data[position : position + header.size]
                before = header.next_offset
            found = self.leader.log.read(before, 1 << 20, upper=self.leader.log.end_offset)
        for replica in self.replicas:
            if not replica.leads and replica.log.end_offset <= self.leader.log.end_offset:
                self._replicate(self.leader, replica, self.leader.log.high_watermark)
                replica.log.retention.apply(None)

    def produce_unacknowledged(self) -> None:
        """Append what no follower has; the next election loses it."""
        for _ in range(self.rng.randrange(1, 12)):
            self.leader.log.append(batch(1, value=b"never acknowledged"), self.leader.epoch)

    def elect(self) -> None:
        """Another replica leads; the old leader may not notice."""
        former, elected = self.leader, self.rng.choice([r for r in self.replicas if r is not self.leader])
        committed = former.log.high_watermark
        # A former leader that believed itself to be one may have records that were never acknowledged.
        elected.log.truncate_to(min(elected.log.end_offset, self._agreed(elected)))
        self._replicate(former, elected, committed)
        self.epoch += 1
        elected.epoch, elected.leads, self.leader = self.epoch, True, elected
        if self.rng.random() < 0.6:
            former.leads = False
            former.log.truncate_to(committed)

    def _agreed(self, replica: Replica) -> int:
        """The end of the acknowledged records that a replica has."""
        end = replica.log.log_start_offset
        while (found := replica.log.read(end, 1 << 20, upper=replica.log.end_offset)) is not None:
            data = found.read()
            for position, header in iter_batches(data):
                if self.acknowledged.get(header.base_offset) != data[position : position + header.size]:
                    return end
                end = header.next_offset
        return end

    def _replicate(self, former: Replica, elected: Replica, committed: int) -> None:
        while elected.log.end_offset < committed:
            data = self.acknowledged[elected.log.end_offset]
            elected.log.append_replicated(memoryview(bytearray(data)))
        elected.log.advance_high_watermark(committed)
        elected.log.start_at(former.log.log_start_offset)

    def notice(self) -> None:
        """Former leaders learn that they are deposed."""
        for replica in self.replicas:
            if replica is not self.leader and replica.leads:
                replica.leads = False
                replica.log.truncate_to(self._agreed(replica))

    def retain(self) -> None:
        log = self.leader.log
        log.start_at(self.rng.randrange(log.log_start_offset, log.high_watermark + 1))
        log.retention.apply(None)

    def copy(self) -> None:
        """A broker that believes to lead starts a turn."""
        nth, replica = self.rng.choice(
            [(nth, replica) for nth, replica in enumerate(self.replicas) if replica.leads]
        )
        task = self.copies.get(nth)
        if task is None or task.done():
            self.copies[nth] = asyncio.get_running_loop().create_task(self._turn(replica))

    async def _turn(self, replica: Replica) -> None:
        async def pace(size: int) -> None:
            if self.rng.random() < 0.03:
                await asyncio.sleep(self.rng.uniform(0, 3) * _DAY_S)  # the machine sleeps

        archive = archive_in(
            self.store, self.clock, self.rng.randrange(1 << 60), self.rng.choice((300, 1500)), pace
        )
        try:
            await replica.turn(archive)
        except (PenstockError, OSError):
            return  # the next turn goes on

    def kill(self) -> None:
        """A copy ends anywhere."""
        for task in self.copies.values():
            if self.rng.random() < 0.5:
                task.cancel()

    def fail(self) -> None:
        share = self.rng.choice((0.0, 0.05, 0.3))
        self.store.faults = StoreFaults(
            failure=share,
            lost_answer=share,
            wrong_bytes=share / 4,
            wrong_puts=share / 4,
            short_reads=share / 4,
            delay_s=self.rng.choice((0.0, 1.0, 60.0)),
            listing_lag_ms=self.rng.choice((0, 2000)),
        )

    async def sweep(self) -> None:
        """Collect twice, more than a grace period apart."""
        for _ in range(2):
            try:
                await collect(self.store, SimRng(self.rng), self.clock.now_ms())
            except (ArchiveError, OSError):
                return
            await asyncio.sleep(_DAY_S + 1)

    # -- invariants

    def newest(self) -> Manifest | None:
        names = [each for each in self.store.objects if each.startswith(OWNER.manifests(TIER))]
        if not names:
            return None
        name = max(names, key=lambda each: manifest_number(each) or 0)
        return decode(self.store.objects[name][0], Manifest, name)

    def check(self) -> None:
        try:
            manifest = self.newest()
            if manifest is None:
                return
            check_manifest(manifest, "the newest manifest")
            for entry in manifest.segments:
                self._check_segment(entry)
        except (ArchiveError, KeyError) as e:
            raise Violation(repr(e)) from e

    def _check_segment(self, entry: SegmentEntry) -> None:
        name = OWNER.object(entry.name)
        if name not in self.store.objects:
            raise Violation(f"{name} is named and not there")
        if name in self._checked:
            return
        data = self.store.objects[name][0]
        if digest(data) != entry.sha256:
            raise Violation(f"{name} has other bytes than its manifest says")
        table = parse_table(data, len(data), name)
        for found in split_batches(memoryview(data)[: table.log_size], name):
            base = int.from_bytes(found[:_OFFSET_BYTES], "big")
            if self.acknowledged.get(base) != bytes(found):
                raise Violation(f"{name} has other records at offset {base} than were acknowledged")
        self._checked.add(name)

    # -- the run

    async def run(self) -> None:
        steps = [self.produce] * 8 + [self.copy] * 10 + [self.elect, self.notice, self.retain, self.kill]
        steps += [self.fail, self.fail, self.produce_unacknowledged]
        for _ in range(_STEPS):
            step = self.rng.choice(steps)
            step()
            if self.rng.random() < 0.03:
                await self.sweep()
            await asyncio.sleep(self.rng.uniform(0, 30))
            self.check()
        await self.settle()

    async def settle(self) -> None:
        """Without faults, the archive becomes complete."""
        self.store.faults = StoreFaults()
        self.notice()
        await asyncio.gather(*self.copies.values(), return_exceptions=True)
        self.check()
        archive = archive_in(self.store, self.clock, self.rng.randrange(1 << 60))
        for _ in range(20):
            await self.leader.turn(archive)
        manifest = self.newest()
        log = self.leader.log
        sealed = [each for each in log.segments if each is not log.segments.active]
        if manifest is None:
            if sealed:
                raise Violation("nothing was copied")
            return
        await verify_partition(self.store, manifest)
        end = min(log.last_stable_offset, log.segments.active.base_offset)
        if sealed and manifest.next_offset < self._copyable(end):
            raise Violation(f"the archive ends at {manifest.next_offset}, {end} is copyable")

    def _copyable(self, end: int) -> int:
        bases = [each.base_offset for each in self.leader.log.segments]
        return max(base for base in bases if base <= end)


def simulate(seed: int) -> None:
    """Run one seed; Violation if an invariant does not hold."""
    loop = SimLoop(seed)
    try:
        loop.run(World(seed, loop).run(), limit_s=1000 * _DAY_S)
    except Violation as e:
        raise Violation(f"seed {seed}: {e}") from e
    finally:
        loop.close()
