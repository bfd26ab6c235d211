"""AlterClientQuotas, versions 0 to 1."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.describe_client_quotas import EntityData
from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    float64,
    int16,
    int32,
    nullable_string,
    string,
)


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlteredEntry(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Struct):
    entries: list[AlteredEntry] = array(AlteredEntry)
    validate_only: bool = boolean()


class AlterationResult(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Struct):
    throttle_time_ms: int = int32()
    entries: list[AlterationResult] = array(AlterationResult)


ALTER_CLIENT_QUOTAS = Api(
    49,
    "AlterClientQuotas",
    (0, 1),
    flexible_from=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
)
