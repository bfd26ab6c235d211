"""Configs as DescribeConfigs shows them: sources, synonyms, selection."""

from __future__ import annotations

from penstock.model.config import BrokerConfig, ConfigEntry, ConfigSource, ConfigSynonym
from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.descriptions import ConfigTexts, config_entry, selected, unknown_entries


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(e for e in entries if e.name == name)


def test_describe_shows_the_default_source_type_and_documentation() -> None:
    shown = entry(BrokerConfig().describe(), "num.partitions")
    assert shown.value == "1"
    assert shown.source is ConfigSource.DEFAULT
    assert shown.type.name == "INT"
    assert shown.read_only
    assert not shown.sensitive
    assert shown.documentation
    assert shown.synonyms == (ConfigSynonym("num.partitions", "1", ConfigSource.DEFAULT),)


def test_describe_selects_names_and_hides_internal_keys_until_they_are_set() -> None:
    config = BrokerConfig()
    assert [e.name for e in config.describe(["node.id", "nothing"])] == ["node.id"]
    assert "log.initial.task.delay.ms" not in [e.name for e in config.describe()]
    config = BrokerConfig({"log.initial.task.delay.ms": "0"})
    assert entry(config.describe(), "log.initial.task.delay.ms").source is ConfigSource.STATIC_BROKER


def test_describe_dynamic_default_shows_only_what_is_set_for_the_cluster() -> None:
    config = BrokerConfig({"message.max.bytes": "9"}, dynamic_default={"message.max.bytes": "8"})
    (shown,) = config.describe_dynamic_default()
    assert (shown.name, shown.value, shown.source) == (
        "message.max.bytes",
        "8",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )
    assert [s.source for s in shown.synonyms] == [ConfigSource.DYNAMIC_DEFAULT_BROKER]


def test_synonyms_start_at_the_configs_own_name_as_kafka_shows_them() -> None:
    config = BrokerConfig({"log.retention.ms": "5", "log.retention.hours": "2"})
    assert [(s.name, s.value) for s in entry(config.describe(), "log.retention.ms").synonyms] == [
        ("log.retention.ms", "5"),
        ("log.retention.hours", "2"),
        ("log.retention.hours", "168"),
    ]
    only_hours = BrokerConfig({"log.retention.hours": "2"})
    shown = entry(only_hours.describe_topic({}), "retention.ms")
    assert (shown.value, shown.source, shown.synonyms) == ("7200000", ConfigSource.DEFAULT, ())


def test_names_are_selected_in_the_order_of_the_request_and_once() -> None:
    assert selected(["a", "b", "c"], ["c", "x", "a", "c"]) == ["c", "a"]
    assert selected(["a", "b"], None) == selected(["a", "b"], []) == ["a", "b"]


def test_a_dynamic_text_wins_over_the_clusters_and_the_static_one() -> None:
    key = BROKER_KEYS["message.max.bytes"]
    found = ConfigTexts({key.name: "3"}, {key.name: "2"}, {key.name: "1"}).synonyms(key)
    assert [synonym.value for synonym in found] == ["3", "2", "1", key.format(key.default)]


def test_a_sensitive_value_is_shown_nowhere() -> None:
    key = next(key for key in BROKER_KEYS.values() if key.sensitive)
    synonyms = ConfigTexts({}, {}, {key.name: "secret"}).synonyms(key)
    assert [synonym.value for synonym in synonyms] == [None] * len(synonyms)
    assert config_entry(key, "secret", synonyms, read_only=True).value is None


def test_an_unknown_name_is_shown_without_its_value() -> None:
    found = unknown_entries({"my.plugin.key": "x", "num.partitions": "2"}, ConfigSource.DYNAMIC_BROKER)
    assert [(e.name, e.value, e.sensitive) for e in found.values()] == [("my.plugin.key", None, True)]
