"""Share groups of any Kafka cluster, for `penstock share`: list, describe, move and delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from penstock.cli.coordinators import at_coordinator
from penstock.cli.direct import DirectLine, NoAnswer, refuse
from penstock.cli.failure import Failure
from penstock.cli.offset_reset import Move
from penstock.model.addresses import address_text
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import describe_share_group_offsets as offsets
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.share_group_describe import (
    SHARE_GROUP_DESCRIBE,
    DescribedGroup,
    ShareGroupDescribeRequest,
)

__all__ = ["ShareGroups", "SharePlace"]

T = TypeVar("T")
_TOPIC_RESOURCE: Final = 2
_GROUP_RESOURCE: Final = 32
#: the source of a config that the group itself has
_GROUP_SOURCE: Final = 8
#: the log start follows the slowest share group
_DELETE_CONSUMED: Final = "penstock.delete.after.consumption"


class SharePlace(NamedTuple):
    """A partition of a share group. `start` and `lag` are None if they are not known."""

    topic: str
    partition: int
    start: int | None
    lag: int | None


class ShareGroups:
    """The share groups of a cluster, through their coordinators."""

    def __init__(self, line: DirectLine) -> None:
        self._line = line

    def rows(self) -> list[dict[str, Any]]:
        """All share groups with their states. A broker that does not answer is a Failure."""
        cluster = self._line.send(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        addresses = [address_text(broker.host, broker.port) for broker in cluster.brokers]
        found = []
        request = ListGroupsRequest(types_filter=["share"])
        for address, response in self._line.send_each(addresses, LIST_GROUPS, request).items():
            if response is None:
                raise NoAnswer(f"{address} does not list its groups")
            refuse(response.error_code, None, f"{address} does not list its groups")
            # Brokers that do not know the filter list all groups.
            found += [
                {"group": group.group_id, "state": group.group_state.lower()}
                for group in response.groups
                if group.group_type.lower() == "share"
            ]
        return sorted(found, key=lambda row: str(row["group"]))

    def describe(self, group: str) -> tuple[int, DescribedGroup]:
        """The coordinator's broker, and the group. Failure if there is no such group."""
        node, response = self._at_coordinator(
            group,
            SHARE_GROUP_DESCRIBE,
            ShareGroupDescribeRequest(group_ids=[group]),
            lambda response: response.groups[0].error_code,
        )
        (described,) = response.groups
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise Failure(f"no share group {group}: `penstock share list` lists them")
        refuse(described.error_code, described.error_message, f"share group {group}")
        return node, described

    def places(self, group: str) -> list[SharePlace]:
        """The partitions that the group has state for."""
        wanted = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        _, response = self._at_coordinator(
            group,
            offsets.DESCRIBE_SHARE_GROUP_OFFSETS,
            offsets.DescribeShareGroupOffsetsRequest(groups=[wanted]),
            lambda response: response.groups[0].error_code,
        )
        (found,) = response.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise Failure(f"no share group {group}: `penstock share list` lists them")
        refuse(found.error_code, found.error_message, f"offsets of share group {group}")
        return sorted(
            SharePlace(topic.topic_name, each.partition_index, _known(each.start_offset), _known(each.lag))
            for topic in found.topics
            for each in topic.partitions
        )

    def configs(self, group: str) -> dict[str, str]:
        """The configs that the group itself has."""
        return {
            name: value
            for name, value, source in self._configs(_GROUP_RESOURCE, group)
            if source == _GROUP_SOURCE
        }

    def deletes_consumed(self, topic: str) -> bool:
        """Returns true if records of the topic are deleted once all share groups have consumed them."""
        return any(
            name == _DELETE_CONSUMED and value == "true"
            for name, value, _ in self._configs(_TOPIC_RESOURCE, topic)
        )

    def move(self, group: str, moves: Iterable[Move]) -> None:
        """Set the start offsets of a group without members."""
        topics: dict[str, list[alter.AlterShareGroupOffsetsRequestPartition]] = {}
        for move in moves:
            topics.setdefault(move.topic, []).append(
                alter.AlterShareGroupOffsetsRequestPartition(
                    partition_index=move.partition, start_offset=move.new
                )
            )
        request = alter.AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                alter.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        _, response = self._at_coordinator(
            group, alter.ALTER_SHARE_GROUP_OFFSETS, request, lambda response: response.error_code
        )
        _refuse(response.error_code, response.error_message, f"share group {group}")
        for topic in response.responses:
            for each in topic.partitions:
                place = f"share group {group}, {topic.topic_name} partition {each.partition_index}"
                _refuse(each.error_code, each.error_message, place)

    def delete(self, group: str) -> bool:
        """Delete a group without members. Returns false if there is no such group."""
        _, response = self._at_coordinator(
            group,
            DELETE_GROUPS,
            DeleteGroupsRequest(groups_names=[group]),
            lambda response: response.results[0].error_code,
        )
        code = response.results[0].error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        _refuse(code, None, f"share group {group}")
        return True

    def delete_topic(self, group: str, topic: str) -> None:
        """Delete the state of a group without members for one topic."""
        request = delete.DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        )
        _, response = self._at_coordinator(
            group, delete.DELETE_SHARE_GROUP_OFFSETS, request, lambda response: response.error_code
        )
        _refuse(response.error_code, response.error_message, f"share group {group}")
        for each in response.responses:
            _refuse(each.error_code, each.error_message, f"share group {group}, topic {each.topic_name}")

    # -- requests

    def _configs(self, kind: int, name: str) -> list[tuple[str, str, int]]:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        (found,) = self._line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
        refuse(found.error_code, found.error_message, f"configs of {name}")
        return [(each.name, each.value or "", each.config_source) for each in found.configs]

    def _at_coordinator(
        self, group: str, api: Api[Any, Any], request: Any, code_of: Callable[[Any], int]
    ) -> tuple[int, Any]:
        return at_coordinator(self._line, group, api, request, code_of, f"share group {group}")


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


def _refuse(code: int, message: str | None, about: str) -> None:
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise Failure(f"{about}: it has members; stop them first")
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise Failure(f"{about}: no such share group; `penstock share list` lists them")
    refuse(code, message, about)
