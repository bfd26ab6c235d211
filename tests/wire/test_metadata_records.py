"""Records of the metadata log in Kafka's framing (KIP-631)."""

from __future__ import annotations

from random import Random

import pytest

from penstock.model.errors import ProtocolError
from penstock.wire.compiler import encoder
from penstock.wire.metadata_records import (
    RECORD_TYPES,
    NoOpRecord,
    PartitionChangeRecord,
    RecordType,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from penstock.wire.schema import Struct
from tests.wire.golden_metadata import GOLDEN, OLDER, TOPIC_ID
from tests.wire.instances import instance


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (NoOpRecord(), b"\x01\x14\x00\x00"),
        (TopicRecord(name="foo", topic_id=TOPIC_ID), b"\x01\x02\x00\x04foo" + TOPIC_ID + b"\x00"),
        (
            PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[2], leader=3, last_known_elr=[]),
            b"\x01\x05\x02\0\0\0\x01"
            + TOPIC_ID
            + b"\x03\x00\x05\x02\0\0\0\x02\x01\x04\0\0\0\x03\x07\x01\x01",
        ),
        *GOLDEN,
    ],
    ids=lambda value: type(value).__name__,
)
def test_golden_bytes(record: Struct, value: bytes) -> None:
    assert encode_metadata_record(record) == value
    assert decode_metadata_record(value) == record


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.record.__name__)
def test_every_record_survives_in_every_version(kind: RecordType) -> None:
    random = Random(kind.record.__name__)
    for version in range(kind.max_version + 1):
        for _ in range(10):
            record = instance(kind.record, version, random)
            (body,) = encoder(kind.record, version, flexible=True)(record)
            assert isinstance(body, bytes)
            assert decode_metadata_record(bytes((1, kind.key, version)) + body) == record
    assert decode_metadata_record(encode_metadata_record(record)) == record


@pytest.mark.parametrize(("record", "version", "value"), OLDER, ids=lambda value: type(value).__name__)
def test_records_of_older_versions_are_read(record: Struct, version: int, value: bytes) -> None:
    assert value[2] == version
    assert decode_metadata_record(value) == record


def test_every_type_has_golden_bytes() -> None:
    """No oracle knows these tables, so there are bytes by hand for each."""
    by_hand = {type(record) for record, _ in GOLDEN} | {NoOpRecord, TopicRecord}
    assert by_hand == {kind.record for kind in RECORD_TYPES}


def test_keys_and_versions_are_kafkas() -> None:
    assert {kind.record.__name__: (kind.key, kind.max_version) for kind in RECORD_TYPES} == {
        "RegisterBrokerRecord": (0, 4),
        "UnregisterBrokerRecord": (1, 0),
        "TopicRecord": (2, 0),
        "PartitionRecord": (3, 2),
        "ConfigRecord": (4, 0),
        "PartitionChangeRecord": (5, 2),
        "RemoveTopicRecord": (9, 0),
        "DelegationTokenRecord": (10, 0),
        "UserScramCredentialRecord": (11, 0),
        "FeatureLevelRecord": (12, 0),
        "ClientQuotaRecord": (14, 0),
        "ProducerIdsRecord": (15, 0),
        "BrokerRegistrationChangeRecord": (17, 3),
        "AccessControlEntryRecord": (18, 0),
        "RemoveAccessControlEntryRecord": (19, 0),
        "NoOpRecord": (20, 0),
        "RemoveUserScramCredentialRecord": (22, 0),
        "BeginTransactionRecord": (23, 0),
        "EndTransactionRecord": (24, 0),
        "AbortTransactionRecord": (25, 0),
        "RemoveDelegationTokenRecord": (26, 0),
        "RegisterControllerRecord": (27, 0),
        "ClearElrRecord": (28, 0),
    }


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "of 0 bytes"),
        (b"\x01\x02", "of 2 bytes"),
        (b"\x00\x14\x00\x00", "frame version 0"),
        (b"\x01\x63\x00\x00", "type 99"),
        (b"\x01\x14\x01\x00", "NoOpRecord of unknown version 1"),
        (b"\x01\x14\x00\x00\x00", "bytes after NoOpRecord"),
        (b"\x01\x02\x00\x04fo", "truncated|malformed"),
    ],
)
def test_other_bytes_are_refused(value: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        decode_metadata_record(value)


def test_brokers_register_fenced() -> None:
    assert RegisterBrokerRecord().fenced
