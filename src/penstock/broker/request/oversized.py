"""Requests that are refused because of their size, before they are decoded, or because of their elements.

Members of a classic group send metadata and assignments, which become one record of the group. A request that
is far larger than a record cannot succeed, and each copy of it holds the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from penstock.wire.apis.sync_group import SYNC_GROUP, SyncGroupResponse
from penstock.wire.layout import in_versions
from penstock.wire.slicing import MAX_ELEMENTS

__all__ = ["RECORDS", "oversized", "with_too_many_elements"]

#: as many times as large as the largest record may a request be: a member may support several protocols
RECORDS: Final = 4
#: The response that refuses a request. Kafka answers the SyncGroup requests of a group whose record is too
#: large with the same error.
_REFUSALS: Final[Mapping[int, Callable[..., Any]]] = {
    JOIN_GROUP.key: JoinGroupResponse,
    SYNC_GROUP.key: SyncGroupResponse,
}


def oversized(api: Api[Any, Any], size: int, record_bytes_max: int) -> Any:
    """The response to a request of `size` bytes that is too large; None if it is not."""
    if size <= RECORDS * record_bytes_max or api.key not in _REFUSALS:
        return None
    return _REFUSALS[api.key](error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def with_too_many_elements(api: Api[Any, Any], version: int) -> Any:
    """The response to a request with more elements than are decoded; None if it has no error code at its top.

    Why: nothing but the header of the request is known. Most responses have an error code for each element,
    and name it.
    """
    fields = {field.name: field for field in api.response.fields}
    code, message = fields.get("error_code"), fields.get("error_message")
    if code is None or not in_versions(code.versions, version):
        return None
    response = api.response(error_code=ErrorCode.INVALID_REQUEST)
    if message is not None and in_versions(message.versions, version):
        response.error_message = f"The request has more than {MAX_ELEMENTS} elements."
    return response
