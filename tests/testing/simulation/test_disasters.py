"""Disasters: disks are changed as requested, the rest is known, and no intact copy is destroyed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from penstock.model.ids import TopicId, TopicPartition
from penstock.records.record import Record, build_batch
from penstock.storage.checkpoint import format_checked
from penstock.storage.folders import PartitionFolders, StoredPartition
from penstock.storage.quarantine import Quarantine
from penstock.testing.disk import FaultyDisk
from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.checkers import ClientChecker, Violation
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.disasters import copies, tampering
from penstock.testing.simulation.disasters.damage import Outlook
from penstock.testing.simulation.disasters.gaps import missing_offsets
from penstock.testing.simulation.disasters.rot import flip_somewhere
from penstock.testing.simulation.disasters.small_files import WAYS
from penstock.testing.simulation.disasters.steps import damage_of
from penstock.testing.simulation.history import Acked, Batch, Read, Sent
from penstock.testing.simulation.invariants import PartitionInvariants, PartitionView, ReplicaView
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.observation import Observation
from penstock.testing.simulation.scenario import Options, Simulation, simulate

#: a seed of each; where one lost something, or never came to rest, before brokers had the rules, that one
_SEEDS = {
    "folder_removed": 1,
    "folder_rolled_back": 1,
    "top_segment_removed": 1,
    "directory_rolled_back": 1,
    "tail_lost": 3,
    "middle_segment_removed": 0,
    "first_segment_removed": 0,
    "log_start_forgotten": 0,
    "metadata_flipped": 5,
    "voter_wiped": 0,
    "majority_rolled_back": 0,
    "clock_ahead": 0,
    "clock_behind": 0,
    "folders_swapped": 0,
    "foreign_files": 0,
    "single_metadata_flipped": 3,
    "single_directory_rolled_back": 0,
    "operator_gives_up": 0,
    "checkpoints_lost": 0,
    "identity_lost": 1,
    "votes_lost": 0,
    "votes_rolled_back": 0,
    "vote_forgotten": 0,
    "quorum_recovered": 0,
    "metadata_damaged_everywhere": 0,
    "newest_segment_flipped": 0,
    "header_flipped": 0,
    "epoch_raised": 0,
    "no_descriptors": 0,
}
_EVENTS = TopicPartition("events", 0)
_FOLDER = "/disk/topics/events/partition-0"
_EVENTS_PATH = "topics/events/partition-0"


@pytest.mark.slow
@pytest.mark.parametrize("name", _SEEDS)
def test_no_intact_copy_is_destroyed(name: str) -> None:
    seed = _SEEDS[name]
    outcome = simulate(seed, Options.draw(seed, 3).with_disaster(name))
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
    assert outcome.acknowledged


def test_a_disaster_differs_from_other_runs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seed", "0", "--brokers", "3", "--disaster", "folder_removed", "--replay"])
    output = capsys.readouterr().out
    assert "plays folder_removed" in output
    assert "removed" in output
    assert "--brokers 3 --seed 0 --disaster folder_removed --replay" in output


def test_a_seed_of_a_disaster_is_one_run() -> None:
    options = Options.draw(2, 3).with_disaster("mixture")
    assert simulate(2, options).trace_hash == simulate(2, options).trace_hash


# -- tampering


def _batch(base: int, *values: bytes) -> bytes:
    data = bytearray(build_batch([Record(i, 0, None, value) for i, value in enumerate(values)]))
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


@pytest.fixture
def disk() -> FaultyDisk:
    """Three segments: a and b, c, d."""
    made = FaultyDisk(Random(1))
    made.makedirs(_FOLDER)
    for base, values in ((0, (b"a", b"b")), (2, (b"c",)), (3, (b"d",))):
        tampering.write(made, f"{_FOLDER}/{base:020}.log", _batch(base, *values))
    return made


def test_files_are_read_as_a_disk_holds_them(disk: FaultyDisk) -> None:
    assert tampering.folders(disk, ["/disk"]) == [tampering.Folder("/disk", _EVENTS)]
    assert copies.values_in(disk, _FOLDER) == copies.values_on(disk) == {b"a", b"b", b"c", b"d"}
    assert copies.end_offset(disk, _FOLDER) == 4
    assert copies.last_batch(disk, _FOLDER) == (-1, 4)
    assert copies.damaged_offset(disk, _FOLDER) is None


def test_deleted_files_are_not_held_but_quarantined_ones_are(disk: FaultyDisk) -> None:
    disk.makedirs("/disk/deleted")
    disk.makedirs("/disk/quarantine")
    tampering.write(disk, f"/disk/deleted/{0:020}.log", _batch(0, b"x"))
    tampering.write(disk, f"/disk/quarantine/{0:020}.log", _batch(0, b"y"))
    assert copies.values_on(disk) == {b"a", b"b", b"c", b"d", b"y"}


def test_damage_takes_its_own_batch_only(disk: FaultyDisk) -> None:
    tampering.flip(disk, f"{_FOLDER}/{2:020}.log", 65, 3)
    assert copies.values_in(disk, _FOLDER) == {b"a", b"b", b"d"}
    assert copies.damaged_offset(disk, _FOLDER) == 2
    tampering.zero(disk, f"{_FOLDER}/{0:020}.log", 0, 40)
    tampering.cut(disk, f"{_FOLDER}/{3:020}.log", 20)
    assert copies.values_in(disk, _FOLDER) == set()


def test_bits_of_intact_batches_flip_behind_damage(simulation: Simulation) -> None:
    cluster = simulation.cluster
    node = cluster.nodes[0]
    path = f"{node.directories[0]}/topics/events/partition-0/{0:020}.log"
    first = _batch(0, b"a")
    tampering.write(node.disk, path, first + _batch(1, b"b"))
    tampering.zero(node.disk, path, 0, len(first))
    flip_somewhere(cluster, node, path, 0)
    assert not list(copies.intact_batches(tampering.content(node.disk, path)[len(first) :]))
    with pytest.raises(StateNotReached):
        flip_somewhere(cluster, node, path, 0)


def test_a_copy_is_put_back(disk: FaultyDisk) -> None:
    backup = tampering.copy(disk, _FOLDER)
    tampering.remove(disk, f"{_FOLDER}/{3:020}.log")
    assert copies.values_in(disk, _FOLDER) == {b"a", b"b", b"c"}
    tampering.put(disk, _FOLDER, backup)
    assert copies.values_in(disk, _FOLDER) == {b"a", b"b", b"c", b"d"}
    disk.restart(power_loss=True)
    assert copies.values_in(disk, _FOLDER) == {b"a", b"b", b"c", b"d"}


def test_folders_are_swapped(disk: FaultyDisk) -> None:
    other = "/disk/topics/events/partition-1"
    disk.makedirs(other)
    tampering.swap(disk, _FOLDER, other)
    assert copies.values_in(disk, _FOLDER) == set()
    assert copies.end_offset(disk, other) == 4


def test_a_link_to_nothing_is_listed_and_cannot_be_opened(disk: FaultyDisk) -> None:
    tampering.dangle(disk, "/disk/topics/gone")
    assert "gone" in disk.listdir("/disk/topics")
    assert not disk.exists("/disk/topics/gone")
    with pytest.raises(FileNotFoundError):
        disk.open("/disk/topics/gone", create=True)


def test_a_short_disk_finds_no_descriptors(disk: FaultyDisk) -> None:
    disk.descriptor_shortage = 1.0
    with pytest.raises(OSError, match="Too many open files"):
        disk.open(f"{_FOLDER}/{0:020}.log")
    assert disk.read(f"{_FOLDER}/{0:020}.log")


# -- what is owed after a disaster


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    made = Simulation(1, Options.draw(1, 3).with_disaster("mixture"))
    for node in made.cluster.nodes:
        node.disk.makedirs(f"{node.directories[0]}/topics/__cluster_metadata/partition-0")
        node.disk.makedirs(f"{node.directories[0]}/topics/events/partition-0")
    yield made
    made.cluster.loop.close()


@pytest.mark.parametrize("how", WAYS)
def test_a_spoiled_file_does_not_make_a_replica_tampered(simulation: Simulation, how: str) -> None:
    damage = damage_of(simulation.cluster)
    for node in simulation.cluster.nodes:
        path = f"{node.directories[0]}/topics/events/partition-0/leader-epoch-checkpoint"
        tampering.write(node.disk, path, b"0")
        damage.spoil(node, path, how)
        assert not node.disk.exists(path) or node.disk.read(path) != b"0"
    damage.assess_rest()
    assert damage.outlook is Outlook.WHOLE


def test_a_disaster_that_breaks_off_is_assessed(simulation: Simulation) -> None:
    for node in simulation.cluster.nodes[:2]:
        damage_of(simulation.cluster).spoil_vote(node, "removed")
    assert damage_of(simulation.cluster).outlook is Outlook.WHOLE
    damage_of(simulation.cluster).assess_rest()
    assert damage_of(simulation.cluster).outlook is Outlook.REFUSED


@pytest.mark.parametrize(
    ("durable", "clean", "outlook"),
    [
        pytest.param(2, False, Outlook.REFUSED, id="recorded as durable"),
        pytest.param(1, True, Outlook.REFUSED, id="stopped cleanly"),
        pytest.param(1, False, Outlook.WHOLE, id="looks like a torn tail"),
    ],
)
def test_a_flipped_voter_may_vote_only_where_a_crash_can_have_done_it(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, durable: int, clean: bool, outlook: Outlook
) -> None:
    monkeypatch.setattr(Observation, "committed_metadata", 2)
    damage, nodes = damage_of(simulation.cluster), simulation.cluster.nodes
    for node in nodes:
        path, top = damage.metadata_path(node), node.directories[0]
        tampering.write(node.disk, f"{path}/{0:020}.log", _batch(0, b"a") + _batch(1, b"b"))
        lines = format_checked([f"__cluster_metadata 0 {durable}"])
        tampering.write(node.disk, f"{top}/recovery-point-offset-checkpoint", lines)
        if clean:
            tampering.write(node.disk, f"{top}/clean-shutdown", b"")
    damage.spoil_vote(nodes[0], "removed")
    with monkeypatch.context() as patched:
        # Of the two batches, the second.
        patched.setattr(
            copies, "covered", lambda *_: [(f"{damage.metadata_path(nodes[1])}/{0:020}.log", 100, 101)]
        )
        damage.flip_metadata(nodes[1], Random(1))
    damage.assess()
    assert damage.outlook is outlook


def _replica(simulation: Simulation, node_id: int, *batches: bytes) -> Node:
    """Write a segment of a replica of the partition that clients use."""
    node = simulation.cluster.nodes[node_id - 1]
    tampering.write(node.disk, f"{node.directories[0]}/{_EVENTS_PATH}/{0:020}.log", b"".join(batches))
    return node


def _committed(simulation: Simulation, end: int) -> None:
    observation = simulation.cluster.observation
    assert observation is not None
    name = TopicPartition("events#id", 0)
    observation._partitions.replica_changed(ReplicaView(name, 1, end, end, end))


@pytest.mark.parametrize(
    ("other", "outlook"),
    [
        pytest.param((b"a", b"b"), Outlook.WHOLE, id="another replica has it"),
        pytest.param((b"a",), Outlook.WAITING, id="no replica has it"),
    ],
)
def test_a_partition_waits_for_offsets_that_no_disk_holds(
    simulation: Simulation, other: tuple[bytes, ...], outlook: Outlook
) -> None:
    damage = damage_of(simulation.cluster)
    _committed(simulation, 3)
    first, second, third = _batch(0, b"a"), _batch(1, b"b"), _batch(2, b"c")
    node = _replica(simulation, 1, first, second, third)
    path = f"{node.directories[0]}/{_EVENTS_PATH}/{0:020}.log"
    damage.flip(node, path, len(first) + 65, 0)
    for node_id in (2, 3):
        node = _replica(simulation, node_id, *(first, second)[: len(other)])
        damage.cut(node, f"{node.directories[0]}/{_EVENTS_PATH}/{0:020}.log", 1 << 20)
    damage.assess()
    assert damage.outlook is outlook


def test_a_log_that_ends_early_on_every_disk_has_to_be_whole(simulation: Simulation) -> None:
    damage = damage_of(simulation.cluster)
    _committed(simulation, 2)
    for node_id in (1, 2, 3):
        node = _replica(simulation, node_id, _batch(0, b"a"), _batch(1, b"b"))
        path = f"{node.directories[0]}/{_EVENTS_PATH}/{0:020}.log"
        damage.cut(node, path, len(_batch(0, b"a")) + 10)
    damage.assess()
    assert damage.outlook is Outlook.WHOLE


def test_a_swapped_folder_holds_the_offsets_of_its_identity() -> None:
    disk, topic_id = FaultyDisk(Random(1)), TopicId(bytes(range(16)))
    other = "/disk/topics/events/partition-1"
    folders = PartitionFolders(disk, "/disk", Quarantine(disk, "/disk"), None)
    folders.create(StoredPartition("events", index, topic_id) for index in (0, 1))
    tampering.write(disk, f"{_FOLDER}/{0:020}.log", _batch(0, b"a") + _batch(2, b"c"))
    tampering.write(disk, f"{other}/{0:020}.log", _batch(0, b"x"))
    assert missing_offsets([(disk, ["/disk"])]) == {_EVENTS: (1, 2)}
    tampering.swap(disk, _FOLDER, other)
    tampering.dangle(disk, "/disk/topics/events/partition-77")
    assert missing_offsets([(disk, ["/disk"])]) == {_EVENTS: (1, 2)}
    tampering.write(disk, f"{other}/{0:020}.compacted", b"")
    assert missing_offsets([(disk, ["/disk"])]) == {}


def test_a_wiped_disk_has_no_metadata_to_flip(simulation: Simulation) -> None:
    damage, node = damage_of(simulation.cluster), simulation.cluster.nodes[0]
    damage.wipe(node)
    with pytest.raises(StateNotReached):
        damage.flip_metadata(node, Random(1))


def _sent(*values: bytes) -> Batch:
    return Batch(_EVENTS, 1, 0, 0, values)


def test_records_without_a_copy_are_excused() -> None:
    checker = ClientChecker()
    batch = _sent(b"a", b"b", b"c")
    checker.observe("p", Sent(batch))
    checker.observe("p", Acked(batch, 0))
    assert checker.known_values() == {b"a", b"b", b"c"}
    checker.excuse({b"b", b"c"})
    assert checker.known_values() == {b"a"}
    other = Batch(_EVENTS, 2, 0, 0, (b"x",))
    checker.observe("p", Sent(other))
    checker.observe("c", Read(_EVENTS, 1, ((1, b"x"),)))
    checker.finish({_EVENTS: [(0, b"a"), (1, b"x")]})
    with pytest.raises(Violation, match="lost write"):
        checker.finish({_EVENTS: [(1, b"x")]})


def test_a_tampered_replica_is_no_candidate_once_its_broker_is_unfenced() -> None:
    name = TopicPartition("events#id", 0)
    invariants = PartitionInvariants()
    view = PartitionView(name, -1, 1, 1, (1, 2), (1,), (), unclean=False)
    invariants.image_changed([view], fenced=set())
    invariants.replica_changed(ReplicaView(name, 1, 10, 10, 10))
    assert invariants.tampered({(1, _EVENTS)}, {_EVENTS: 10}) == {}
    invariants.image_changed([view._replace(isr=(), elr=(1,), partition_epoch=2)], fenced={1})
    invariants.replica_changed(ReplicaView(name, 1, 4, 4, 4))
    with pytest.raises(Violation, match="candidate completeness"):
        invariants.image_changed([view._replace(partition_epoch=3)], fenced=set())


def test_records_that_no_untampered_replica_holds_are_no_longer_committed() -> None:
    name = TopicPartition("events#id", 0)
    invariants = PartitionInvariants()
    invariants.replica_changed(ReplicaView(name, 1, 10, 10, 10))
    assert invariants.tampered({(1, _EVENTS)}, {_EVENTS: 6}) == {_EVENTS: 6}
