"""Rebalances of a streams group (KIP-1071): 100 members with 1,000 tasks, at one broker.

The members act like those of Kafka Streams: they give up and take tasks at once, and acknowledge them with
the next heartbeat, which they send without delay. A rebalance ends when every task is assigned to one member,
and no member has two tasks more than another. Both brokers have heartbeats every 500 ms, so
that the row shows the work of the coordinator and not the default pause of 5 s.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable
from functools import partial
from typing import Final

from bench.load import topic
from bench.members import Member
from bench.requests import p99
from bench.table import Contender, Metric, Row, Values, fresh
from lab.server import HOST
from penstock.model.errors import ErrorCode
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)

__all__ = ["ROWS"]

_MEMBERS: Final = 100
_TASKS: Final = 1000
_TIMEOUT_S: Final = 120.0
_LOOK_S: Final = 0.005
_RETRY_S: Final = 0.02
#: of a coordinator that is not loaded yet: clients try again
_SOON: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_SETTINGS: Final = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.max.size": "1000",
}


class StreamsMember(Member):
    """A member whose tasks need no time to start and to end."""

    def __init__(self, group: str, source: str, waits_ms: list[float]) -> None:
        super().__init__(group, source, restless=False)
        self.id = f"{random.getrandbits(128):032x}"
        self.owned: set[int] = set()
        self._epoch = 0
        self._waits_ms = waits_ms

    async def run(self) -> None:
        await self._find()
        answer = await self._beat(joins=True)
        while True:
            if answer.active_tasks is not None:
                self.owned = {task for each in answer.active_tasks for task in each.partitions}
                answer = await self._beat(acknowledges=True)
            else:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
                answer = await self._beat()

    async def _find(self) -> None:
        """Have the coordinator's topic created; a broker may answer before it leads its partitions."""
        request = FindCoordinatorRequest(coordinator_keys=[self.group])
        while True:
            (found,) = (await self.call(FIND_COORDINATOR, 4, request)).coordinators
            if found.error_code not in _SOON:
                return
            await asyncio.sleep(_RETRY_S)

    async def leave(self) -> None:
        request = StreamsGroupHeartbeatRequest(group_id=self.group, member_id=self.id, member_epoch=-1)
        await self.call(STREAMS_GROUP_HEARTBEAT, 0, request)
        self.owned = set()

    async def _beat(
        self, *, joins: bool = False, acknowledges: bool = False
    ) -> StreamsGroupHeartbeatResponse:
        tasks = [TaskIds(subtopology_id="0", partitions=sorted(self.owned))] if self.owned else []
        states_tasks = joins or acknowledges
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self._epoch,
            active_tasks=tasks if states_tasks else None,
            standby_tasks=[] if states_tasks else None,
            warmup_tasks=[] if states_tasks else None,
        )
        if joins:
            request.topology = Topology(
                subtopologies=[Subtopology(subtopology_id="0", source_topics=[self.topic])]
            )
            request.rebalance_timeout_ms, request.process_id, request.client_tags = 60_000, self.id, []
        while True:
            began = time.perf_counter()
            answer = await self.call(STREAMS_GROUP_HEARTBEAT, 0, request)
            if answer.error_code not in _SOON:
                break
            await asyncio.sleep(_RETRY_S)
        self._waits_ms.append((time.perf_counter() - began) * 1000)
        if answer.error_code:
            raise RuntimeError(f"heartbeat: error {answer.error_code}: {answer.error_message}")
        self._epoch = answer.member_epoch
        return answer


class _Group:
    """The members of one group, and the tasks that its topic has."""

    def __init__(self, port: int, source: str, tasks: int) -> None:
        self._port = port
        self._source = source
        self._tasks = tasks
        self.waits_ms: list[float] = []
        self._running: dict[StreamsMember, asyncio.Task[None]] = {}

    async def join(self, members: int) -> None:
        """Start members, and wait until the group is balanced."""
        loop = asyncio.get_running_loop()
        for _ in range(members):
            member = StreamsMember("bench-streams", self._source, self.waits_ms)
            await loop.create_connection(partial(_same, member), HOST, self._port)
            self._running[member] = asyncio.create_task(member.run())
        await self._balanced()

    async def leave(self) -> None:
        """End one member, and wait until the group is balanced."""
        member, task = self._running.popitem()
        task.cancel()
        await asyncio.wait([task])
        await member.leave()
        await self._balanced()

    async def end(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _balanced(self) -> None:
        deadline = time.perf_counter() + _TIMEOUT_S
        while not self._is_balanced():
            for task in self._running.values():
                if task.done():
                    task.result()
            if time.perf_counter() > deadline:
                counts = Counter(len(member.owned) for member in self._running)
                raise RuntimeError(f"the group is not balanced: tasks by member {dict(counts)}")
            await asyncio.sleep(_LOOK_S)

    def _is_balanced(self) -> bool:
        counts = [len(member.owned) for member in self._running]
        owned = Counter(task for member in self._running for task in member.owned)
        return len(owned) == sum(counts) == self._tasks and max(counts) - min(counts) <= 1


def _same(member: StreamsMember) -> StreamsMember:
    return member


async def _timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _rebalances(port: int, source: str, members: int, tasks: int) -> Values:
    group = _Group(port, source, tasks)
    try:
        return {
            "all members join": await _timed(group.join(members)),
            "one member leaves": await _timed(group.leave()),
            "one member joins": await _timed(group.join(1)),
            "p99 of heartbeats": p99(group.waits_ms),
        }
    finally:
        await group.end()


def _streams(contender: Contender, scale: float) -> Values:
    members, tasks = max(2, int(_MEMBERS * scale)), max(2, int(_TASKS * scale))
    with fresh(contender, _SETTINGS) as server, topic(server.bootstrap, tasks) as source:
        return asyncio.run(_rebalances(server.port, source, members, tasks))


ROWS = (
    Row(
        "streams",
        "rebalances of a streams group of 100 members with 1,000 tasks, heartbeats every 500 ms",
        (
            Metric("all members join", "s", False),
            Metric("one member leaves", "s", False),
            Metric("one member joins", "s", False),
            Metric("p99 of heartbeats", "ms", False),
        ),
        _streams,
        heavy=True,
        rounds=3,
    ),
)
