"""A topic's values: overrides over the broker's, checked together."""

from __future__ import annotations

import pytest

from penstock.model.config import (
    TOPIC_KEYS,
    BrokerConfig,
    ConfigSource,
    describe_topic,
    resolve_topic_configs,
    topic_values,
)
from penstock.model.config.keys import Copies
from penstock.model.config.settings import read
from penstock.model.config.topics import copied_configs
from penstock.model.errors import InvalidConfig
from penstock.storage.config import LogConfig


def test_overrides_go_before_the_broker() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2000000", "log.retention.ms": "7"})
    values = resolve_topic_configs({"retention.ms": "9"}, broker)
    assert set(values) == set(TOPIC_KEYS)
    assert (values["segment.bytes"], values["retention.ms"]) == (2_000_000, 9)


def test_a_dynamic_broker_config_reaches_topics_without_an_override() -> None:
    broker = BrokerConfig()
    broker.set_dynamic(dynamic_default={"log.cleanup.policy": "compact"})
    assert resolve_topic_configs({}, broker)["cleanup.policy"] == ("compact",)
    assert resolve_topic_configs({"cleanup.policy": "delete"}, broker)["cleanup.policy"] == ("delete",)


def test_compaction_lags_are_checked_against_each_other_and_the_brokers() -> None:
    with pytest.raises(InvalidConfig, match=r"must not be more than max.compaction.lag.ms"):
        resolve_topic_configs({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, BrokerConfig())
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "100"})
    with pytest.raises(InvalidConfig, match=r"101"):
        resolve_topic_configs({"min.compaction.lag.ms": "101"}, broker)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean segment.bytes"):
        resolve_topic_configs({"segmentbytes": "1"}, BrokerConfig())


def test_topic_values_are_the_fields_of_a_log_config() -> None:
    assert read(LogConfig, topic_values({}, BrokerConfig())) == LogConfig()
    config = read(LogConfig, topic_values({"cleanup.policy": "compact"}, BrokerConfig()))
    assert config.compact
    assert not config.delete


def test_topic_values_apply_the_internal_segment_size() -> None:
    assert topic_values({"internal.segment.bytes": "512"}, BrokerConfig())["segment.bytes"] == 512


def test_describe_topic_names_the_source_of_each_value() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2000000"})
    shown = {
        e.name: e for e in describe_topic(broker, {"retention.ms": "5", "cleanup.policy": "compact, delete"})
    }
    assert shown["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC
    assert shown["cleanup.policy"].value == "compact,delete"
    assert [(s.name, s.source.name) for s in shown["cleanup.policy"].synonyms] == [
        ("cleanup.policy", "DYNAMIC_TOPIC"),
        ("log.cleanup.policy", "DEFAULT"),
    ]
    assert shown["segment.bytes"].source is ConfigSource.STATIC_BROKER
    assert [s.name for s in shown["segment.bytes"].synonyms] == ["log.segment.bytes", "log.segment.bytes"]
    assert not any(e.read_only for e in shown.values())
    assert "internal.segment.bytes" not in shown
    assert [
        e.name for e in describe_topic(broker, {"internal.segment.bytes": "9"}, ["internal.segment.bytes"])
    ]


@pytest.mark.parametrize(
    ("copy", "left_out"),
    [
        (Copies.RESTORE, {"penstock.link", "remote.storage.enable"}),
        (Copies.MOUNT, {"penstock.delay.target", "remote.storage.enable"}),
    ],
)
def test_copies_leave_out_configs_of_the_cluster_of_the_topic(copy: Copies, left_out: set[str]) -> None:
    configs = dict.fromkeys(TOPIC_KEYS, "any") | {"of.another.version": "any"}
    assert configs.keys() - copied_configs(configs, copy).keys() == left_out
