"""Damages a simulated cluster, and derives which guarantees must still hold.

Scenarios tamper with disks through `Damage`, which records the replicas and metadata logs that were touched.
`assess` then decides, from the files on all disks, what has to hold in the end:

- A record that a client has seen acknowledged, or has read, and that an untampered replica still holds, must
  not be destroyed: some log or quarantine has it when the run ends.
- Where the metadata quorum can go on, the same record must be readable, every replica must be in sync again,
  and all other rules of the simulator hold. Records that no untampered replica holds are excused.
- Where it cannot (`Outlook.KEPT`, `Outlook.REFUSED`), availability is not required. The same holds if offsets
  of a partition are on no disk and later ones are (`Outlook.WAITING`): brokers do not skip records, and wait
  until an operator gives them up.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from enum import Enum
from random import Random
from typing import Final

from penstock.broker.app.broker import Broker
from penstock.broker.node.metadata_check import recorded
from penstock.model.ids import METADATA_TOPIC, OFFSETS_TOPIC, TopicPartition
from penstock.storage.memory import Directory
from penstock.testing.simulation.checkers import ClientChecker, Violation
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.disasters import copies, tampering
from penstock.testing.simulation.disasters.gaps import missing_offsets
from penstock.testing.simulation.disasters.tampering import Folder
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.observation import Observation

__all__ = ["Damage", "Outlook", "Voter"]

_METADATA: Final = TopicPartition(METADATA_TOPIC, 0)
_QUORUM_STATE: Final = "quorum-state"


class Voter(Enum):
    """The state of a voter's metadata log after the damage."""

    INTACT = "intact"
    #: replaced by an older copy: the node votes, and lacks records that were committed since
    STALE = "stale"
    #: it must not vote: its log is damaged, or its disk is a new one
    DAMAGED = "damaged"
    #: a bit of its log has changed: DAMAGED, or STALE where the damage looks like a torn tail
    FLIPPED = "flipped"


class Outlook(Enum):
    """The state that a cluster must reach after a disaster."""

    #: everything works, and all that an untampered replica holds can be read
    WHOLE = "whole"
    #: a partition lacks offsets that no disk holds: every rule of safety holds, and the partition waits
    WAITING = "waiting"
    #: an older quorum may decide again: no copy may be destroyed, and nothing else is required
    KEPT = "kept"
    #: too few voters are sound: no controller may decide anything
    REFUSED = "refused"


class Damage:
    """Tampers with the disks of stopped brokers, and keeps track of the undamaged copies.

    Why it has more than 25 methods: each kind of damage has one, and all of them record their effect on the
    copies that `assess` starts from.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        checker: ClientChecker,
        observation: Observation | None,
        note: Callable[[str, str], None],
        rng: Random,
    ) -> None:
        self._nodes = nodes
        self._checker = checker
        self._observation = observation
        self._note = note
        self._rng = rng
        self._tampered: set[tuple[int, TopicPartition]] = set()
        self._voters = dict.fromkeys((node.id for node in nodes), Voter.INTACT)
        self._promised: set[bytes] = set()
        self._assessed = False
        #: the expected state after an operator has recovered the quorum
        self._recovered: Outlook | None = None
        self.outlook = Outlook.WHOLE

    # -- tampering

    def folders(self, node: Node, below: str = "") -> list[Folder]:
        """The partition folders on a node's disk, those of the metadata log excluded."""
        found = tampering.folders(node.disk, node.directories, below)
        return [folder for folder in found if folder.partition != _METADATA]

    def segments(self, node: Node, folder: Folder) -> list[str]:
        return tampering.segments(node.disk, folder.path)

    def metadata_path(self, node: Node) -> str:
        return Folder(node.directories[0], _METADATA).path

    def _metadata_places(self, node: Node) -> list[tuple[str, int, int]]:
        """Ranges of metadata files, (path, begin, end), that a start reads and that a checksum covers.

        They are the newest snapshot, and the records committed after it.
        """
        path, begin = self.metadata_path(node), self._snapshot_end(node)
        end = copies.end_offset(node.disk, path)
        if self._observation is not None:
            end = min(end, self._observation.committed_metadata)
        places = copies.covered(node.disk, tampering.segments(node.disk, path), begin, end)
        snapshots = [name for name in node.disk.listdir(path) if name.endswith(".checkpoint")]
        return places + copies.covered(node.disk, [f"{path}/{name}" for name in snapshots[-1:]])

    def _snapshot_end(self, node: Node) -> int:
        names = node.disk.listdir(self.metadata_path(node))
        return max((int(name[:20]) for name in names if name.endswith(".checkpoint")), default=0)

    def backup(self, node: Node, path: str) -> Directory:
        return tampering.copy(node.disk, path)

    def remove(self, node: Node, path: str) -> None:
        self._touch(node, path, Voter.DAMAGED, "removed")
        tampering.remove(node.disk, path)

    def restore(self, node: Node, path: str, backup: Directory) -> None:
        """Roll a folder back to an earlier copy."""
        self._touch(node, path, Voter.STALE, "rolled back")
        tampering.put(node.disk, path, backup)
        self._touch(node, path, Voter.STALE)

    def cut(self, node: Node, path: str, size: int) -> None:
        self._touch(node, path, Voter.DAMAGED, f"cut to {size} bytes")
        tampering.cut(node.disk, path, size)

    def zero(self, node: Node, path: str, begin: int, end: int) -> None:
        self._touch(node, path, Voter.DAMAGED, f"zeroed from {begin} to {end}")
        tampering.zero(node.disk, path, begin, end)

    def flip(self, node: Node, path: str, position: int, bit: int) -> None:
        self._touch(node, path, Voter.DAMAGED, f"flipped at {position}.{bit}")
        tampering.flip(node.disk, path, position, bit)

    def swap(self, node: Node, one: Folder, other: Folder) -> None:
        self._touch(node, one.path, Voter.DAMAGED, f"swapped with {other.path}")
        self._touch(node, other.path, Voter.DAMAGED)
        tampering.swap(node.disk, one.path, other.path)

    def wipe(self, node: Node) -> None:
        """Replace the disk by an empty one."""
        self._touch(node, "", Voter.DAMAGED, "wiped")
        node.disk.root.clear()
        node.disk.settle()

    def spoil(self, node: Node, path: str, how: str) -> None:
        """Remove, empty or damage a file that holds no records: no replica counts as tampered with."""
        node.note(f"disaster: {path} is {how}")
        size, rng = node.disk.size(path), self._rng
        if how == "removed":
            tampering.remove(node.disk, path)
        elif how == "emptied" or not size:
            tampering.cut(node.disk, path, 0)
        else:
            assert how == "flipped"
            tampering.flip(node.disk, path, rng.randrange(size), rng.randrange(8))

    def spoil_vote(self, node: Node, how: str) -> None:
        """As `spoil`, for the quorum state: the node is another voter from now on."""
        path = f"{self.metadata_path(node)}/{_QUORUM_STATE}"
        if node.disk.exists(path):
            self.spoil(node, path, how)
        self._voters[node.id] = Voter.DAMAGED

    def vote(self, node: Node) -> bytes:
        """The quorum state on a disk."""
        return tampering.content(node.disk, f"{self.metadata_path(node)}/{_QUORUM_STATE}")

    def forget_vote(self, node: Node, how: str, older: bytes | None) -> None:
        """Put an older quorum state back, or spoil it: with all other voters the node votes again."""
        path = f"{self.metadata_path(node)}/{_QUORUM_STATE}"
        if older is None:
            self.spoil(node, path, how)
        else:
            node.note(f"disaster: {path} is rolled back")
            tampering.write(node.disk, path, older)

    def recovered(self, end: int) -> None:
        """An operator has made one node's metadata, up to offset `end`, the cluster's.

        All other nodes have forgotten their metadata, and fetch that.
        """
        assert self._observation is not None
        self._tampered |= {(node.id, _METADATA) for node in self._nodes}
        lacks = end < self._observation.committed_metadata
        self._recovered = Outlook.KEPT if lacks else Outlook.WHOLE
        self._observation.quorum_recovered()

    def flip_metadata(self, node: Node, rng: Random) -> None:
        """Invert a bit of the newest metadata snapshot, or of committed records behind it."""
        places = self._metadata_places(node) if node.disk.is_dir(self.metadata_path(node)) else []
        if not places:
            raise StateNotReached
        path, begin, end = rng.choice(places)
        voted = self._voters[node.id] is not Voter.DAMAGED
        self.flip(node, path, rng.randrange(begin, end), rng.randrange(8))
        if voted:
            self._voters[node.id] = Voter.FLIPPED

    def litter(self, node: Node, folder: Folder, rng: Random) -> None:
        """Put files and links into a data directory that no broker made."""
        top = f"{folder.directory}/topics"
        litter: list[tuple[str, bytes | None]] = [
            (f"{top}/.DS_Store", b"Bud1"),
            (f"{folder.topic_path}/notes.txt", b"do not delete"),
            (f"{folder.path}/99.log", b"text"),
            (f"{folder.path}/{0:020}.log.bak", b"text"),
            (f"{folder.topic_path}/partition-77", None),
            (f"{top}/gone", None),
        ]
        for path, content in rng.sample(litter, rng.randint(1, 3)):
            node.note(f"disaster: {path} appears")
            if content is None:
                tampering.dangle(node.disk, path)
            else:
                tampering.write(node.disk, path, content)

    def _touch(self, node: Node, path: str, voter: Voter, what: str = "") -> None:
        if what:
            node.note(f"disaster: {path or 'disk'} {what}")
        inside = path.rpartition("/")[0] if path.endswith(".log") else path
        for folder in tampering.folders(node.disk, node.directories, inside):
            self._tampered.add((node.id, folder.partition))
            if folder.partition == _METADATA:
                self._voters[node.id] = voter
        if f"/{METADATA_TOPIC}/" in path:
            self._tampered.add((node.id, _METADATA))
            self._voters[node.id] = voter

    # -- expectations

    def assess(self) -> None:
        """Derive the expectations from the files on all disks; call it after the last change to a disk."""
        self._assessed = True
        for node in self._nodes:
            node.mount()
        known = self._checker.known_values()
        kept: set[bytes] = set()
        for node, folder in self._untampered():
            kept |= copies.values_in(node.disk, folder.path)
        self._promised = known & kept
        self._checker.excuse(known - kept)
        self._note("disaster", f"{len(known & kept)} records are kept, {len(known - kept)} are lost with it")
        if self._observation is not None:
            lost = self._excuse_replicas(self._observation)
            self.outlook = self._quorum_outlook(self._observation)
            if self.outlook is Outlook.WHOLE and self._has_gaps(lost):
                self.outlook = Outlook.WAITING
        elif Voter.INTACT not in self._voters.values():
            self.outlook = Outlook.KEPT
        self._note("disaster", f"the cluster has to be {self.outlook.value}")
        if self.outlook in (Outlook.KEPT, Outlook.REFUSED):
            self._suspend()

    def assess_rest(self) -> None:
        """As `assess`, for a disaster that broke off half-way; does nothing if it has not begun."""
        begun = self._tampered or any(voter is not Voter.INTACT for voter in self._voters.values())
        if begun and not self._assessed:
            self.assess()

    def accept_loss(self) -> None:
        """An operator prefers a leader that lacks records: their copies must be kept all the same."""
        if self.outlook in (Outlook.WHOLE, Outlook.WAITING):
            self.outlook = Outlook.KEPT
            self._suspend()

    def _suspend(self) -> None:
        self._checker.suspend()
        if self._observation is not None:
            self._observation.suspend()

    def _untampered(self) -> Iterable[tuple[Node, Folder]]:
        for node in self._nodes:
            for folder in self.folders(node):
                if (node.id, folder.partition) not in self._tampered:
                    yield node, folder

    def _excuse_replicas(self, observation: Observation) -> set[TopicPartition]:
        """Returns the partitions that no untampered replica holds up to their last committed offset."""
        ends: dict[TopicPartition, int] = {}
        for node, folder in self._untampered():
            end = copies.end_offset(node.disk, folder.path)
            ends[folder.partition] = max(end, ends.get(folder.partition, 0))
        lost = observation.tampered(self._tampered, ends)
        for partition, offset in lost.items():
            self._note("disaster", f"no untampered replica of {partition} holds offsets from {offset} on")
            if partition.topic == OFFSETS_TOPIC:
                self._checker.excuse_groups()
        return set(lost)

    def _has_gaps(self, lost: Container[TopicPartition]) -> bool:
        """Whether one of the `lost` partitions lacks offsets below the end of its most complete replica."""
        disks = [(node.disk, node.directories) for node in self._nodes]
        gaps = {each: gap for each, gap in missing_offsets(disks).items() if each in lost}
        for partition, (first, following) in gaps.items():
            self._note("disaster", f"no disk holds the offsets {first} to {following - 1} of {partition}")
        return bool(gaps)

    def _quorum_outlook(self, observation: Observation) -> Outlook:
        if self._recovered is not None:
            return self._recovered
        committed, majority = observation.committed_metadata, len(self._nodes) // 2 + 1
        behind = sound = 0
        for node in self._nodes:
            voter = self._voter(node)
            if voter is Voter.DAMAGED:
                continue
            sound += 1
            path = self.metadata_path(node)
            lacks = copies.end_offset(node.disk, path) < committed
            behind += lacks or voter is Voter.STALE
        if sound < majority:
            return Outlook.REFUSED
        return Outlook.KEPT if behind >= majority else Outlook.WHOLE

    def _voter(self, node: Node) -> Voter:
        """The state of a voter's metadata log, going by its own disk where a bit was flipped.

        After a kill or a power loss, a start takes damage above the recorded durable offset for a torn tail,
        and cuts it off. The durable offset is recorded later than the last sync, so it may be too low.
        """
        voter, path = self._voters[node.id], self.metadata_path(node)
        if voter is not Voter.FLIPPED:
            return voter
        known, damaged = recorded(node.disk, path), copies.damaged_offset(node.disk, path)
        is_torn = damaged is not None and damaged >= known.durable and not known.clean
        return Voter.STALE if is_torn else Voter.DAMAGED

    # -- in the end

    def verify(self) -> None:
        """Raise Violation if a promised record is in no log and no quarantine of any node."""
        found: set[bytes] = set()
        for node in self._nodes:
            found |= copies.values_on(node.disk)
        gone = sorted(self._promised - found)
        if gone:
            raise Violation("record destroyed", f"{len(gone)} of {len(self._promised)}: {gone[:3]}")
        for node in self._nodes:
            if node.broker is not None:
                self._check_metadata(node, node.broker)

    def _check_metadata(self, node: Node, broker: Broker) -> None:
        if self.outlook is Outlook.REFUSED and broker.stages.cluster.node.controller.is_active:
            raise Violation("damaged quorum decides", f"{node.name} is the controller")
        damaged = copies.damaged_offset(node.disk, self.metadata_path(node))
        if damaged is not None and self._snapshot_end(node) <= damaged < broker.stages.cluster.image.offset:
            raise Violation("damaged metadata applied", f"{node.name}, offset {damaged}")
