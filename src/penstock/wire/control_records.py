"""Control records of the metadata log: leader changes, voter sets, and the start and end of snapshots.

The key says the kind (`penstock.records.control`), the value is a message that starts with its own version.
Like Kafka 4.3, we read and write version 0 of each, and ignore the version in that field.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import Final

from penstock.model.errors import CorruptMessage, ProtocolError
from penstock.records.control import ControlType, control_type
from penstock.wire.apis.endpoints import Endpoint, KRaftVersionFeature
from penstock.wire.compiler import decoder, encoder
from penstock.wire.schema import OWN_TAGS, Struct, array, int16, int32, int64, struct, uuid

__all__ = [
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeVoter",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "Voter",
    "VotersRecord",
    "decode_control_record",
    "encode_control_record",
]

_KEY: Final = Packer(">hh")
_VERSION: Final = 0


class LeaderChangeVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Struct):
    """The first record of a leader's epoch."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    #: the leader's epoch, which stands in the batch's header without a checksum
    leader_epoch: int = int32(default=-1, tag=OWN_TAGS)


class SnapshotHeaderRecord(Struct):
    """The first record of a snapshot; our own fields repeat what the name of its file says."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()
    end_offset: int = int64(default=-1, tag=OWN_TAGS)
    end_epoch: int = int32(default=-1, tag=OWN_TAGS + 1)


class SnapshotFooterRecord(Struct):
    version: int = int16()


class KRaftVersionRecord(Struct):
    version: int = int16()
    kraft_version: int = int16()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Struct):
    """The whole set of voters, in force from its offset on, committed or not (KIP-853)."""

    version: int = int16()
    voters: list[Voter] = array(Voter)


_KINDS: Final[dict[ControlType, type[Struct]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_KEYS: Final = {record: _KEY.pack(_VERSION, kind) for kind, record in _KINDS.items()}


def encode_control_record(record: Struct) -> tuple[bytes, bytes]:
    """The key and the value of a control record, for any record of this module."""
    cls = type(record)
    return _KEYS[cls], b"".join(encoder(cls, _VERSION, True)(record))  # type: ignore[arg-type]  # bytes of ours


def decode_control_record(key: bytes | None, value: bytes | None) -> Struct | None:
    """The inverse of `encode_control_record`; None for a kind that is not of this module.

    CorruptMessage where the bytes are none of it: unlike a peer's, they are in our log.
    """
    kind = control_type(key)
    cls = next((cls for known, cls in _KINDS.items() if known == kind), None)
    if cls is None:
        return None
    try:
        return decoder(cls, _VERSION, True)(memoryview(value or b""), 0)
    except ProtocolError as e:
        raise CorruptMessage(f"a control record of kind {kind}: {e}") from e
