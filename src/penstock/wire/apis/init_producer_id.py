"""InitProducerId, versions 0 to 6. Version 6 has two-phase commit (KIP-939)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, boolean, int16, int32, int64, nullable_string


class InitProducerIdRequest(Struct):
    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    #: an external coordinator decides the transactions of this producer: they have no timeout
    enable_2pc: bool = boolean("6+")
    #: keep an open transaction, and return its producer id and epoch
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    #: of the open transaction that was kept; -1 if there is none
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


INIT_PRODUCER_ID = Api(
    22,
    "InitProducerId",
    (0, 6),
    flexible_from=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
