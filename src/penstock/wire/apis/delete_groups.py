"""DeleteGroups, versions 0 to 2."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, string


class DeleteGroupsRequest(Struct):
    groups_names: list[str] = array(string())


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


DELETE_GROUPS = Api(
    42, "DeleteGroups", (0, 2), flexible_from=2, request=DeleteGroupsRequest, response=DeleteGroupsResponse
)
