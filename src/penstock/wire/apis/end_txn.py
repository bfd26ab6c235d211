"""EndTxn, versions 0 to 5. Version 5 returns the producer id and epoch of the next transaction."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, boolean, int16, int32, int64, string


class EndTxnRequest(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


END_TXN = Api(26, "EndTxn", (0, 5), flexible_from=3, request=EndTxnRequest, response=EndTxnResponse)
