"""ListGroups, versions 0 to 5."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, string


class ListGroupsRequest(Struct):
    states_filter: list[str] = array(string(), "4+")
    types_filter: list[str] = array(string(), "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


LIST_GROUPS = Api(
    16, "ListGroups", (0, 5), flexible_from=3, request=ListGroupsRequest, response=ListGroupsResponse
)
