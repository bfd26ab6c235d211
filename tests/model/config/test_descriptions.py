"""Entries of DescribeConfigs: sources, synonyms, selection."""

from __future__ import annotations

from penstock.model.config import ConfigSource
from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.descriptions import ConfigTexts, config_entry, selected, unknown_entries


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
