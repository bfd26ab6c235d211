"""Checks of the APIs of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from penstock.broker.authorization.forms import Environment, Merge, refusal, refusing, splitting
from penstock.broker.authorization.groups import split_groups
from penstock.broker.base.context import Context
from penstock.groups.streams.checks import check_topic_names
from penstock.groups.streams.topology import topology_topics
from penstock.model.errors import ApiError, ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis import streams_group_describe as described

__all__ = ["check_describe", "check_heartbeat"]

_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


def _heartbeat(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    if not environment.access.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refusal(api, _NO_GROUP)
    if request.topology is None:
        return None
    try:
        check_topic_names(request.topology)
    except ApiError:
        return None  # the handler refuses it
    return _undescribed(environment, api, context, sorted(set(topology_topics(request.topology))))


def _undescribed(
    environment: Environment, api: Api[Any, Any], context: Context, names: list[str]
) -> Generator[None, None, Any]:
    """The refusal of a member that may not describe a topic; None if it may describe all of them."""
    for name in names:
        if not environment.access.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            return refusal(api, _NO_TOPIC)
        yield
    return None


def _describe(environment: Environment, context: Context, request: Any) -> Merge:
    message = "The described group uses topics that the client is not authorized to describe."
    return split_groups(environment, context, request, described.DescribedGroup, _topics, message)


def _topics(group: described.DescribedGroup) -> set[str]:
    subtopologies = None if group.topology is None else group.topology.subtopologies
    return {
        name
        for each in subtopologies or ()
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    }


check_heartbeat = refusing(_heartbeat)
check_describe = splitting(_describe)
