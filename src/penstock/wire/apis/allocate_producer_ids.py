"""AllocateProducerIds, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import OWN_TAGS, Struct, int16, int32, int64


class AllocateProducerIdsRequest(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    #: all ids below it are to be reserved, and none is allocated; -1 to allocate a block
    reserve_below: int = int64(default=-1, tag=OWN_TAGS)


class AllocateProducerIdsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


ALLOCATE_PRODUCER_IDS = Api(
    67,
    "AllocateProducerIds",
    (0, 0),
    flexible_from=0,
    request=AllocateProducerIdsRequest,
    response=AllocateProducerIdsResponse,
)
