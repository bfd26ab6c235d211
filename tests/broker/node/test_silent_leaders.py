"""A partition's leader hangs or is cut off: the next write is acknowledged within four seconds, always.

Real brokers on simulated machines, so that many courses of it can be timed: whether or not the controller
goes with the leader, on machines that have time, and on such that hold each broker up for up to a fifth of a
second again and again.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.clients import Address, Client
from penstock.testing.simulation.cluster_roles import ClusterRoles, cluster_roles
from penstock.testing.simulation.history import Acked, Event, History
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.workload import Producer
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.amounts import amount
from tests.broker.node.silence import WITHIN_S

_TOPIC = "events"
_INTERNAL = 19092


class _Impatient(Client):
    """Gives up on an answer after a fifth of a second, and requests metadata from a broker that answers."""

    shunned: Address | None = None

    async def send(
        self, address: Address, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float = 0.2
    ) -> ResponseT:
        return await super().send(address, api, request, timeout_s)

    async def send_to_any(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        known = [address for address in self._bootstrap if address != self.shunned]
        return await self.send(self.rng.choice(known), api, request, timeout_s=1.0)


class _Silence:
    """Three brokers, of which one falls silent while a client writes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimLoop(seed)
        self.rng = Random(f"{seed}/silence")
        voters = ",".join(f"{n}@node-{n}:{_INTERNAL}" for n in (1, 2, 3))
        self.nodes = [
            Node(
                self.loop,
                seed,
                n,
                {
                    "listeners": f"PLAINTEXT://node-{n}:9092,INTERNAL://node-{n}:{_INTERNAL}",
                    "controller.quorum.voters": voters,
                    "min.insync.replicas": "2",
                },
            )
            for n in (1, 2, 3)
        ]
        self.history = History(lambda who, what: None)
        self.history.observers.append(self._observe)
        self.acknowledged: dict[TopicPartition, float] = {}
        self.writer = self._client("writer")
        self.silent: Node | None = None

    def _client(self, name: str) -> _Impatient:
        bootstrap = [node.address for node in self.nodes]
        return _Impatient(self.loop, name, bootstrap, Random(f"{self.seed}/{name}"), self.history)

    def _observe(self, who: str, event: Event) -> None:
        if isinstance(event, Acked):
            self.acknowledged[event.batch.partition] = self.loop.time()

    async def start(self) -> None:
        for node in self.nodes:
            node.boot()
        admin = self._client("admin")
        await admin.process.spawn(self.loop, admin.create_topic(_TOPIC, 3, 3))

    async def cast(self, *, leads_quorum: bool) -> ClusterRoles:
        """A partition whose leader is the controller, or is not."""
        while True:
            for cast in cluster_roles(self.nodes):
                if cast.partition.topic == _TOPIC and (cast.leader is cast.controller) == leads_quorum:
                    return cast
            await asyncio.sleep(0.05)

    def write_to(self, partition: TopicPartition) -> None:
        self.writer.process.spawn(self.loop, Producer(self.writer, [partition], pause_s=0.05).run())

    def hold_up(self) -> None:
        """Let brokers wait for a processor now and then, as on a machine that has too much to do."""
        for node in self.nodes:
            process = node.process
            if process is not None and node is not self.silent and self.rng.random() < 0.5:
                process.pause()
                self.loop.world_later(self.rng.uniform(0.05, 0.2), process.resume)
        self.loop.world_later(self.rng.uniform(0.2, 0.4), self.hold_up)

    def fall_silent(self, node: Node, fault: str) -> None:
        self.silent = node
        self.writer.shunned = node.address
        if fault == "hangs":
            node.pause()
        for other in [*(other.name for other in self.nodes if other is not node), "writer"]:
            if fault in ("is cut off", "is mute"):
                self.loop.network.cut(node.name, other)
            if fault in ("is cut off", "is deaf"):
                self.loop.network.cut(other, node.name)

    async def metadata(self, node: Node, partition: TopicPartition) -> MetadataResponsePartition:
        """The metadata of a partition at `node`."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=partition.topic)])
        requesting = self.writer.send(node.address, METADATA, request, 5.0)
        answer: MetadataResponse = await self.writer.process.spawn(self.loop, requesting)
        return next(p for p in answer.topics[0].partitions if p.partition_index == partition.partition)


async def _seconds_without_acknowledgement(
    silence: _Silence, fault: str, *, leads_quorum: bool, busy: bool
) -> float:
    await silence.start()
    if busy:
        silence.hold_up()
    cast = await silence.cast(leads_quorum=leads_quorum)
    silence.write_to(cast.partition)
    await asyncio.sleep(silence.rng.uniform(1.0, 2.0))
    began = silence.loop.time()
    silence.fall_silent(cast.leader, fault)
    acknowledged = silence.acknowledged
    # What was on its way may still come.
    while acknowledged.get(cast.partition, 0.0) < began + 0.3:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)
    return acknowledged[cast.partition] - began


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("leads_quorum", [True, False])
@pytest.mark.parametrize("fault", WITHIN_S)
def test_a_silent_leader_is_replaced_in_time(fault: str, leads_quorum: bool, busy: bool) -> None:
    for seed in range(amount(3)):
        silence = _Silence(seed)
        try:
            timed = _seconds_without_acknowledgement(silence, fault, leads_quorum=leads_quorum, busy=busy)
            waited_s = silence.loop.run(timed, limit_s=30)
            assert waited_s < WITHIN_S[fault], f"seed {seed}"
            assert not silence.loop.unhandled
        finally:
            silence.loop.close()


def test_clients_do_not_see_a_silent_leader() -> None:
    """They would wait for it. So they refresh metadata until it names a successor, or the leader is back."""

    async def main() -> None:
        await silence.start()
        cast = await silence.cast(leads_quorum=False)
        follower = cast.followers[0]
        assert (await silence.metadata(follower, cast.partition)).leader_id == cast.leader.id
        cast.leader.pause()
        await asyncio.sleep(0.2)
        assert (await silence.metadata(follower, cast.partition)).leader_id == cast.leader.id, (
            "it may be slow"
        )
        await asyncio.sleep(0.8)
        reported = await silence.metadata(follower, cast.partition)
        assert (reported.error_code, reported.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        cast.leader.resume()
        await asyncio.sleep(0.1)
        assert (await silence.metadata(follower, cast.partition)).leader_id == cast.leader.id

    silence = _Silence(1)
    try:
        silence.loop.run(main(), limit_s=30)
    finally:
        silence.loop.close()
