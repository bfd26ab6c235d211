"""A crowd of group members in one process: `python -m bench.members PORT TOPIC PROTOCOL GROUPS MEMBERS`.

Each member has its own connection and acts like a consumer's background thread: it joins, syncs or
acknowledges its assignment, and sends heartbeats. One member of every tenth group leaves and rejoins
repeatedly, so that the group rebalances all the time. The process prints `settled` once all members have
joined, and ends at the end of its input.

Real members run on other machines. So this process has a low priority (`NICENESS`), and its members are
spread over time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import deque
from functools import partial
from typing import Any, cast

import uvloop

from lab.server import HOST
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from penstock.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from penstock.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.conversation import Conversation

HEARTBEAT_S = 3.0
STAYS_S = 1.5
"""How long the member that leaves and rejoins stays; the rest learn of it by their next heartbeat."""
RESTLESS_GROUPS = 10
TIMEOUT_MS = 45_000
ASSIGNMENT = b"\0" * 64
PAUSE_S = 0.1
NICENESS = 19
AWAY = -1


class Member(asyncio.Protocol):
    """One connection, and the common part of members of both protocols."""

    def __init__(self, group: str, topic: str, restless: bool) -> None:
        self.group = group
        self.topic = topic
        self.restless = restless
        self.id = ""
        self.rounds = 0
        self.heartbeats = 0
        self.settled = asyncio.Event()
        self._conversation = Conversation("bench")
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for response in self._conversation.receive(data):
            answer = self._awaited.popleft()
            if not answer.cancelled():  # at the end the waiting tasks are gone
                answer.set_result(response.message)

    async def call(self, api: Api[RequestT, ResponseT], version: int, request: RequestT) -> ResponseT:
        _, parts = self._conversation.request(api, request, version=version)
        answer: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._awaited.append(answer)
        self._transport.write(b"".join(cast("list[bytes]", parts)))
        return await answer

    async def run(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[self.group])
        await self.call(FIND_COORDINATOR, 4, request)  # the first one has the offsets topic made
        while True:
            await self.stay()
            await asyncio.sleep(PAUSE_S)

    async def stay(self) -> None:
        """Be in the group, until it is time to leave it or one is thrown out."""
        raise NotImplementedError

    async def stays(self) -> bool:
        """Wait for the next heartbeat; False if it is time to leave instead."""
        await asyncio.sleep((STAYS_S if self.restless else HEARTBEAT_S) * random.uniform(0.5, 1.5))
        return not self.restless


class ClassicMember(Member):
    async def stay(self) -> None:
        while True:
            generation = await self._join()
            while generation != AWAY:
                if not await self.stays():
                    gone = MemberIdentity(member_id=self.id)
                    await self.call(LEAVE_GROUP, 5, LeaveGroupRequest(group_id=self.group, members=[gone]))
                    self.id = ""
                    return
                beat = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=self.id)
                self.heartbeats += 1
                if (await self.call(HEARTBEAT, 4, beat)).error_code:
                    generation = AWAY

    async def _join(self) -> int:
        """The generation that it is in now; AWAY if the group has moved on meanwhile."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(self.topic))],
        )
        joined = await self.call(JOIN_GROUP, 9, request)
        self.id = joined.member_id
        if joined.error_code:
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                self.id = ""
            return AWAY
        synced = await self.call(SYNC_GROUP, 5, self._sync(joined))
        if synced.error_code:
            return AWAY
        self.rounds += 1
        self.settled.set()
        return joined.generation_id

    def _sync(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        """The request of a member; only the leader has the list of members, and sends the assignments."""
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member.member_id, assignment=ASSIGNMENT)
                for member in joined.members
            ],
        )


class ConsumerMember(Member):
    """KIP-848: everything is a heartbeat."""

    async def stay(self) -> None:
        self.id = self.id or f"{random.getrandbits(128):032x}"
        answer = await self._beat(0, joining=True)
        while not answer.error_code:
            if answer.assignment is not None:
                self.rounds += 1
                if answer.assignment.topic_partitions:
                    self.settled.set()
                answer = await self._beat(answer.member_epoch, owned=answer.assignment.topic_partitions)
                continue
            if not await self.stays():
                await self._beat(AWAY)
                return
            answer = await self._beat(answer.member_epoch)

    async def _beat(
        self, epoch: int, *, joining: bool = False, owned: list[TopicPartitions] | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        self.heartbeats += 1
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=epoch,
            rebalance_timeout_ms=TIMEOUT_MS if joining else -1,
            subscribed_topic_names=[self.topic] if joining else None,
            topic_partitions=[] if joining else owned,
        )
        return await self.call(CONSUMER_GROUP_HEARTBEAT, 1, request)


def subscription(topic: str) -> bytes:
    """Version 0 of a classic consumer's metadata: the topic, and no user data."""
    name = topic.encode()
    size = len(name).to_bytes(2, "big")
    return b"\0\0" + (1).to_bytes(4, "big") + size + name + b"\xff\xff\xff\xff"


def _same(member: Member) -> Member:
    return member


async def main(port: int, topic: str, protocol: str, groups: int, members: int) -> None:
    kind = {"classic": ClassicMember, "consumer": ConsumerMember}[protocol]
    loop = asyncio.get_running_loop()
    crowd: list[Member] = []
    tasks = []
    for group in range(groups):
        for number in range(members):
            restless = number == 0 and group % RESTLESS_GROUPS == 0
            member = kind(f"crowd-{protocol}-{members}-{group}", topic, restless)
            await loop.create_connection(partial(_same, member), HOST, port)
            crowd.append(member)
            tasks.append(asyncio.create_task(member.run()))
    for member in crowd:
        await member.settled.wait()
    before = sum(m.rounds for m in crowd), sum(m.heartbeats for m in crowd)
    print("settled", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    rounds, heartbeats = (
        sum(m.rounds for m in crowd) - before[0],
        sum(m.heartbeats for m in crowd) - before[1],
    )
    print(json.dumps({"joins": rounds, "heartbeats": heartbeats}), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    port, topic, protocol, groups, members = sys.argv[1:]
    os.nice(NICENESS)
    uvloop.run(main(int(port), topic, protocol, int(groups), int(members)))
