"""Runs with an archive: the invariants, and a few seeds."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from penstock.archive.cuts import Cut, CutGroup, CutOffset, CutPartition, CutTopic
from penstock.archive.documents import digest, encode
from penstock.archive.names import BACKUP, cut_name
from penstock.model.ids import format_topic_id
from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.archive_invariants import StoreInvariants
from penstock.testing.simulation.archive_rollbacks import rolls_back
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.scenario import Options, Simulation
from tests.archive.logs import OWNER, FixedClock, log_of, new_store, writer


@pytest.mark.parametrize("seed", [1, 6])
def test_restored_clusters_equal_the_source_at_a_cut(seed: int) -> None:
    simulation = Simulation(seed, Options.draw_archived(seed, 3))
    assert simulation.run().violation is None
    assert simulation.archives is not None
    assert simulation.archives.restored
    assert any(name.endswith(".segment") for name in simulation.archives.store.objects)


def test_a_store_that_is_rolled_back_is_made_whole_again() -> None:
    simulation = Simulation(14, Options.draw_archived(14, 3))
    assert rolls_back(14) and not rolls_back(1)
    outcome = simulation.run()
    assert outcome.violation is None
    assert any("is rolled back and lacks" in line for line in simulation.cluster.loop.trace.lines)


def test_the_command_line_has_archives(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--archived"])
    assert main(["--seed", "2", "--brokers", "3", "--archived"]) == 0
    assert "--seed 2 --archived --replay" in capsys.readouterr().out


def _observed(store: SimulatedStore) -> list[Violation]:
    found: list[Violation] = []
    StoreInvariants(store, found.append)
    return found


def _write(store: SimulatedStore) -> str:
    """A manifest of two segments; returns its name."""

    async def write() -> str:
        archived = writer(store)
        await archived.open(0, compacted=False)
        await archived.append(log_of(0, 30))
        return OWNER.manifest(BACKUP, (await archived.commit(0, 0)).number)

    return asyncio.run(write())


def _cut(store: SimulatedStore, manifest: str, committed: int) -> Cut:
    end = msgspec.json.decode(store.objects[manifest][0].split(b"\n")[0])["segments"][-1]["next_offset"]
    partition = CutPartition(
        partition=OWNER.partition,
        manifest=0,
        sha256=digest(store.objects[manifest][0]),
        log_start_offset=0,
        end_offset=end,
        last_stable_offset=end,
    )
    offset = CutOffset(topic=OWNER.topic, partition=OWNER.partition, offset=committed)
    return Cut(
        archive="archive-id",
        time_ms=0,
        cluster_id="cluster",
        topics=(
            CutTopic(
                topic=OWNER.topic,
                topic_id=format_topic_id(OWNER.topic_id),
                replication_factor=1,
                partitions=(partition,),
            ),
        ),
        groups=(CutGroup(group="g", offsets=(offset,)),),
    )


def test_a_whole_archive_violates_nothing() -> None:
    store = new_store()
    found = _observed(store)
    manifest = _write(store)
    asyncio.run(store.put_new(cut_name(0, bytes(8)), encode(_cut(store, manifest, 3))))
    assert not found


@pytest.mark.parametrize("damage", [SimulatedStore.lose, SimulatedStore.rot])
def test_a_manifest_that_names_a_missing_or_other_object_is_a_violation(damage: object) -> None:
    source, store = new_store(), new_store()
    manifest = _write(source)
    found = _observed(store)
    store.objects = dict(source.objects)
    segment = next(name for name in store.objects if name.endswith(".segment"))
    damage(store, segment)  # type: ignore[operator]
    data, _ = store.objects.pop(manifest)
    asyncio.run(store.put_new(manifest, data))
    assert [each.name for each in found] == [
        "named object missing" if damage is SimulatedStore.lose else "named object differs"
    ]


def test_the_deletion_of_a_named_object_is_a_violation() -> None:
    store = new_store()
    found = _observed(store)
    _write(store)
    segment = next(name for name in store.objects if name.endswith(".segment"))
    asyncio.run(store.delete(segment))
    assert [each.name for each in found] == ["named object deleted"]


def test_a_group_offset_behind_its_cut_is_a_violation() -> None:
    store = new_store()
    found = _observed(store)
    manifest = _write(store)
    asyncio.run(store.put_new(cut_name(0, bytes(8)), encode(_cut(store, manifest, 10_000))))
    assert [each.name for each in found] == ["group offset behind the cut"]


def test_a_late_put_is_carried_out_after_its_error() -> None:
    late: list[object] = []
    faults = StoreFaults(late_put=1.0)
    store = SimulatedStore(
        Random(1), FixedClock(), asyncio.sleep, faults, lambda delay_s, put: late.append(put)
    )
    with pytest.raises(TimeoutError):
        asyncio.run(store.put_new("a", b"bytes"))
    assert not store.objects
    (put,) = late
    put()  # type: ignore[operator]
    assert store.objects["a"][0] == b"bytes"
