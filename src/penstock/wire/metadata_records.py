"""The records of `__cluster_metadata`: their tables, and the frame that says which one a value holds.

A value is three varints (frame version, type, version) and the body in a flexible version. Records are
written in their newest version and read in every one. Unlike a request, a record ends where its bytes end.
"""

from __future__ import annotations

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer
from penstock.wire.compiler import Decoder, Encoder, decoder, encoder
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uint16,
    uuid,
)
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.wire.varint import read_uvarint

__all__ = ["RECORD_TYPES", "RecordType", "decode_metadata_record", "encode_metadata_record"]

#: The only frame version there is.
_FRAME_VERSION = 1


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Struct):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = nullable_string()
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid(), "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = nullable_array(uuid(), "4+", tag=1)
    #: the machine of the broker, if the host of its first listener does not name it
    machine: str | None = nullable_string(tag=OWN_TAGS)


class UnregisterBrokerRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Struct):
    name: str = string()
    topic_id: bytes = uuid()
    #: milliseconds since 1970 by the clock of the controller that made or changed the topic; -1 if unknown
    created_ms: int = int64(default=-1, tag=OWN_TAGS)
    changed_ms: int = int64(default=-1, tag=OWN_TAGS + 1)


class PartitionRecord(Struct):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32())
    isr: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid(), "1+")
    eligible_leader_replicas: list[int] | None = nullable_array(int32(), "2+", tag=1)
    last_known_elr: list[int] | None = nullable_array(int32(), "2+", tag=2)
    #: for a partition that is added to a topic: the new `changed_ms` of the topic
    changed_ms: int = int64(default=-1, tag=OWN_TAGS)
    #: what started the reassignment that is under way (`metadata.image.Origin`)
    reassignment_origin: int = int8(tag=OWN_TAGS + 1)


class ConfigRecord(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = nullable_string()
    #: for a config of a topic that is altered: the new `changed_ms` of the topic
    changed_ms: int = int64(default=-1, tag=OWN_TAGS)


class PartitionChangeRecord(Struct):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = nullable_array(int32(), tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = nullable_array(int32(), tag=2)
    removing_replicas: list[int] | None = nullable_array(int32(), tag=3)
    adding_replicas: list[int] | None = nullable_array(int32(), tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = nullable_array(uuid(), "1+", tag=8)
    eligible_leader_replicas: list[int] | None = nullable_array(int32(), "2+", tag=6)
    last_known_elr: list[int] | None = nullable_array(int32(), "2+", tag=7)
    #: what started the reassignment that is under way; -1 for no change
    reassignment_origin: int = int8(default=-1, tag=OWN_TAGS)


class RemoveTopicRecord(Struct):
    topic_id: bytes = uuid()


class FeatureLevelRecord(Struct):
    name: str = string()
    feature_level: int = int16()


class ProducerIdsRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid(), "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = nullable_array(uuid(), "3+", tag=3)


class NoOpRecord(Struct):
    pass


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Struct):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Struct):
    #: empty for all topics
    topic_name: str = string()


class BeginTransactionRecord(Struct):
    name: str | None = nullable_string(tag=0)


class EndTransactionRecord(Struct):
    pass


class AbortTransactionRecord(Struct):
    reason: str | None = nullable_string(tag=0)


class RecordType:
    """A kind of record: the number and the versions it goes by in the frame."""

    __slots__ = ("_decoders", "_encoder", "_prefix", "key", "max_version", "record")

    def __init__(self, key: int, record: type[Struct], max_version: int) -> None:
        self.key = key
        self.record = record
        self.max_version = max_version
        self._prefix = bytes((_FRAME_VERSION, key, max_version))
        self._decoders: dict[int, Decoder[Struct]] = {}
        self._encoder: Encoder[Struct] | None = None

    def encode(self, record: Struct) -> bytes:
        if self._encoder is None:
            self._encoder = encoder(self.record, self.max_version, flexible=True)
        return b"".join((self._prefix, *self._encoder(record)))  # type: ignore[arg-type]  # bytes of ours

    def decode(self, version: int, data: memoryview, offset: int) -> Struct:
        decode = self._decoders.get(version)
        if decode is None:
            if version > self.max_version:
                raise ProtocolError(f"{self.record.__name__} of unknown version {version}")
            decode = self._decoders[version] = decoder(self.record, version, flexible=True, exact=True)
        return decode(data, offset)


RECORD_TYPES = (
    RecordType(0, RegisterBrokerRecord, 4),
    RecordType(1, UnregisterBrokerRecord, 0),
    RecordType(2, TopicRecord, 0),
    RecordType(3, PartitionRecord, 2),
    RecordType(4, ConfigRecord, 0),
    RecordType(5, PartitionChangeRecord, 2),
    RecordType(9, RemoveTopicRecord, 0),
    RecordType(10, DelegationTokenRecord, 0),
    RecordType(11, UserScramCredentialRecord, 0),
    RecordType(12, FeatureLevelRecord, 0),
    RecordType(14, ClientQuotaRecord, 0),
    RecordType(15, ProducerIdsRecord, 0),
    RecordType(17, BrokerRegistrationChangeRecord, 3),
    RecordType(18, AccessControlEntryRecord, 0),
    RecordType(19, RemoveAccessControlEntryRecord, 0),
    RecordType(20, NoOpRecord, 0),
    RecordType(22, RemoveUserScramCredentialRecord, 0),
    RecordType(23, BeginTransactionRecord, 0),
    RecordType(24, EndTransactionRecord, 0),
    RecordType(25, AbortTransactionRecord, 0),
    RecordType(26, RemoveDelegationTokenRecord, 0),
    RecordType(27, RegisterControllerRecord, 0),
    RecordType(28, ClearElrRecord, 0),
)
_BY_KEY = {kind.key: kind for kind in RECORD_TYPES}
_BY_CLASS = {kind.record: kind for kind in RECORD_TYPES}


def encode_metadata_record(record: Struct) -> bytes:
    """A record's value, for any record of this module."""
    return _BY_CLASS[type(record)].encode(record)


def decode_metadata_record(data: Buffer) -> Struct:
    """The inverse of `encode_metadata_record`; ProtocolError where the bytes are no record that we know."""
    view = memoryview(data)
    try:
        frame_version, offset = read_uvarint(view, 0)
        key, offset = read_uvarint(view, offset)
        version, offset = read_uvarint(view, offset)
    except IndexError as e:
        raise ProtocolError(f"metadata record of {len(view)} bytes") from e
    if frame_version != _FRAME_VERSION or key not in _BY_KEY:
        raise ProtocolError(f"unknown metadata record: frame version {frame_version}, type {key}")
    return _BY_KEY[key].decode(version, view, offset)
