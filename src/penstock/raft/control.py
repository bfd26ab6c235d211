"""The control batches of the metadata log: who leads from here on, and who votes from here on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from struct import Struct as Packer
from typing import Final

from penstock.model.errors import CorruptMessage, ProtocolError
from penstock.ports import Buffer
from penstock.raft.messages import Endpoint, ReplicaKey, Voter
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header
from penstock.records.control import ControlType, control_type
from penstock.records.record import Record, build_batch, iter_records
from penstock.wire.compiler import Decoder, Encoder, decoder, encoder
from penstock.wire.schema import Struct, array, int16, int32, string, struct, uint16, uuid

__all__ = ["leader_change_batch", "observe_voters", "voters_batch", "whole_batches"]

_KEY: Final = Packer(">hh")
_KRAFT_VERSION: Final = 1


class ElectionVoter(Struct):
    voter_id: int = int32()


class LeaderChangeMessage(Struct):
    version: int = int16()
    leader_id: int = int32()
    voters: list[ElectionVoter] = array(ElectionVoter)
    granting_voters: list[ElectionVoter] = array(ElectionVoter)


class KRaftVersionRecord(Struct):
    version: int = int16()
    kraft_version: int = int16()


class VoterEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Struct):
    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


def leader_change_batch(
    leader_id: int, voters: VoterSet, granted: Iterable[int], timestamp_ms: int
) -> bytearray:
    """The first batch of every epoch: committing it commits what earlier epochs left."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[ElectionVoter(voter_id=voter.key.id) for voter in voters],
        granting_voters=[ElectionVoter(voter_id=node) for node in sorted(granted)],
    )
    return _control_batch([(ControlType.LEADER_CHANGE, _encode(message))], timestamp_ms)


def voters_batch(voters: VoterSet, timestamp_ms: int, *, first: bool) -> bytearray:
    """A new voter set; the `first` one of a log also says that voters are now read from the log."""
    record = VotersRecord(voters=[_record_voter(voter) for voter in voters])
    records = [(ControlType.KRAFT_VOTERS, _encode(record))]
    if first:
        version = KRaftVersionRecord(kraft_version=_KRAFT_VERSION)
        records.insert(0, (ControlType.KRAFT_VERSION, _encode(version)))
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
            if control_type(record.key) == ControlType.KRAFT_VOTERS:
                history.add(record.offset, _decode_voters(record.value or b""))


def _decode_voters(value: bytes) -> VoterSet:
    try:
        record = _voters_decoder()(memoryview(value), 0)
    except ProtocolError as e:
        raise CorruptMessage(f"a voters record that cannot be read: {e}") from e
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def _record_voter(voter: Voter) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[VoterEndpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
        ),
    )


def _encode(record: Struct) -> bytes:
    return b"".join(_encoder(type(record))(record))  # type: ignore[arg-type]  # bytes of ours


@cache
def _encoder(kind: type[Struct]) -> Encoder[Struct]:
    return encoder(kind, 0, flexible=True)


@cache
def _voters_decoder() -> Decoder[VotersRecord]:
    return decoder(VotersRecord, 0, flexible=True)


def _control_batch(records: list[tuple[ControlType, bytes]], timestamp_ms: int) -> bytearray:
    """Offsets and epoch are stamped by the log."""
    return bytearray(
        build_batch(
            [
                Record(offset, timestamp_ms, _KEY.pack(0, kind), value)
                for offset, (kind, value) in enumerate(records)
            ],
            control=True,
        )
    )
