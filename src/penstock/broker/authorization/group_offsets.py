"""Checks of the APIs about committed offsets."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.authorization.forms import (
    Environment,
    Merge,
    on_group,
    refusing,
    splitting,
)
from penstock.broker.base.context import Context
from penstock.broker.base.refused_offsets import (
    BY_TOPIC_ID,
    GROUP_ERROR_FROM,
    GROUPS_FROM,
    commit_refused,
    fetch_refused,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.offset_commit import (
    OffsetCommitResponse,
)
from penstock.wire.apis.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from penstock.wire.apis.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

__all__ = ["check_offset_commit", "check_offset_delete", "check_offset_fetch"]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


def _topic_name(environment: Environment, name: str, topic_id: bytes, by_id: bool) -> str | None:
    """The name of a topic in a request; None for an id that is unknown, which the handler refuses."""
    if not by_id:
        return name
    known = environment.image.topics_by_id.get(TopicId(topic_id))
    return None if known is None else known.name


def _offset_commit(environment: Environment, context: Context, request: Any) -> Merge | None:
    by_id = context.version >= BY_TOPIC_ID
    allowed: list[Any] = []
    denied: list[Any] = []
    for topic in request.topics:
        name = _topic_name(environment, topic.name, topic.topic_id, by_id)
        may = name is None or environment.access.allows(context, Operation.READ, _TOPIC, name)
        (allowed if may else denied).append(topic)
    if not denied:
        return None
    request.topics = allowed

    def merge(response: Any) -> Any:
        response.topics += [commit_refused(topic, _NO_TOPIC) for topic in denied]
        return response

    return merge


def _refused_commit(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    if environment.access.allows(context, Operation.READ, _GROUP, request.group_id):
        return None
    return OffsetCommitResponse(topics=[commit_refused(topic, _NO_GROUP) for topic in request.topics])


def check_offset_commit(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    inner = splitting(_offset_commit)(environment, api, handler)
    return refusing(_refused_commit)(environment, api, inner)


def _offset_fetch(environment: Environment, context: Context, request: Any) -> Merge:
    """Denied groups get an error; denied topics get one each, or are left out if all topics are fetched."""
    access, version = environment.access, context.version
    allowed_groups: list[Any] = []
    denied_groups: list[Any] = []
    denied_topics: dict[str, list[Any]] = {}
    groups = request.groups if version >= GROUPS_FROM else [request]
    for group in groups:
        if not access.allows(context, Operation.DESCRIBE, _GROUP, group.group_id):
            denied_groups.append(group)
            continue
        allowed_groups.append(group)
        if group.topics is not None:
            allowed: list[Any] = []
            denied: list[Any] = []
            for topic in group.topics:
                by_id = version >= BY_TOPIC_ID
                name = _topic_name(environment, topic.name, getattr(topic, "topic_id", b""), by_id)
                may = name is None or access.allows(context, Operation.DESCRIBE, _TOPIC, name)
                (allowed if may else denied).append(topic)
            group.topics, denied_topics[group.group_id] = allowed, denied
    fetches_all = {group.group_id for group in groups if group.topics is None}
    if version >= GROUPS_FROM:
        request.groups = allowed_groups
    requested = [] if version >= GROUPS_FROM else list(request.topics or ())
    if denied_groups and version < GROUPS_FROM:
        request.topics = []

    def merge(response: Any) -> Any:
        if version >= GROUPS_FROM:
            for group in response.groups:
                _complete_group(context, group, group.group_id, denied_topics)
            response.groups += [
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=_NO_GROUP)
                for group in denied_groups
            ]
        elif denied_groups:
            # Versions 0 and 1 have no error for the whole response.
            denied = requested if version < GROUP_ERROR_FROM else []
            response.topics = [_denied_offsets(topic, version, _NO_GROUP) for topic in denied]
            response.error_code = _NO_GROUP
        else:
            _complete_group(context, response, request.group_id, denied_topics)
        return response

    if not fetches_all:
        return merge
    is_whole = version < GROUPS_FROM and request.group_id in fetches_all
    return partial(_merged_in_steps, environment, context, merge, None if is_whole else fetches_all)


def _merged_in_steps(
    environment: Environment, context: Context, merge: Merge, fetches_all: set[str] | None, response: Any
) -> Generator[None, None, Any]:
    """The response without the topics that the client may not describe: a group may have thousands.

    `fetches_all` has the groups whose topics were not named; None if the response is that of one group.
    """
    for group in [response] if fetches_all is None else response.groups:
        if not group.error_code and (fetches_all is None or group.group_id in fetches_all):
            group.topics = yield from _describable(environment, context, group.topics)
    return merge(response)


def _describable(
    environment: Environment, context: Context, topics: Sequence[Any]
) -> Generator[None, None, list[Any]]:
    """The topics that the client may describe; a step for each of them."""
    by_id = context.version >= BY_TOPIC_ID
    found = []
    for topic in topics:
        name = _topic_name(environment, topic.name, getattr(topic, "topic_id", b""), by_id)
        if name and environment.access.allows(context, Operation.DESCRIBE, _TOPIC, name, quiet=True):
            found.append(topic)
        yield
    return found


def _complete_group(
    context: Context, response: Any, group_id: str, denied_topics: dict[str, list[Any]]
) -> None:
    if response.error_code:
        return
    response.topics += [
        _denied_offsets(topic, context.version, _NO_TOPIC) for topic in denied_topics.get(group_id, ())
    ]


def _denied_offsets(topic: Any, version: int, code: ErrorCode) -> Any:
    if version >= GROUPS_FROM:
        return fetch_refused(topic, code)
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


check_offset_fetch = splitting(_offset_fetch)


def _offset_delete(environment: Environment, context: Context, request: Any) -> Merge | None:
    allowed, denied = environment.split(
        context, Operation.READ, _TOPIC, request.topics, lambda topic: str(topic.name)
    )
    request.topics = allowed

    def merge(response: Any) -> Any:
        if not response.error_code:
            response.topics += [
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=_NO_TOPIC)
                        for p in topic.partitions
                    ],
                )
                for topic in denied
            ]
        return response

    return merge if denied else None


def check_offset_delete(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    return on_group(Operation.DELETE)(environment, api, splitting(_offset_delete)(environment, api, handler))
