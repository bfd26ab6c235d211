"""Which replicas are throttled (KIP-73), and at which rate. In-sync replicas never are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.base.system_ports import SystemClock
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.throttles import Throttles, rate_of_copies
from penstock.metadata.image import TOPIC, ClusterImage, Origin
from penstock.model.config import BrokerConfig
from penstock.wire.metadata_records import ConfigRecord
from tests.broker.images import TOPIC_ID, image_of, partition_record

FOLLOWER = "follower.replication.throttled.replicas"
LEADER = "leader.replication.throttled.replicas"


def configured(name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC, resource_name="t", name=name, value=value)


def throttles(image: ClusterImage, node: int = 3, **configs: str) -> Throttles:
    settings = {"node.id": str(node)} | {name.replace("_", "."): value for name, value in configs.items()}
    made = Throttles(BrokerConfig(settings), image, SystemClock())
    made.reconfigure([])
    return made


@pytest.mark.parametrize(("named", "held"), [("0:3", True), ("*", True), ("1:3,0:2", False), ("", False)])
def test_the_topic_names_the_throttled_followers(named: str, held: bool) -> None:
    image = image_of(partition_record(isr=[1, 2]), configured(FOLLOWER, named))
    assert throttles(image).holds_follower(TOPIC_ID, 0) is held


def test_a_follower_in_sync_is_not_throttled() -> None:
    image = image_of(partition_record(isr=[1, 2, 3]), configured(FOLLOWER, "*"))
    assert not throttles(image).holds_follower(TOPIC_ID, 0)


@pytest.mark.parametrize(
    ("origin", "balance", "held"),
    [(Origin.REQUEST, "off", False), (Origin.REQUEST, "replicas", True), (Origin.REBUILD, "off", True)],
)
def test_a_replica_that_the_controller_adds_by_itself_is_throttled(
    origin: Origin, balance: str, held: bool
) -> None:
    image = image_of(partition_record(isr=[1, 2], adding=[3], origin=origin))
    made = throttles(image, penstock_balance=balance)
    assert made.holds_follower(TOPIC_ID, 0) is held


@pytest.mark.parametrize(("replica", "held"), [(2, False), (3, True)])
def test_a_leader_throttles_fetches_of_replicas_that_are_not_in_sync(replica: int, held: bool) -> None:
    image = image_of(partition_record(isr=[1, 2]), configured(LEADER, "0:1"))
    leadership = SimpleNamespace(state=SimpleNamespace(isr=[1, 2]))
    partition = cast(Partition, cast(Any, SimpleNamespace(topic="t", index=0, leadership=leadership)))
    assert throttles(image, node=1).holds_leader(partition, replica) is held


def test_copies_of_the_controller_always_have_a_rate() -> None:
    unlimited = BrokerConfig({"penstock.balance.bytes.per.second": "7"})
    limited = BrokerConfig({"follower.replication.throttled.rate": "5"})
    assert rate_of_copies(unlimited, by_itself=False) is None
    assert rate_of_copies(unlimited, by_itself=True) == 7
    assert rate_of_copies(limited, by_itself=True) == 5
