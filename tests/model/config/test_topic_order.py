"""Topic configs come in Kafka's order."""

from __future__ import annotations

from penstock.model.config import BrokerConfig
from penstock.model.config.broker_descriptions import TOPIC_KEYS_AS_DESCRIBED, describe_topic
from penstock.model.config.topic_keys import TOPIC_KEYS


def test_every_config_has_one_place() -> None:
    assert sorted(TOPIC_KEYS_AS_DESCRIBED) == sorted(TOPIC_KEYS)


def test_configs_are_described_in_the_order_of_kafka() -> None:
    names = [entry.name for entry in describe_topic(BrokerConfig({}), {})]
    assert names[:5] == [
        "compression.type",
        "remote.log.delete.on.disable",
        "leader.replication.throttled.replicas",
        "remote.storage.enable",
        "min.insync.replicas",
    ]
