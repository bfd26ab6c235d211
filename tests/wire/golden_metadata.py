"""Metadata records in bytes written by hand from Kafka 4.3's schemas: no codec at hand knows their tables."""

from __future__ import annotations

from typing import Final

from penstock.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

TOPIC_ID: Final = bytes(range(16))
A, B = b"a" * 16, b"b" * 16


def b16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def b32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def b64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


NO_TAGS: Final = b"\x00"
#: name "L", host "h", port 9092, protocol 0; then feature "f" 1 to 7
ENDPOINT: Final = b"\x02L" + b"\x02h" + b"\x23\x84" + b16(0) + NO_TAGS
FEATURE: Final = b"\x02f" + b16(1) + b16(7) + NO_TAGS
ENDPOINTS = [BrokerEndpoint(name="L", host="h", port=9092)]
FEATURES = [BrokerFeature(name="f", min_supported_version=1, max_supported_version=7)]
#: partition 3 of the topic: replicas 1 and 2, ISR 2, removing 1, adding none, led by 2
PLACED: Final = (
    b32(3)
    + TOPIC_ID
    + (b"\x03" + b32(1) + b32(2))
    + (b"\x02" + b32(2))
    + (b"\x02" + b32(1))
    + b"\x01"
    + b32(2)
)


def placed(**more: object) -> PartitionRecord:
    return PartitionRecord(
        partition_id=3,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[2],
        removing_replicas=[1],
        leader=2,
        leader_epoch=8,
        partition_epoch=9,
        **more,  # type: ignore[arg-type]
    )


#: Records and their values in the newest version.
GOLDEN: Final[list[tuple[Struct, bytes]]] = [
    (
        UserScramCredentialRecord(
            name="u", mechanism=2, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        b"\x01\x0b\x00" + b"\x02u" + b"\x02" + b"\x02s\x02k\x02v" + b32(4096) + NO_TAGS,
    ),
    (
        DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            renewers=["User:c"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="t",
        ),
        b"\x01\x0a\x00"
        + b"\x07User:a\x07User:b"
        + b"\x02\x07User:c"
        + b"".join(time.to_bytes(8, "big") for time in (1, 3, 2))
        + b"\x02t"
        + NO_TAGS,
    ),
    (RemoveDelegationTokenRecord(token_id="t"), b"\x01\x1a\x00" + b"\x02t" + NO_TAGS),
    (
        ClientQuotaRecord(
            entity=[QuotaEntity(entity_type="user", entity_name=None)], key="k", value=1.0, remove=True
        ),
        b"\x01\x0e\x00"
        + (b"\x02" + b"\x05user" + b"\x00" + NO_TAGS)
        + b"\x02k"
        + (b"\x3f\xf0" + bytes(6))
        + b"\x01"
        + NO_TAGS,
    ),
    (
        AccessControlEntryRecord(
            id=A,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:u",
            host="*",
            operation=4,
            permission_type=3,
        ),
        b"\x01\x12\x00" + A + b"\x02" + b"\x02t" + b"\x03" + b"\x07User:u" + b"\x02*" + b"\x04\x03" + NO_TAGS,
    ),
    (RemoveAccessControlEntryRecord(id=B), b"\x01\x13\x00" + B + NO_TAGS),
    (
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
        b"\x01\x16\x00" + b"\x02u" + b"\x01" + NO_TAGS,
    ),
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=A,
            broker_epoch=77,
            end_points=ENDPOINTS,
            features=FEATURES,
            rack="r",
            fenced=True,
            in_controlled_shutdown=True,
            log_dirs=[B],
            cordoned_log_dirs=[],
        ),
        b"\x01\x00\x04"
        + (b32(1) + b"\0" + A + b64(77) + b"\x02" + ENDPOINT + b"\x02" + FEATURE + b"\x02r" + b"\x01\x01")
        + (b"\x02" + (b"\x00\x11\x02" + B) + b"\x01\x01\x01"),
    ),
    (UnregisterBrokerRecord(broker_id=1, broker_epoch=2), b"\x01\x01\x00" + b32(1) + b64(2) + NO_TAGS),
    (
        placed(
            leader_recovery_state=1,
            directories=[A, B],
            eligible_leader_replicas=[1],
            last_known_elr=[2],
        ),
        b"\x01\x03\x02"
        + (PLACED + b32(8) + b32(9) + b"\x03" + A + B)
        + (b"\x03" + b"\x00\x01\x01" + (b"\x01\x05\x02" + b32(1)) + (b"\x02\x05\x02" + b32(2))),
    ),
    (
        ConfigRecord(resource_type=2, resource_name="t", name="k", value=None),
        b"\x01\x04\x00" + b"\x02" + b"\x02t" + b"\x02k" + b"\x00" + NO_TAGS,
    ),
    (
        PartitionChangeRecord(
            partition_id=3,
            topic_id=TOPIC_ID,
            isr=[],
            leader=-1,
            replicas=[4],
            removing_replicas=[5],
            adding_replicas=[6],
            leader_recovery_state=1,
            directories=[A],
            eligible_leader_replicas=[7],
            last_known_elr=[8],
        ),
        b"\x01\x05\x02"
        + (b32(3) + TOPIC_ID + b"\x09")
        + (b"\x00\x01\x01" + b"\x01\x04" + b32(-1) + b"\x02\x05\x02" + b32(4) + b"\x03\x05\x02" + b32(5))
        + (b"\x04\x05\x02" + b32(6) + b"\x05\x01\x01" + b"\x06\x05\x02" + b32(7))
        + (b"\x07\x05\x02" + b32(8) + b"\x08\x11\x02" + A),
    ),
    (RemoveTopicRecord(topic_id=TOPIC_ID), b"\x01\x09\x00" + TOPIC_ID + NO_TAGS),
    (
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        b"\x01\x0c\x00" + b"\x11metadata.version" + b16(29) + NO_TAGS,
    ),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
        b"\x01\x0f\x00" + b32(1) + b64(2) + b64(1000) + NO_TAGS,
    ),
    (
        BrokerRegistrationChangeRecord(
            broker_id=1,
            broker_epoch=2,
            fenced=-1,
            in_controlled_shutdown=1,
            log_dirs=[A],
            cordoned_log_dirs=[B],
        ),
        b"\x01\x11\x03"
        + (b32(1) + b64(2) + b"\x04" + b"\x00\x01\xff" + b"\x01\x01\x01")
        + (b"\x02\x11\x02" + A + b"\x03\x11\x02" + B),
    ),
    (BeginTransactionRecord(name="n"), b"\x01\x17\x00" + b"\x01\x00\x02\x02n"),
    (EndTransactionRecord(), b"\x01\x18\x00" + NO_TAGS),
    (AbortTransactionRecord(reason="no"), b"\x01\x19\x00" + b"\x01\x00\x03\x03no"),
    (
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=A,
            zk_migration_ready=False,
            end_points=[ControllerEndpoint(name="L", host="h", port=9092)],
            features=[ControllerFeature(name="f", min_supported_version=1, max_supported_version=7)],
        ),
        b"\x01\x1b\x00" + b32(1) + A + b"\0" + b"\x02" + ENDPOINT + b"\x02" + FEATURE + NO_TAGS,
    ),
    (ClearElrRecord(topic_name="t"), b"\x01\x1c\x00" + b"\x02t" + NO_TAGS),
]
REGISTERED: Final = A + b64(77) + b"\x02" + ENDPOINT + b"\x02" + FEATURE + b"\x00" + b"\x00"


def registered(**more: object) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=A,
        broker_epoch=77,
        end_points=ENDPOINTS,
        features=FEATURES,
        fenced=False,
        **more,  # type: ignore[arg-type]
    )


#: Records as older versions wrote them.
OLDER: Final[list[tuple[Struct, int, bytes]]] = [
    (registered(), 0, b"\x01\x00\x00" + b32(1) + REGISTERED + NO_TAGS),
    (
        registered(in_controlled_shutdown=True),
        1,
        b"\x01\x00\x01" + b32(1) + REGISTERED + b"\x01" + NO_TAGS,
    ),
    (
        registered(is_migrating_zk_broker=True),
        2,
        b"\x01\x00\x02" + b32(1) + b"\x01" + REGISTERED + b"\x00" + NO_TAGS,
    ),
    (
        registered(log_dirs=[B]),
        3,
        b"\x01\x00\x03" + b32(1) + b"\x00" + REGISTERED + b"\x00" + b"\x01\x00\x11\x02" + B,
    ),
    (placed(), 0, b"\x01\x03\x00" + PLACED + b32(8) + b32(9) + NO_TAGS),
    (placed(directories=[A]), 1, b"\x01\x03\x01" + PLACED + b32(8) + b32(9) + b"\x02" + A + NO_TAGS),
    (
        PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, leader=4),
        0,
        b"\x01\x05\x00" + b32(3) + TOPIC_ID + b"\x01\x01\x04" + b32(4),
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=1),
        0,
        b"\x01\x11\x00" + b32(1) + b64(2) + b"\x01\x00\x01\x01",
    ),
]
