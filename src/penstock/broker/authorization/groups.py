"""Checks of the APIs about groups; those about committed offsets are in `group_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from typing import Any, Final

from penstock.broker.authorization.forms import (
    REASONS,
    Environment,
    Merge,
    refusal,
    refusing,
    splitting,
)
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup

__all__ = [
    "check_consumer_group_describe",
    "check_consumer_heartbeat",
    "check_delete_groups",
    "check_describe_groups",
    "check_list_groups",
    "split_description",
    "split_groups",
]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NOT_REQUESTED: Final = -(2**31)

# -- membership


def _consumer_heartbeat(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    if not environment.access.allows(context, Operation.READ, _GROUP, request.group_id):
        return refusal(api, _NO_GROUP)
    # Most heartbeats have no names.
    names = request.subscribed_topic_names
    return _undescribed(environment, api, context, names) if names else None


def _undescribed(
    environment: Environment, api: Api[Any, Any], context: Context, names: list[str]
) -> Generator[None, None, Any]:
    """The refusal of a member that may not describe a topic; None if it may describe all of them."""
    for name in names:
        if not environment.access.allows(context, Operation.DESCRIBE, _TOPIC, name):
            return refusal(api, _NO_TOPIC)
        yield
    return None


check_consumer_heartbeat = refusing(_consumer_heartbeat)


# -- administration of groups


def _list_groups(environment: Environment, context: Context, request: Any) -> Merge | None:
    access = environment.access
    if access.allows_on_cluster(context, Operation.DESCRIBE, quiet=True):
        return None

    def merge(response: Any) -> Any:
        response.groups = [
            group
            for group in response.groups
            if access.allows(context, Operation.DESCRIBE, _GROUP, group.group_id, quiet=True)
        ]
        return response

    return merge


def _set_group_operations(environment: Environment, context: Context, groups: Any) -> None:
    for group in groups:
        if group.authorized_operations != _NOT_REQUESTED and not group.error_code:
            group.authorized_operations = environment.access.operations(context, _GROUP, group.group_id)


def _describe_groups(environment: Environment, context: Context, request: Any) -> Merge:
    allowed, denied = environment.split(context, Operation.DESCRIBE, _GROUP, request.groups, str)
    request.groups = allowed

    def merge(response: Any) -> Any:
        _set_group_operations(environment, context, response.groups)
        response.groups += [DescribedGroup(group_id=name, error_code=_NO_GROUP) for name in denied]
        return response

    return merge


def _consumer_group_describe(environment: Environment, context: Context, request: Any) -> Merge:
    return split_description(environment, context, request, DescribedConsumerGroup, _assignments)


def _assignments(member: Any) -> Iterable[Any]:
    return member.assignment, member.target_assignment


def split_description(
    environment: Environment,
    context: Context,
    request: Any,
    described: type[Any],
    assignments: Callable[[Any], Iterable[Any]],
) -> Merge:
    """Split a request that describes groups with their members; `assignments` returns those of a member."""

    def topics(group: Any) -> set[str]:
        return {
            name
            for member in group.members
            for name in (
                *member.subscribed_topic_names,
                *(p.topic_name for each in assignments(member) for p in each.topic_partitions),
            )
        }

    message = "The group has described topic(s) that the client is not authorized to describe."
    return split_groups(environment, context, request, described, topics, message)


def split_groups(
    environment: Environment,
    context: Context,
    request: Any,
    described: type[Any],
    topics: Callable[[Any], Collection[str]],
    message: str,
) -> Merge:
    """Split a request that describes groups; `topics` returns those of a described group.

    A group with a topic that may not be described is denied as a whole with `message`, as in Kafka.
    """
    access = environment.access
    allowed, denied = environment.split(context, Operation.DESCRIBE, _GROUP, request.group_ids, str)
    request.group_ids = allowed

    def hides(group: Any) -> bool:
        return not all(access.allows(context, Operation.DESCRIBE, _TOPIC, name) for name in topics(group))

    def merge(response: Any) -> Any:
        _set_group_operations(environment, context, response.groups)
        response.groups = [
            described(group_id=group.group_id, error_code=_NO_TOPIC, error_message=message)
            if hides(group)
            else group
            for group in response.groups
        ]
        response.groups += [
            described(group_id=name, error_code=_NO_GROUP, error_message=REASONS[_NO_GROUP])
            for name in denied
        ]
        return response

    return merge


def _delete_groups(environment: Environment, context: Context, request: Any) -> Merge | None:
    allowed, denied = environment.split(context, Operation.DELETE, _GROUP, request.groups_names, str)
    request.groups_names = allowed

    def merge(response: Any) -> Any:
        response.results += [
            DeletableGroupResult(group_id=name, error_code=_NO_GROUP) for name in dict.fromkeys(denied)
        ]
        return response

    return merge if denied else None


check_list_groups = splitting(_list_groups)
check_describe_groups = splitting(_describe_groups)
check_consumer_group_describe = splitting(_consumer_group_describe)
check_delete_groups = splitting(_delete_groups)
