"""Configs of a share group, as a queue sets them when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client.queues.connections import Connections
from penstock.client.queues.refusals import refusal
from penstock.wire.apis import describe_configs as describe
from penstock.wire.apis import incremental_alter_configs as alter

__all__ = ["changes", "set_group_configs"]

_GROUP_RESOURCE: Final = 32
#: the source of a config that the group itself has
_GROUP_SOURCE: Final = 8
_SET: Final = 0


def changes(
    present: Mapping[str, tuple[str | None, int]], wanted: Mapping[str, str], initial: Mapping[str, str]
) -> dict[str, str]:
    """The configs to set: `wanted` where they differ, `initial` where the group has no value of its own.

    `present` has values and their sources.
    """
    due = {name: value for name, value in wanted.items() if present.get(name, (None, 0))[0] != value}
    return due | {
        name: value for name, value in initial.items() if present.get(name, (None, 0))[1] != _GROUP_SOURCE
    }


async def set_group_configs(
    connections: Connections,
    group: str,
    wanted: Mapping[str, str],
    initial: Mapping[str, str],
    timeout_s: float | None,
) -> None:
    """Set configs of a group, unless it has them. Raises `Refused`."""
    if not wanted and not initial:
        return
    resource = describe.DescribeConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group, configuration_keys=[*wanted, *initial]
    )
    request = describe.DescribeConfigsRequest(resources=[resource])
    (result,) = (await connections.send(describe.DESCRIBE_CONFIGS, request, timeout_s)).results
    about = (
        f"configs of group {group}: let an administrator set them, and leave reset, visibility_timeout and "
        "the other settings of the group at None"
    )
    if result.error_code:
        raise refusal(result.error_code, result.error_message, about)
    present = {each.name: (each.value, each.config_source) for each in result.configs}
    due = changes(present, wanted, initial)
    if not due:
        return
    altered = alter.AlterConfigsResource(
        resource_type=_GROUP_RESOURCE,
        resource_name=group,
        configs=[
            alter.AlterableConfig(name=name, config_operation=_SET, value=value)
            for name, value in due.items()
        ],
    )
    change = alter.IncrementalAlterConfigsRequest(resources=[altered])
    (answer,) = (await connections.send(alter.INCREMENTAL_ALTER_CONFIGS, change, timeout_s)).responses
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, about)
