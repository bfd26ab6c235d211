"""The control batches of the metadata log: leader changes and voter sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.raft.messages import Endpoint, LogPoint, ReplicaKey, Voter
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header
from penstock.records.record import Record, build_batch, iter_records
from penstock.wire.apis.endpoints import Endpoint as RecordedEndpoint
from penstock.wire.apis.endpoints import KRaftVersionFeature
from penstock.wire.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control_record,
    encode_control_record,
)
from penstock.wire.control_records import Voter as RecordedVoter
from penstock.wire.schema import Struct

__all__ = [
    "SnapshotMark",
    "leader_change_batch",
    "leader_change_in",
    "observe_voters",
    "snapshot_point",
    "starts_epoch",
    "voters_batch",
    "whole_batches",
]

_KRAFT_VERSION: Final = 1


def leader_change_batch(
    leader_id: int, epoch: int, voters: VoterSet, granted: Iterable[int], timestamp_ms: int
) -> bytearray:
    """The first batch of every epoch: committing it commits what earlier epochs left."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter.key.id) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=node) for node in sorted(granted)],
        leader_epoch=epoch,
    )
    return _control_batch([message], timestamp_ms)


def voters_batch(voters: VoterSet, timestamp_ms: int, *, first: bool) -> bytearray:
    """A new voter set; the `first` one of a log also says that voters are now read from the log."""
    records: list[Struct] = [VotersRecord(voters=[_record_voter(voter) for voter in voters])]
    if first:
        records.insert(0, KRaftVersionRecord(kraft_version=_KRAFT_VERSION))
    return _control_batch(records, timestamp_ms)


def whole_batches(batches: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each whole batch with its header; a last one that is cut is left out."""
    view = memoryview(batches)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        end = position + header.size
        if header.size < HEADER_SIZE:
            raise CorruptMessage(f"a batch of {header.size} bytes")
        if end > len(view):
            return
        yield header, view[position:end]
        position = end


def observe_voters(history: VoterHistory, batches: Buffer) -> None:
    """Add the voter sets in `batches` to `history`; a driver does it with the whole log at its start."""
    for header, batch in whole_batches(batches):
        if not header.is_control:
            continue
        for record in iter_records(batch):
            decoded = decode_control_record(record.key, record.value)
            if isinstance(decoded, VotersRecord):
                history.add(record.offset, _voter_set(decoded))


def starts_epoch(batch: Buffer, epoch: int) -> bool:
    """Returns true if a control batch is the first one of `epoch`. Version 0.1.0 did not name the epoch."""
    change = leader_change_in(batch)
    return change is not None and change.leader_epoch in (-1, epoch)


def leader_change_in(batch: Buffer) -> LeaderChangeMessage | None:
    """The leader change in a control batch; None if there is none."""
    for record in iter_records(batch):
        decoded = decode_control_record(record.key, record.value)
        if isinstance(decoded, LeaderChangeMessage):
            return decoded
    return None


class SnapshotMark(NamedTuple):
    """The control record in a control batch of a snapshot."""

    is_header: bool = False
    is_footer: bool = False
    #: where the snapshot ends, if its header says that
    point: LogPoint | None = None


def snapshot_point(batch: Buffer) -> SnapshotMark:
    """The header or footer of a snapshot in a control batch."""
    for record in iter_records(batch):
        decoded = decode_control_record(record.key, record.value)
        if isinstance(decoded, SnapshotHeaderRecord):
            point = LogPoint(decoded.end_epoch, decoded.end_offset) if decoded.end_offset >= 0 else None
            return SnapshotMark(is_header=True, point=point)
        if isinstance(decoded, SnapshotFooterRecord):
            return SnapshotMark(is_footer=True)
    return SnapshotMark()


def _voter_set(record: VotersRecord) -> VoterSet:
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def _record_voter(voter: Voter) -> RecordedVoter:
    return RecordedVoter(
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[RecordedEndpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
        ),
    )


def _control_batch(records: list[Struct], timestamp_ms: int) -> bytearray:
    """Offsets and epoch are stamped by the log."""
    return bytearray(
        build_batch(
            [
                Record(offset, timestamp_ms, *encode_control_record(record))
                for offset, record in enumerate(records)
            ],
            control=True,
        )
    )
