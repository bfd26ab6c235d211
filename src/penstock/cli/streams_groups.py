"""Streams groups of any Kafka cluster, for `penstock group`: librdkafka does not know them."""

from __future__ import annotations

from typing import Any

from penstock.cli.coordinators import at_coordinator
from penstock.cli.direct import DirectLine, NoAnswer, refuse
from penstock.model.addresses import address_text
from penstock.model.errors import ErrorCode
from penstock.observability.streams_tasks import read_partitions, task_names
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.streams_group_describe import (
    STREAMS_GROUP_DESCRIBE,
    DescribedGroup,
    StreamsGroupDescribeRequest,
)

__all__ = ["describe_streams", "streams_states"]


def streams_states(line: DirectLine) -> dict[str, str]:
    """The streams groups of a cluster, with their states."""
    cluster = line.send(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
    addresses = [address_text(broker.host, broker.port) for broker in cluster.brokers]
    found = {}
    for address, response in line.send_each(addresses, LIST_GROUPS, ListGroupsRequest()).items():
        if response is None:
            raise NoAnswer(f"{address} does not list its groups")
        refuse(response.error_code, None, f"{address} does not list its groups")
        found.update(
            {
                group.group_id: _words(group.group_state)
                for group in response.groups
                if group.group_type.lower() == "streams"
            }
        )
    return found


def describe_streams(line: DirectLine, name: str) -> dict[str, Any] | None:
    """A streams group without the progress of its partitions; None if there is no such streams group."""
    about = f"streams group {name}"
    node, response = at_coordinator(
        line,
        name,
        STREAMS_GROUP_DESCRIBE,
        StreamsGroupDescribeRequest(group_ids=[name]),
        lambda response: response.groups[0].error_code,
        about,
    )
    group: DescribedGroup = response.groups[0]
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    refuse(group.error_code, group.error_message, about)
    return {
        "group": name,
        "type": "streams",
        "state": _words(group.group_state),
        "assignor": None,
        "coordinator": node,
        "epoch": group.group_epoch,
        "topology_epoch": None if group.topology is None else group.topology.epoch,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host.lstrip("/"),
                "instance": member.instance_id,
                "process": member.process_id,
                "active": task_names(member.assignment.active_tasks),
                "standby": task_names(member.assignment.standby_tasks),
                "warmup": task_names(member.assignment.warmup_tasks),
                "partitions": [
                    f"{topic}:{partition}"
                    for topic, partitions in read_partitions(group, member).items()
                    for partition in partitions
                ],
            }
            for member in sorted(group.members, key=lambda member: member.member_id)
        ],
    }


def _words(state: str) -> str:
    """A state as the other groups have it: `NotReady` is `not ready`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in state).strip()
