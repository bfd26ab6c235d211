"""The composition of a node: its directory, and the log of earlier versions."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.app.upward_port import UpwardPort
from penstock.broker.node.cluster_node import metadata_wait_ms
from penstock.broker.node.metadata_home import check_metadata_home
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.records.record import Record, build_batch
from penstock.storage.directory import DirectoryRefused
from penstock.storage.log import AppendOrigin
from penstock.storage.manifest import Registration
from penstock.storage.memory import MemoryFiles
from penstock.wire.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_metadata_record,
)
from penstock.wire.schema import Struct
from tests.broker.nodes import cluster, run


def test_a_log_from_before_there_was_a_quorum_is_read() -> None:
    """What a broker alone has written in epoch 0, without a leader's record and without a quorum state."""

    async def main() -> None:
        files = MemoryFiles()
        config = BrokerConfig(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/data", "penstock.memory": "true"}
        )
        world = system_world(config)._replace(files=files)
        check = partial(check_metadata_home, config, files, world.clock, world.rng)
        # Nothing starts, so the port connects nothing.
        old = Partitions(config, world._replace(files=files), check, UpwardPort())
        metadata_log = old.open()
        records: list[Struct] = [
            FeatureLevelRecord(name="metadata.version", feature_level=20),
            RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False),
            TopicRecord(name="old", topic_id=bytes(15) + b"\x07"),
            PartitionRecord(partition_id=0, topic_id=bytes(15) + b"\x07", replicas=[1], isr=[1], leader=1),
        ]
        batch = build_batch(Record(n, 0, None, encode_metadata_record(r)) for n, r in enumerate(records))
        metadata_log.append(memoryview(bytearray(batch)), 0, origin=AppendOrigin.RAFT)
        await old.close(Registration(1))
        broker = await Broker.open(config, world)
        await broker.start()
        image = broker.stages.cluster.image
        assert list(image.topics) == ["old"] and image.features == {"metadata.version": 20}
        assert broker.stages.cluster.node.quorum.state.epoch == 1
        await broker.stop()

    run(main())


def test_a_directory_of_another_cluster_is_refused() -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            await nodes.stop()
            nodes.settings[1]["penstock.cluster.id"] = "AAAAAAAAAAAAAAAAAAAAAA"
            with pytest.raises(DirectoryRefused, match=r"penstock\.cluster\.id"):
                await nodes.start()
            del nodes.settings[1]["penstock.cluster.id"]
            await nodes.start()

    run(main())


@pytest.mark.parametrize(
    ("roles", "timeout_ms", "waits_ms"),
    [
        ("broker,controller", 2000, 500),
        ("broker", 2000, 1000),
        ("broker,controller", 400, 100),
        ("broker", 400, 200),
    ],
)
def test_a_broker_that_may_not_vote_fetches_metadata_less_often(
    roles: str, timeout_ms: int, waits_ms: int
) -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:1",
            "process.roles": roles,
            "node.id": "2" if roles == "broker" else "1",
            "controller.quorum.voters": "1@127.0.0.1:1",
            "controller.listener.names": "INTERNAL",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.fetch.timeout.ms": str(timeout_ms),
        }
    )
    assert metadata_wait_ms(config) == waits_ms
