"""AddOffsetsToTxn, versions 0 to 4."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, int16, int32, int64, string


class AddOffsetsToTxnRequest(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()


ADD_OFFSETS_TO_TXN = Api(
    25,
    "AddOffsetsToTxn",
    (0, 4),
    flexible_from=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)
