"""CreateAcls, versions 1 to 3."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int8, int16, int32, nullable_string, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Struct):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()


class CreateAclsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


CREATE_ACLS = Api(
    30,
    "CreateAcls",
    (1, 3),
    flexible_from=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
)
