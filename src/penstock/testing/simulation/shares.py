"""Runs with a share group: its members, and the verdict at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.cluster import TOPIC, SimCluster, Worker
from penstock.testing.simulation.history import Event
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.share_checker import ShareChecker
from penstock.testing.simulation.share_members import ShareMember
from penstock.testing.simulation.share_observation import ShareObservation
from penstock.wire.apis import incremental_alter_configs as configs
from penstock.wire.apis.describe_share_group_offsets import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

__all__ = ["SHARE_GROUP", "Shares", "share_settings"]

SHARE_GROUP: Final = "workers"
_DELIVERY_LIMIT: Final = 4
_LOCK_MS: Final = 1000
#: members that vanish without leaving are removed soon
_SESSION_MS: Final = 3000
#: virtual seconds for a member to finish all records
_DRAIN_S: Final = 30.0
_GROUP_RESOURCE: Final = 32


def share_settings(nodes: int) -> dict[str, str]:
    """Broker configs: few state partitions, short locks, frequent snapshots and pruning."""
    return {
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": str(min(3, nodes)),
        "share.coordinator.state.topic.min.isr": str(min(2, nodes)),
        "share.coordinator.snapshot.update.records.per.snapshot": "7",
        "share.coordinator.cold.partition.snapshot.interval.ms": "600",
        "share.coordinator.state.topic.prune.interval.ms": "400",
        "group.share.delivery.count.limit": str(_DELIVERY_LIMIT),
        "group.share.min.record.lock.duration.ms": str(_LOCK_MS),
        "group.share.record.lock.duration.ms": str(_LOCK_MS),
        "group.share.assignment.interval.ms": "0",
        "group.share.min.session.timeout.ms": str(_SESSION_MS),
        "group.share.session.timeout.ms": str(_SESSION_MS),
        "group.share.min.heartbeat.interval.ms": str(_SESSION_MS // 10),
        "group.share.heartbeat.interval.ms": str(_SESSION_MS // 10),
    }


class Shares:
    """The share group of one run. `violated` gets the first violation that it finds."""

    def __init__(self, cluster: SimCluster, violated: Callable[[Violation], None]) -> None:
        self._cluster = cluster
        self._violated = violated
        self.checker = ShareChecker(_DELIVERY_LIMIT)
        self._members = Random(f"{cluster.seed}/shares").randint(2, 4)
        cluster.history.observers.append(self._observe)
        observation = ShareObservation(cluster.nodes, self.checker)
        before = cluster.loop.after_step

        def after_step(process: Process) -> None:
            if before is not None:
                before(process)
            observation.after_step(process)

        cluster.loop.after_step = after_step
        self._ended = False

    def workers(self) -> list[tuple[Client, Worker]]:
        made: list[tuple[Client, Worker]] = []
        for i in range(self._members):
            client = self._cluster.client(f"share-member-{i}")
            made.append((client, ShareMember(client, SHARE_GROUP, TOPIC, pause_s=0.1)))
        return made

    async def prepare(self) -> None:
        """Have the group start at the first record."""
        admin = self._cluster.admin
        await admin.process.spawn(self._cluster.loop, _start_early(admin))

    # -- the end

    async def drain(self) -> None:
        """Have one more member finish all records."""
        cluster = self._cluster
        loop, client = cluster.loop, cluster.client("share-drain")
        drain = ShareMember(client, SHARE_GROUP, TOPIC, pause_s=0.05, accepts_all=True)
        task = client.process.spawn(loop, drain.run())
        deadline = loop.time() + _DRAIN_S
        admin = cluster.admin
        while left := await admin.process.spawn(loop, _unfinished(admin, cluster.partitions)):
            if loop.time() > deadline:
                raise Violation("share group does not finish", "; ".join(left))
            await asyncio.sleep(0.1)
        drain.stopping = True
        await task

    def verify(self, logs: Mapping[TopicPartition, Sequence[tuple[int, bytes]]]) -> None:
        """Compare all deliveries with the final logs."""
        self.checker.finish(logs)

    def _observe(self, client: str, event: Event) -> None:
        if not self._ended:
            try:
                self.checker.observe(client, event)
            except Violation as e:
                self._ended = True
                self._violated(e)


async def _start_early(admin: Client) -> None:
    change = configs.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = configs.AlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=SHARE_GROUP, configs=[change]
    )
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    while True:
        try:
            answer = await admin.send_to_any(configs.INCREMENTAL_ALTER_CONFIGS, request)
        except Unanswered:
            await admin.backoff()
            continue
        if answer.responses[0].error_code == ErrorCode.NONE:
            return
        await admin.backoff()


async def _unfinished(admin: Client, partitions: Sequence[TopicPartition]) -> list[str]:
    """The partitions with records that the group has not finished."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    try:
        answer = await admin.send_to_coordinator(SHARE_GROUP, DESCRIBE_SHARE_GROUP_OFFSETS, request)
    except Unanswered as e:
        return [str(e)]
    (group,) = answer.groups
    if group.error_code:
        return [ErrorCode(group.error_code).name]
    lags = {
        TopicPartition(topic.topic_name, found.partition_index): found.lag
        for topic in group.topics
        for found in topic.partitions
        if not found.error_code
    }
    return [f"{partition}: lag {lags.get(partition)}" for partition in partitions if lags.get(partition) != 0]
