"""InitProducerId, versions 0 to 5."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, int16, int32, int64, nullable_string


class InitProducerIdRequest(Struct):
    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


INIT_PRODUCER_ID = Api(
    22,
    "InitProducerId",
    (0, 5),
    flexible_from=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
