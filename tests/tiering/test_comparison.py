"""Histories that repeat offsets and leader epochs: the bytes of the log tell them apart."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from random import Random

import pytest

from penstock.model.errors import PenstockError
from penstock.records.record import iter_batches
from penstock.storage.config import LogConfig
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.tiering import copying, proof
from penstock.tiering.copying import release
from penstock.tiering.errors import ArchiveContradicts, LogDiverged
from tests.archive.logs import OWNER, FixedClock, in_loop, new_store
from tests.storage.logs import PATH, StillClock
from tests.tiering.kept import Kept
from tests.tiering.leaders import Replica, archive_in, contents, newest, verified

_SEEDS = 30
_STEPS = 40


def other_disk(replica: Replica) -> Replica:
    """The replica as it is on a copy of its disk."""
    files = copy.deepcopy(replica.log.segments.first.files)
    assert isinstance(files, MemoryFiles)
    local_start = replica.log.local_log_start_offset
    config = replace(LogConfig(), segment_bytes=600)
    opened = Log.open(files, PATH, config, StillClock(), clean=False, local_log_start_offset=local_start)
    opened.advance_high_watermark(opened.end_offset)
    return Replica(opened, replica.epoch)


@in_loop
async def test_a_log_that_was_rolled_back_is_not_copied() -> None:
    kept = await Kept.filled()
    earlier = other_disk(kept.replica)
    kept.replica.produce(20)
    await kept.copy()
    earlier.produce(40, value=b"other")

    with pytest.raises(LogDiverged, match="other records than the log"):
        await earlier.turn(kept.archive)


@in_loop
async def test_records_of_another_history_prove_nothing() -> None:
    kept = await Kept.filled()
    earlier = other_disk(kept.replica)
    kept.replica.produce(40)
    end = (await kept.copy()).next_offset
    earlier.produce(40, value=b"other")
    kept.replica = earlier

    with pytest.raises(ArchiveContradicts, match="other records than the log"):
        await kept.prove(end)


@in_loop
async def test_a_log_whose_archive_was_released_is_not_copied() -> None:
    kept = await Kept.filled()
    await kept.free()
    await release(kept.archive, OWNER, 3)
    kept.replica.produce(20)

    with pytest.raises(LogDiverged, match="has released all of its segments"):
        await kept.replica.turn(kept.archive)


@in_loop
async def test_segments_that_the_log_has_not_reached_are_not_proven() -> None:
    kept = await Kept.filled()
    manifest = await verified(kept.store)
    behind = Replica.new()
    behind.follow(kept.replica)
    log = behind.log
    last = manifest.segments[-1]
    log.truncate_to(last.next_offset - 1)
    kept.replica = behind

    assert (await kept.prove(last.base_offset + 1)).end_offset == last.base_offset


@in_loop
async def test_the_log_is_read_across_its_segments() -> None:
    kept = await Kept.filled()
    manifest = await verified(kept.store)
    data = await contents(kept.store, manifest)
    for size in (1, 100, 700, len(data) + 1):
        assert await kept.replica.bytes_before(manifest.next_offset, size) == data[-size:]


async def _run(seed: int) -> None:
    """A disk that is freed, and brought back from an earlier copy; all of its records stay readable."""
    rng, store = Random(seed), new_store()
    kept, expected = Kept(store, Replica.new()), b""
    earlier: tuple[Replica, bytes] | None = None
    for _ in range(_STEPS):
        step = rng.choice(["produce", "produce", "copy", "free", "keep", "roll back"])
        replica = kept.replica
        if step == "produce":
            before = replica.log.end_offset
            replica.produce(rng.randint(1, 8), value=rng.randbytes(rng.randint(1, 60)))
            expected += _local(replica, before)
        elif step == "keep":
            earlier = other_disk(replica), expected
        elif step == "roll back" and earlier is not None:
            (kept.replica, expected), earlier = earlier, None
        elif step in ("copy", "free"):
            try:
                if step == "free":
                    proven = await kept.prove(max(replica.log.local_log_start_offset, replica.sealed_end))
                    replica.log.advance_local_start(_boundary(replica, proven.end_offset))
                    replica.log.retention.remove_expired()
                else:
                    await replica.turn(archive_in(store, FixedClock(), rng.randrange(1 << 30)))
            except (PenstockError, OSError):
                continue
        assert await _all(kept) == expected


def _boundary(replica: Replica, offset: int) -> int:
    bases = [each.base_offset for each in replica.log.segments if each.base_offset <= offset]
    return max(bases, default=replica.log.local_log_start_offset)


def _local(replica: Replica, start: int) -> bytes:
    log, data = replica.log, b""
    while start < log.end_offset:
        found = log.read(start, 1 << 20, upper=log.end_offset)
        assert found is not None
        data += found.read()
        *_, (_, last) = iter_batches(found.read())
        start = last.next_offset
    return data


async def _all(kept: Kept) -> bytes:
    """All records, as readers find them: those below the local log start in the archive."""
    local, manifest, data = kept.replica.log.local_log_start_offset, await newest(kept.store), b""
    if local:
        assert manifest is not None
        for base, found in split(await contents(kept.store, manifest)):
            data += found if base < local else b""
    return data + _local(kept.replica, local)


def split(data: bytes) -> list[tuple[int, bytes]]:
    return [(each.base_offset, data[at : at + each.size]) for at, each in iter_batches(data)]


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_disks_that_come_back_from_a_copy_lose_nothing_more(seed: int) -> None:
    asyncio.run(_run(seed))


def test_without_the_comparison_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def believe(*arguments: object) -> bool:
        return True

    monkeypatch.setattr(copying, "same_end", believe)
    monkeypatch.setattr(proof, "same_end", believe)
    with pytest.raises(AssertionError):
        for seed in range(_SEEDS):
            asyncio.run(_run(seed))
