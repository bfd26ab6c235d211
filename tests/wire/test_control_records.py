"""Control records of the metadata log, against codecs that are not ours and against bytes by hand."""

from __future__ import annotations

import importlib
from random import Random

import pytest

from penstock.model.errors import CorruptMessage
from penstock.records.control import ControlType
from penstock.wire.apis.endpoints import Endpoint, KRaftVersionFeature
from penstock.wire.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    decode_control_record,
    encode_control_record,
)
from penstock.wire.schema import Struct
from tests.wire.instances import instance
from tests.wire.oracles import Kio

DIRECTORY = bytes(range(16))
KINDS = {
    LeaderChangeMessage: "leader_change_message",
    SnapshotHeaderRecord: "snapshot_header_record",
    SnapshotFooterRecord: "snapshot_footer_record",
    KRaftVersionRecord: "k_raft_version_record",
    VotersRecord: "voters_record",
}


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_oracle_agrees(cls: type[Struct]) -> None:
    schema = getattr(importlib.import_module(f"kio.schema.{KINDS[cls]}.v0.data"), cls.__name__)
    random = Random(cls.__name__)
    for _ in range(20):
        record = instance(cls, 0, random, plausible=True)
        key, value = encode_control_record(record)
        assert value == Kio().encode(schema, 0, record)
        assert Kio().decode(schema, 0, cls, value) == record
        assert decode_control_record(key, value) == record


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            LeaderChangeMessage(
                leader_id=2,
                voters=[LeaderChangeVoter(voter_id=1), LeaderChangeVoter(voter_id=2)],
                granting_voters=[LeaderChangeVoter(voter_id=2)],
            ),
            b"\0\0\0\x02",
            b"\0\0\0\0\0\x02\x03\0\0\0\x01\0\0\0\0\x02\0\x02\0\0\0\x02\0\0",
        ),
        (
            SnapshotHeaderRecord(last_contained_log_timestamp=258),
            b"\0\0\0\x03",
            b"\0\0" + b"\0" * 6 + b"\x01\x02\0",
        ),
        (SnapshotFooterRecord(), b"\0\0\0\x04", b"\0\0\0"),
        (KRaftVersionRecord(kraft_version=1), b"\0\0\0\x05", b"\0\0\0\x01\0"),
        (
            VotersRecord(
                voters=[
                    Voter(
                        voter_id=3,
                        voter_directory_id=DIRECTORY,
                        endpoints=[Endpoint(name="I", host="h", port=0xC000)],
                        kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
                    )
                ]
            ),
            b"\0\0\0\x06",
            b"\0\0\x02\0\0\0\x03" + DIRECTORY + b"\x02\x02I\x02h\xc0\0\0" + b"\0\0\0\x01\0" + b"\0" + b"\0",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_golden_bytes(record: Struct, key: bytes, value: bytes) -> None:
    assert encode_control_record(record) == (key, value)
    assert decode_control_record(key, value) == record


def test_other_kinds_are_left_to_others() -> None:
    for kind in (ControlType.ABORT, ControlType.COMMIT, 99):
        assert decode_control_record(b"\0\0\0" + bytes((kind,)), b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0\0", b""), (b"\0\0\0\x06", None), (b"\0\0\0\x06", b"\0\0\x7f")]
)
def test_broken_records_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        decode_control_record(key, value)
