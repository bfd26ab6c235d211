"""Cordoned data directories get no new replicas (KIP-1066)."""

from __future__ import annotations

from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.testing import cluster
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tests.broker.configs import BROKER, set_config
from tests.broker.disks import Disk, Volumes, on_disk
from tests.broker.log_dirs import log_dirs, placement
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic, describe_topic, new_name
from tests.waiting import eventually


def test_new_replicas_go_to_the_other_directories() -> None:
    disks = Volumes(one=Disk(), two=Disk())
    with on_disk(disks, "/one,/two", node_id="1") as running, RawClient(running.bootstrap) as client:
        before = create_topic(client, partitions=2)
        assert set(placement(client, before)) == {"/one", "/two"}
        set_config(client, BROKER, "1", "cordoned.log.dirs", "/one")
        found = log_dirs(client)
        assert (found["/one"].is_cordoned, found["/two"].is_cordoned) == (True, False)
        for _ in range(3):
            assert set(placement(client, create_topic(client))) == {"/two"}
        assert set(placement(client, before)) == {"/one", "/two"}
        # Without another directory the cordoned ones have to do.
        set_config(client, BROKER, "1", "cordoned.log.dirs", "*")
        assert all(each.is_cordoned for each in log_dirs(client).values())
        assert len(placement(client, create_topic(client))) == 1


def test_a_broker_whose_directories_are_all_cordoned_gets_no_replicas() -> None:
    with cluster(brokers=3) as running, RawClient(running.address(1)) as client:
        set_config(client, BROKER, "2", "cordoned.log.dirs", "*")

        def placed(replicas: int) -> set[int]:
            name = new_name("topic")
            topic = CreatableTopic(name=name, num_partitions=6, replication_factor=replicas)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            (made,) = client.call(CREATE_TOPICS, 7, request).topics
            if made.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
                return set()
            assert made.error_code == ErrorCode.NONE
            return {node for each in describe_topic(client, name).partitions for node in each.replica_nodes}

        eventually(lambda: placed(2) == {1, 3})
        assert placed(3) == set()
        set_config(client, BROKER, "2", "cordoned.log.dirs", "")
        eventually(lambda: placed(3) == {1, 2, 3})


def test_the_config_has_paths_or_all() -> None:
    assert BrokerConfig({"cordoned.log.dirs": "/a,/b"}).cordoned_log_dirs == ("/a", "/b")
    assert BrokerConfig({"cordoned.log.dirs": "*"}).cordoned_log_dirs == ("*",)
