"""One config file for three machines makes a cluster of three, with the topics that it declares."""

from __future__ import annotations

import asyncio
from random import Random

from penstock.broker.app.broker import Broker, World
from penstock.broker.app.declared_topics import create_declared, keep_creating
from penstock.model.config import BrokerConfig, ConfigFile, effective_configs, load_config_file
from penstock.storage.memory import MemoryFiles
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.ports import SimClock, SimRng, SimWorkers
from tests.model.config.sample import SAMPLE


class Machines:
    """Hosts broker-1 to broker-3 of a simulated network, each with the file and its own number."""

    def __init__(self, file: ConfigFile) -> None:
        self.loop = SimLoop(7)
        self.brokers: dict[int, Broker] = {}
        for number in (1, 2, 3):
            name = f"broker-{number}"
            self.loop.new_process(name, name).spawn(self.loop, self._serve(file, number))

    async def _serve(self, file: ConfigFile, number: int) -> None:
        # What `penstock up --config FILE --id N` does.
        config = BrokerConfig(effective_configs([file.configs, {"node.id": str(number)}]))
        clock, rng = SimClock(self.loop), SimRng(Random(number))
        broker = await Broker.open(config, World(clock, rng, MemoryFiles(), SimWorkers(self.loop)))
        await broker.start()
        self.brokers[number] = broker
        await keep_creating(broker, await create_declared(broker, file.topics))


def test_the_file_starts_a_cluster_with_its_topics() -> None:
    machines = Machines(load_config_file(SAMPLE, "yaml"))
    try:
        machines.loop.run(asyncio.sleep(20), limit_s=30)
        assert machines.loop.unhandled == []
        assert sorted(machines.brokers) == [1, 2, 3]
        image = machines.brokers[3].stages.cluster.image
        for name, partitions, replicas in (("gpu-telemetry", 12, 3), ("system-metrics", 6, 2)):
            found = image.topics[name].partitions
            assert (len(found), {len(p.isr) for p in found.values()}) == (partitions, {replicas})
        assert image.topic_configs("gpu-telemetry")["compression.type"] == "snappy"
        for broker in machines.brokers.values():
            assert broker.stages.config.message_max_bytes > 1 << 20
            assert broker.stages.listening.server.limits.send_buffer_bytes == 100 << 10
            assert broker.stages.listening.server.limits.receive_buffer_bytes == 100 << 10
    finally:
        machines.loop.close()
