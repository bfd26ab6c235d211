"""Guards that keep damaged, stale and missing copies from destroying good ones, each removed in turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from penstock.broker.healing.scrubber import Scrubber
from penstock.broker.node import metadata_check, quorum_recovery
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.node.metadata_copies import Copy
from penstock.broker.node.metadata_log import QUORUM_STATE, MetadataLog
from penstock.broker.node.metadata_merge import Merged, merge
from penstock.broker.replica import stored_partitions
from penstock.broker.replica.data_directories import DataDirectories
from penstock.broker.replica.stored_partitions import StoredPartitions
from penstock.broker.replica.unclean_replicas import UncleanReplicas
from penstock.metadata import unclean_recovery
from penstock.metadata.clocks import Clocks
from penstock.metadata.unclean_recovery import ReplicaReport, _Claims
from penstock.model.ids import TopicPartition
from penstock.ports import Rng
from penstock.raft.messages import ReplicaKey
from penstock.raft.quorum import Quorum
from penstock.raft.recovery import LogRecovery
from penstock.raft.state import QuorumState, UnreadableQuorumState, decode_quorum_state
from penstock.raft.unanimity import Unanimity
from penstock.raft.voters import VoterSet
from penstock.replication.follower import FollowerState, Step, Truncate
from penstock.storage import health, loading, log_opening, store
from penstock.storage.directory import DataDirectory
from penstock.storage.folders import PartitionFolder, StoredPartition
from penstock.storage.log_opening import LogOpener
from penstock.storage.manifest import LoggedState, Registration
from penstock.timekeeping.trust import ClockTrust, Reading, Standing
from tests.testing.simulation.hunting import Mutant

__all__ = ["DISASTER_MUTANTS"]


def _nothing(*_: object) -> None:
    return None


def _always(*_: object) -> bool:
    return True


def _delete(place: DataDirectory, name: str, indexes: Sequence[int], reason: str) -> None:
    removal = place.remove_topic(name, indexes)
    removal.set_aside()
    removal.delete()


def _first_registration(self: DataDirectories) -> Registration:
    return self.opened[0].shutdown.registration


def _by_name(self: StoredPartitions, folder: PartitionFolder) -> StoredPartition | None:
    """Believe the name of a folder, whatever its identity is."""
    topic = self._image.topics.get(folder.topic)
    if topic is None or not self._is_assigned(topic.name, folder.partition):
        return None
    return StoredPartition(topic.name, folder.partition, topic.id)


def _is_same_id(self: Quorum, key: ReplicaKey) -> bool:
    return key.id == self.key.id


def _cut(self: FollowerState, offset: int, now_ms: int) -> Step:
    return self.failed(now_ms) if offset >= self._log.end_offset else Truncate(offset)


def _last_leader(reports: Iterable[ReplicaReport], last_leader: Iterable[int] = ()) -> ReplicaReport | None:
    """Elect as if the last known leader were complete."""
    found, led = list(reports), list(last_leader)
    return next((report for report in found if report.broker in led), found[0] if found else None)


def _same_voter(self: MetadataLog, node_id: int, voters: VoterSet, rng: Rng) -> QuorumState:
    """Vote again under the same key, whatever the votes were that are forgotten."""
    with suppress(FileNotFoundError, UnreadableQuorumState):
        return decode_quorum_state(self._files.read(f"{self.log.path}/{QUORUM_STATE}"))
    voter = voters.get(node_id)
    return QuorumState(self.last_epoch, directory_id=voter.key.directory_id if voter else bytes(16))


def _checkpointed_start(
    self: LogOpener, key: TopicPartition, topic_id: str, expected: LoggedState | None, clean: bool
) -> int | None:
    return self._checkpoints.recorded_start(key, topic_id)


async def _no_scrubbing(self: Scrubber) -> None:
    return None


def _any_clock(self: ClockWatch) -> int:
    return self.read().wall_ms


def _as_new(self: ClockTrust, saved: object, first: Reading) -> None:
    """Start as if there was no time before the stop."""
    self._expected = first.base_ms


def _above_the_present(self: _Claims, report: ReplicaReport, others: Iterable[ReplicaReport]) -> bool:
    """Believe every leader epoch up to the present one, whatever the other replicas report."""
    return report.last_epoch > self._partition.leader_epoch


def _longest_alone(copies: Sequence[Copy]) -> Merged:
    """Take one log as it is, whatever the others have in the place of its damage."""
    return merge([max(copies, key=lambda copy: copy.end)])._replace(missing=None)


def _believed(segment: object, offset: int, position: int, end: int, compact: bool, cached_only: bool) -> int:
    """Believe the base offset of each batch."""
    return end


DISASTER_MUTANTS: Final = (
    Mutant(
        guard="damaged metadata logs are merged",
        changes=((quorum_recovery, "merge", _longest_alone),),
        disaster="metadata_damaged_everywhere",
    ),
    Mutant(
        guard="all voters together replace forgotten votes",
        changes=((Unanimity, "is_won", lambda *_: False),),
        disaster="votes_rolled_back",
    ),
    Mutant(
        # Either of them alone is enough for what the checkers see.
        guard="batches follow each other, and scrubbers look",
        changes=((store, "sound_end", _believed), (Scrubber, "scrub_all", _no_scrubbing)),
        disaster="header_flipped",
    ),
    Mutant(
        guard="leader epochs that one replica alone has are doubted",
        changes=((_Claims, "_is_impossible", _above_the_present),),
        disaster="epoch_raised",
    ),
    Mutant(
        guard="missing logs are reported",
        changes=((UncleanReplicas, "mark", _nothing),),
        disaster="folder_removed",
    ),
    Mutant(
        guard="logs match their manifest",
        changes=((log_opening, "mismatch", _nothing),),
        disaster="folder_rolled_back",
    ),
    Mutant(
        guard="manifests agree on the epoch",
        changes=((DataDirectories, "previous_registration", property(_first_registration)),),
        disaster="directory_rolled_back",
    ),
    Mutant(
        guard="folders have an identity, and match their manifest",
        changes=((StoredPartitions, "_own_place", _by_name), (log_opening, "mismatch", _nothing)),
        disaster="folders_swapped",
    ),
    Mutant(
        guard="metadata is checked",
        changes=((metadata_check, "crc_matches", _always),),
        disaster="single_metadata_flipped",
    ),
    Mutant(
        guard="a new disk does not vote",
        changes=(
            (LogRecovery, "may_vote_for", _always),
            (Quorum, "is_recovering", False),
            (Quorum, "is_own_key", _is_same_id),
        ),
        disaster="voter_wiped",
    ),
    Mutant(
        guard="recovery waits for every replica",
        changes=((unclean_recovery, "_missing", lambda *_: {}),),
        disaster="tail_lost",
    ),
    Mutant(
        guard="the most complete replica recovers",
        changes=((unclean_recovery, "most_complete", _last_leader),),
        disaster="tail_lost",
    ),
    Mutant(
        guard="committed records are set aside",
        changes=((FollowerState, "_truncate", _cut),),
        disaster="operator_gives_up",
    ),
    Mutant(
        guard="the log start is recorded",
        changes=((LogOpener, "_recorded_start", _nothing),),
        disaster="first_segment_removed",
    ),
    Mutant(
        guard="the manifest records the log start",
        changes=((LogOpener, "_recorded_start", _checkpointed_start),),
        disaster="first_segment_removed",
    ),
    Mutant(
        guard="unexplained log starts are not adopted",
        changes=((LogOpener, "_is_explained", _always),),
        disaster="log_start_forgotten",
    ),
    Mutant(
        guard="holes are damage, and do not match the manifest",
        changes=((loading, "find_holes", lambda *_: []), (log_opening, "mismatch", _nothing)),
        disaster="middle_segment_removed",
    ),
    Mutant(
        guard="strays are quarantined",
        changes=((stored_partitions, "_quarantine", _delete),),
        disaster="single_directory_rolled_back",
    ),
    Mutant(
        guard="foreign files are ignored",
        changes=((loading, "_BASE_OFFSET", re.compile(r"\d+")),),
        disaster="foreign_files",
    ),
    Mutant(
        guard="a wrong clock deletes nothing",
        changes=((ClockWatch, "now_ms", _any_clock),),
        disaster="clock_ahead",
    ),
    Mutant(
        guard="brokers that are wrong together are wrong",
        changes=((ClockTrust, "doubt", property(lambda self: self._others)),),
        disaster="clocks_step",
    ),
    Mutant(
        guard="the clock is compared with the time before the stop",
        changes=((ClockTrust, "_start", _as_new),),
        disaster="clocks_step",
    ),
    Mutant(
        guard="only clocks that have watched the time vouch for others",
        changes=((ClockTrust, "standing", property(lambda self: Standing.BELIEVED)),),
        disaster="clocks_step",
    ),
    Mutant(
        guard="a wrong clock does not lead",
        changes=((Clocks, "off", property(lambda self: {}, _nothing)),),
        disaster="clock_behind",
    ),
    Mutant(
        guard="a lost vote makes another voter",
        changes=((MetadataLog, "load_state", _same_voter),),
        disaster="vote_forgotten",
        brokers=5,
    ),
    Mutant(
        guard="damage is found and mended",
        changes=((Scrubber, "scrub_all", _no_scrubbing),),
        disaster="newest_segment_flipped",
    ),
    Mutant(
        guard="a lack of descriptors is no disk failure",
        changes=((health, "_EXHAUSTED", frozenset()), (health, "_NO_DESCRIPTOR", frozenset())),
        disaster="no_descriptors",
    ),
)
