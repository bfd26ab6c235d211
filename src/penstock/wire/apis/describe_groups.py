"""DescribeGroups, versions 0 to 6."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, byte_string, int16, int32, nullable_string, string


class DescribeGroupsRequest(Struct):
    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string("4+")
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string("6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Struct):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


DESCRIBE_GROUPS = Api(
    15,
    "DescribeGroups",
    (0, 6),
    flexible_from=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)
