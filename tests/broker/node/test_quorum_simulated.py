"""The quorum of real brokers on simulated machines: whatever dies, one history of metadata goes on."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.broker.app.broker import Broker
from penstock.metadata.snapshot import snapshot
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ApiError, PenstockError, TopicAlreadyExists
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.node import Node

_INTERNAL = 19092
_FAULTS = ("kill", "power_off", "pause", "stop", "isolate", "cut", "resets", "none")


class SimulatedQuorum:
    """Three machines with a broker each; `made` are the topics whose creation was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(seed)
        self.rng = Random(seed)
        voters = ",".join(f"{n}@node-{n}:{_INTERNAL}" for n in (1, 2, 3))
        self.nodes = [
            Node(
                self.loop,
                seed,
                n,
                {
                    "listeners": f"PLAINTEXT://node-{n}:9092,INTERNAL://node-{n}:{_INTERNAL}",
                    "controller.quorum.voters": voters,
                    "metadata.log.max.record.bytes.between.snapshots": "1500",
                },
            )
            for n in (1, 2, 3)
        ]
        self.made: set[str] = set()
        for node in self.nodes:
            node.boot()

    def brokers(self) -> list[Broker]:
        return [node.broker for node in self.nodes if node.broker is not None and node.is_up]

    def pass_time(self, seconds: float) -> None:
        self.loop.run(asyncio.sleep(seconds), limit_s=seconds + 1)

    def create(self, name: str) -> None:
        """Have a topic made through a random broker, as part of its process."""
        running = [node for node in self.nodes if node.broker is not None and node.is_up]
        if running:
            node = self.rng.choice(running)
            assert node.process is not None and node.broker is not None
            node.process.spawn(self.loop, self._create(node.broker, name))

    async def _create(self, broker: Broker, name: str) -> None:
        try:
            await broker.stages.cluster.topics.create(NewTopic(name, 1, 1))
        except TopicAlreadyExists:
            self.made.add(name)
        except (ApiError, PenstockError):
            return
        else:
            self.made.add(name)

    def misbehave(self) -> None:
        node = self.rng.choice(self.nodes)
        fault = self.rng.choice(_FAULTS)
        if fault == "pause" and node.is_up:
            node.pause()
            self.pass_time(self.rng.uniform(0.1, 5))
            node.resume()
        elif fault in ("isolate", "cut"):
            others = [other.name for other in self.nodes if other is not node]
            if fault == "isolate":
                self.loop.network.partition([node.name], others)
            else:
                self.loop.network.cut(node.name, self.rng.choice(others))
            self.pass_time(self.rng.uniform(0.1, 6))
        elif fault == "resets":
            self.loop.network.reset_some(0.5)
        elif fault != "none" and node.is_up:
            getattr(node, fault)()
        self.pass_time(self.rng.uniform(0, 1))
        self.loop.network.heal()
        for each in self.nodes:
            each.boot()

    def agree(self) -> bool:
        images = [
            (
                broker.stages.cluster.image.offset,
                repr(snapshot(broker.stages.cluster.image)),
                broker.stages.cluster.node.leader_id,
            )
            for broker in self.brokers()
        ]
        return len(images) == 3 and len(set(images)) == 1


@pytest.mark.parametrize("seed", range(8))
def test_created_topics_stay_and_all_nodes_agree(seed: int) -> None:
    quorum = SimulatedQuorum(seed)
    try:
        quorum.pass_time(2)
        for step in range(12):
            quorum.create(f"topic-{step}")
            quorum.pass_time(quorum.rng.choice([0.001, 0.02, 0.3]))
            if step % 2:
                quorum.misbehave()
        for _ in range(60):
            for node in quorum.nodes:
                # Again and again: one that is about to stop is still up.
                node.boot()
            quorum.pass_time(1)
            if quorum.agree():
                break
        assert quorum.agree(), [
            (b.stages.config.node_id, b.stages.cluster.image.offset, b.stages.cluster.node.leader_id)
            for b in quorum.brokers()
        ]
        assert quorum.made, "some requests were answered"
        for broker in quorum.brokers():
            assert quorum.made <= set(broker.stages.cluster.image.topics)
        assert not quorum.loop.unhandled
    finally:
        quorum.loop.close()


def test_a_seed_is_one_run() -> None:
    def digest() -> str:
        quorum = SimulatedQuorum(5)
        quorum.pass_time(3)
        quorum.create("topic")
        quorum.pass_time(1)
        quorum.loop.close()
        return quorum.loop.trace.digest()

    assert digest() == digest()
