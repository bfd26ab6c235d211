"""A member of a streams group on the wire."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.streams_group_describe import (
    STREAMS_GROUP_DESCRIBE,
    DescribedGroup,
    StreamsGroupDescribeRequest,
)
from penstock.wire.apis.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.broker.raw import RawClient
from tests.broker.requests import new_name

__all__ = ["StreamsMember", "counting", "describe_streams"]


def counting(source: str, application: str, replicas: int = 0) -> Topology:
    """The topology of a word count: a source, a repartition topic, a store with a changelog."""
    repartition = f"{application}-counts-repartition"
    return Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[repartition]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[
                    TopicInfo(
                        name=repartition,
                        replication_factor=replicas,
                        topic_configs=[KeyValue(key="cleanup.policy", value="delete")],
                    )
                ],
                state_changelog_topics=[
                    TopicInfo(
                        name=f"{application}-counts-changelog",
                        replication_factor=replicas,
                        topic_configs=[KeyValue(key="cleanup.policy", value="compact")],
                    )
                ],
            ),
        ]
    )


class StreamsMember:
    """A member that follows the protocol."""

    def __init__(self, client: RawClient, group: str, topology: Topology) -> None:
        self.client, self.group, self.topology = client, group, topology
        self.id = new_name("m")
        self.epoch = 0
        self.active: dict[str, set[int]] = {}
        client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))

    def beat(self) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat, and take or give up tasks as the response says."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            active_tasks=[TaskIds(subtopology_id=s, partitions=sorted(p)) for s, p in self.active.items()],
            standby_tasks=[],
            warmup_tasks=[],
        )
        if not self.epoch:
            request.topology, request.rebalance_timeout_ms = self.topology, 10_000
            request.process_id, request.client_tags = self.id, []
        response = self.client.call(STREAMS_GROUP_HEARTBEAT, 0, request)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                self.active = {each.subtopology_id: set(each.partitions) for each in response.active_tasks}
        return response

    def leave(self) -> None:
        request = StreamsGroupHeartbeatRequest(group_id=self.group, member_id=self.id, member_epoch=-1)
        assert self.client.call(STREAMS_GROUP_HEARTBEAT, 0, request).error_code == ErrorCode.NONE
        self.epoch, self.active = 0, {}


def describe_streams(client: RawClient, group: str) -> DescribedGroup:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (described,) = client.call(STREAMS_GROUP_DESCRIBE, 0, request).groups
    return described
