"""Members of a streams group (KIP-1071): they join, take tasks and give them up, crash and come back.

They count words: the broker creates a repartition topic and a changelog. A member takes a while to revoke
tasks. Once the run ends, all members follow the protocol until every task is assigned.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client, Unanswered
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

__all__ = ["INTERNAL", "StreamsApplication", "StreamsMember"]

INTERNAL: Final = ("app-counts-repartition", "app-counts-changelog")
_GROUP: Final = "app"
_JOIN, _LEAVE = 0, -1
#: probabilities of a heartbeat: of leaving, of ending without leaving, and of having revoked tasks
_LEAVES: Final = 0.04
_VANISHES: Final = 0.03
_REVOKES: Final = 0.6
#: virtual seconds until all tasks are assigned after all faults have ended
_CONVERGES_S: Final = 60.0
Task = tuple[str, int]


class StreamsApplication:
    """All members of the group, and what they have been told."""

    def __init__(self, source: str, partitions: int) -> None:
        self.source = source
        self.tasks = {(subtopology, index) for subtopology in ("0", "1") for index in range(partitions)}
        self.members: list[StreamsMember] = []
        #: the member that was given a task, by the task and the member epoch
        self.given: dict[tuple[Task, int], str] = {}
        #: ids of internal topics that clients have seen
        self.topic_ids: dict[str, set[bytes]] = {name: set() for name in INTERNAL}

    def saw(self, task: Task, epoch: int, member_id: str) -> None:
        owner = self.given.setdefault((task, epoch), member_id)
        if owner != member_id:
            raise Violation("task assigned twice", f"{task} in epoch {epoch} to {owner} and {member_id}")

    @property
    def has_converged(self) -> bool:
        """Returns true if every task is assigned to one member."""
        assigned = Counter(task for member in self.members for task in member.active)
        return assigned == Counter(dict.fromkeys(self.tasks, 1))

    def topology(self) -> Topology:
        repartition, changelog = INTERNAL
        delete, compact = (KeyValue(key="cleanup.policy", value=value) for value in ("delete", "compact"))
        return Topology(
            subtopologies=[
                Subtopology(
                    subtopology_id="0", source_topics=[self.source], repartition_sink_topics=[repartition]
                ),
                Subtopology(
                    subtopology_id="1",
                    repartition_source_topics=[TopicInfo(name=repartition, topic_configs=[delete])],
                    state_changelog_topics=[TopicInfo(name=changelog, topic_configs=[compact])],
                ),
            ]
        )


class StreamsMember:
    """One thread of the application, a process of its own."""

    def __init__(self, client: Client, application: StreamsApplication, pause_s: float) -> None:
        self._client = client
        self._application = application
        self._pause_s = pause_s
        self._forget()
        self.stopping = False
        application.members.append(self)

    def _forget(self) -> None:
        self._id = self._client.rng.randbytes(8).hex()
        self._epoch = _JOIN
        #: tasks that it works on, and those that it was last told to have
        self.active: set[Task] = set()
        self._told: set[Task] = set()

    async def run(self) -> None:
        client, ends_s = self._client, 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(client.rng.random() * self._pause_s)
            if self.stopping:
                ends_s = ends_s or loop.time() + _CONVERGES_S
                if loop.time() > ends_s:
                    raise Violation("tasks are not assigned", f"{sorted(self._told)} of {self._id}")
            try:
                if self.stopping and self._application.has_converged:
                    await self._look_at_topics()
                    return
                await self._heartbeat()
            except Unanswered:
                await client.backoff()

    async def _look_at_topics(self) -> None:
        """Note the ids of internal topics, which a broker has created once."""
        for name in INTERNAL:
            await self._client.refresh(name)
            self._application.topic_ids[name].add(self._client.topic_ids[name])

    async def _heartbeat(self) -> None:
        rng = self._client.rng
        if self.stopping or rng.random() < _REVOKES:
            self.active = set(self._told)
        leaves = self._epoch > 0 and not self.stopping and rng.random() < _LEAVES
        request = StreamsGroupHeartbeatRequest(
            group_id=_GROUP,
            member_id=self._id,
            member_epoch=_LEAVE if leaves else self._epoch,
            active_tasks=_ids(self.active),
            standby_tasks=[],
            warmup_tasks=[],
        )
        if self._epoch == _JOIN:
            request.topology = self._application.topology()
            request.rebalance_timeout_ms, request.process_id, request.client_tags = 5000, self._id, []
        answer = await self._client.send_to_coordinator(_GROUP, STREAMS_GROUP_HEARTBEAT, request)
        vanishes = not self.stopping and rng.random() < _VANISHES
        if (
            leaves
            or vanishes
            or answer.error_code
            in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
        ):
            self._forget()
        elif answer.error_code:
            raise Unanswered(ErrorCode(answer.error_code).name)
        else:
            self._take(answer)

    def _take(self, answer: StreamsGroupHeartbeatResponse) -> None:
        self._epoch = answer.member_epoch
        if answer.active_tasks is None:
            return
        told = {(ids.subtopology_id, index) for ids in answer.active_tasks for index in ids.partitions}
        for task in told - self._told - self.active:
            self._application.saw(task, self._epoch, self._id)
        self._told = told
        self.active |= told


def _ids(tasks: set[Task]) -> list[TaskIds]:
    found: dict[str, list[int]] = {}
    for subtopology, index in sorted(tasks):
        found.setdefault(subtopology, []).append(index)
    return [TaskIds(subtopology_id=name, partitions=indexes) for name, indexes in found.items()]
