"""The configs of a broker, its topics and its groups as DescribeConfigs shows them."""

from __future__ import annotations

from penstock.model.config import (
    BrokerConfig,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_dynamic_default,
    describe_group,
    describe_topic,
)


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(e for e in entries if e.name == name)


def test_describe_shows_the_default_source_type_and_documentation() -> None:
    shown = entry(describe_broker(BrokerConfig()), "num.partitions")
    assert shown.value == "1"
    assert shown.source is ConfigSource.DEFAULT
    assert shown.type.name == "INT"
    assert shown.read_only
    assert not shown.sensitive
    assert shown.documentation
    assert shown.synonyms == (ConfigSynonym("num.partitions", "1", ConfigSource.DEFAULT),)


def test_describe_selects_names_and_hides_internal_keys_until_they_are_set() -> None:
    config = BrokerConfig()
    assert [e.name for e in describe_broker(config, ["node.id", "nothing"])] == ["node.id"]
    assert "log.initial.task.delay.ms" not in [e.name for e in describe_broker(config)]
    config = BrokerConfig({"log.initial.task.delay.ms": "0"})
    assert entry(describe_broker(config), "log.initial.task.delay.ms").source is ConfigSource.STATIC_BROKER


def test_describe_dynamic_default_shows_only_configs_set_for_the_cluster() -> None:
    config = BrokerConfig({"message.max.bytes": "9"}, dynamic_default={"message.max.bytes": "8"})
    (shown,) = describe_dynamic_default(config)
    assert (shown.name, shown.value, shown.source) == (
        "message.max.bytes",
        "8",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )
    assert [s.source for s in shown.synonyms] == [ConfigSource.DYNAMIC_DEFAULT_BROKER]


def test_synonyms_start_at_the_configs_own_name_as_kafka_shows_them() -> None:
    config = BrokerConfig({"log.retention.ms": "5", "log.retention.hours": "2"})
    assert [(s.name, s.value) for s in entry(describe_broker(config), "log.retention.ms").synonyms] == [
        ("log.retention.ms", "5"),
        ("log.retention.hours", "2"),
        ("log.retention.hours", "168"),
    ]
    only_hours = BrokerConfig({"log.retention.hours": "2"})
    shown = entry(describe_topic(only_hours, {}), "retention.ms")
    assert (shown.value, shown.source, shown.synonyms) == ("7200000", ConfigSource.DEFAULT, ())


def test_a_group_without_configs_has_those_of_the_broker() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    name = "consumer.session.timeout.ms"
    (shown,) = describe_group(config, {}, [name])
    assert (shown.name, shown.value, shown.source) == (name, "50000", ConfigSource.STATIC_BROKER)
    (shown,) = describe_group(config, {name: "46000"}, [name])
    assert (shown.value, shown.source) == ("46000", ConfigSource.DYNAMIC_GROUP)
