"""BrokerHeartbeat, versions 0 to 2."""

from __future__ import annotations

from penstock.wire.api import Api
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
    tagged_struct,
    uuid,
)


class TopicWithoutRoom(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class FailedTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class UncleanTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ReportedChecksum(Struct):
    """A checksum of the metadata below `end_offset`; those with another layout are not comparable."""

    end_offset: int = int64()
    checksum: int = int64()
    layout: int = int32()


class BrokerHeartbeatRequest(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid(), "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = nullable_array(uuid(), "2+", tag=1)
    #: replicas in data directories that are full: others should lead, and not wait for these
    without_room: list[TopicWithoutRoom] = array(TopicWithoutRoom, tag=OWN_TAGS)
    #: replicas that may lack records they once had: they leave the ISR and the eligible leader replicas
    unclean_replicas: list[UncleanTopic] = array(UncleanTopic, tag=OWN_TAGS + 1)
    #: of the broker's image, where one was computed
    image_checksum: ReportedChecksum | None = tagged_struct(ReportedChecksum, tag=OWN_TAGS + 2)
    #: the broker's wall clock when it sent this; -1 if unknown
    clock_ms: int = int64(default=-1, tag=OWN_TAGS + 3)
    #: replicas in data directories that have failed; these are in `without_room`, too
    failed_replicas: list[FailedTopic] = array(FailedTopic, tag=OWN_TAGS + 4)
    #: what the broker knows about its clock (`penstock.timekeeping.trust.Standing`)
    clock_standing: int = int8(default=0, tag=OWN_TAGS + 5)


class BrokerHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
    #: the wall clock that most brokers agree on, or why there is none (see `penstock.metadata.clocks`)
    clock_ms: int = int64(default=-1, tag=OWN_TAGS)
    #: what the broker's checksum should be, where it was compared
    image_checksum: ReportedChecksum | None = tagged_struct(ReportedChecksum, tag=OWN_TAGS + 1)
    #: 1 if brokers that have watched the time have that clock, otherwise 0; -1 if that is unknown
    clock_vouched: int = int8(default=-1, tag=OWN_TAGS + 2)


BROKER_HEARTBEAT = Api(
    63,
    "BrokerHeartbeat",
    (0, 2),
    flexible_from=0,
    request=BrokerHeartbeatRequest,
    response=BrokerHeartbeatResponse,
)
