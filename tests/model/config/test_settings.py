"""Settings objects take types and defaults from the tables of keys."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from penstock.broker.shares.group_settings import DeadLetterSettings, ShareTopicSettings
from penstock.groups.settings import GroupSettings
from penstock.model.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, BrokerConfig, topic_values
from penstock.model.config.broker_values import BrokerValues
from penstock.model.config.keys import ConfigKey, ConfigType, ConfigValue, table
from penstock.model.config.settings import BROKER_CONFIG, TOPIC_CONFIG, FieldsOf, changed, read
from penstock.raft.messages import ReplicaKey
from penstock.raft.ready import RaftConfig
from penstock.shares.partition import ShareLimits
from penstock.shares.settings import ShareCoordinatorSettings
from penstock.storage.config import LogConfig
from penstock.transactions.settings import TransactionSettings

SOURCE = Path(__file__).parents[3] / "src/penstock"
TYPES: dict[ConfigType, Any] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
}
KEYS = table(
    [
        ConfigKey("a.minutes", ConfigType.INT, 3, "."),
        ConfigKey("a.names", ConfigType.LIST, ("x", "y"), "."),
        ConfigKey("a.topic", ConfigType.STRING, "", "."),
        ConfigKey("a.rack", ConfigType.STRING, None, "."),
    ]
)
TOY = FieldsOf(KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    a_ms: int = TOY.integer("a.minutes", factor=60_000)
    names: frozenset[str] = TOY.choices("a.names")
    has_topic: bool = TOY.is_set("a.topic")
    size: int = TOY.parsed("a.topic", len)
    own: int = 7


def test_a_field_has_the_default_of_its_key() -> None:
    assert Toy() == Toy(a_ms=180_000, names=frozenset({"x", "y"}), has_topic=False, size=0, own=7)


def test_a_field_has_the_value_of_its_key() -> None:
    values: dict[str, ConfigValue] = {"a.minutes": 1, "a.names": ("z",), "a.topic": "dlq", "a.rack": None}
    expected = Toy(a_ms=60_000, names=frozenset({"z"}), has_topic=True, size=3, own=8)
    assert read(Toy, values, own=8) == expected
    assert changed(expected, {"a.minutes": 2}) == Toy(
        a_ms=120_000, names=frozenset({"z"}), has_topic=True, size=3, own=8
    )
    with pytest.raises(FrozenInstanceError):
        expected.own = 9  # type: ignore[misc]


def test_a_wrong_field_fails_when_its_class_is_made() -> None:
    """So it fails at import, in every test, and not when a topic gets a config."""
    with pytest.raises(KeyError, match=r"a\.hours"):
        TOY.integer("a.hours")
    with pytest.raises(AssertionError, match=r"a\.names is a LIST"):
        TOY.integer("a.names")
    with pytest.raises(AssertionError, match=r"a\.rack may be missing"):
        TOY.text("a.rack")


def test_a_new_topic_config_needs_no_other_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the log does not use used to fail every topic, unless another table named it."""
    monkeypatch.setitem(TOPIC_KEYS, "toy.ms", ConfigKey("toy.ms", ConfigType.LONG, 5, "."))
    assert read(LogConfig, topic_values({"retention.ms": "9"}, BrokerConfig())).retention_ms == 9
    assert topic_values({"toy.ms": "6"}, BrokerConfig())["toy.ms"] == 6

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Reader:
        toy_ms: int = TOPIC_CONFIG.integer("toy.ms")

    assert Reader().toy_ms == 5
    assert read(Reader, topic_values({"toy.ms": "6"}, BrokerConfig())).toy_ms == 6


def test_a_broker_without_configs_has_the_defaults_of_all_settings() -> None:
    config = BrokerConfig()
    assert GroupSettings.of(config) == GroupSettings()
    assert TransactionSettings.of(config) == TransactionSettings()
    assert ShareCoordinatorSettings.of(config) == ShareCoordinatorSettings()
    key = ReplicaKey(1)
    assert read(RaftConfig, config, key=key) == RaftConfig(key)
    assert read(LogConfig, topic_values({}, config)) == LogConfig()
    assert read(ShareTopicSettings, topic_values({}, config)) == ShareTopicSettings()


@pytest.mark.parametrize(
    ("settings", "field", "key"),
    [
        (RaftConfig, "backoff_max_ms", BROKER_KEYS["controller.quorum.election.backoff.max.ms"]),
        (ShareLimits, "lock_ms", BROKER_KEYS["group.share.record.lock.duration.ms"]),
        (ShareLimits, "lock_ms", GROUP_KEYS["share.record.lock.duration.ms"]),
        (DeadLetterSettings, "name_prefix", BROKER_KEYS["errors.deadletterqueue.topic.name.prefix"]),
        (LogConfig, "retention_ms", TOPIC_KEYS["retention.ms"]),
    ],
)
def test_a_default_has_one_source(settings: Any, field: str, key: ConfigKey) -> None:
    (found,) = (each.default for each in fields(settings) if each.name == field)
    assert found == key.default


def test_a_default_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "controller.quorum.election.backoff.max.ms"
    monkeypatch.setitem(BROKER_KEYS, name, BROKER_KEYS[name]._replace(default=1234))

    @dataclass(frozen=True)
    class Again:
        backoff_max_ms: float = BROKER_CONFIG.integer(name)

    assert Again().backoff_max_ms == 1234
    written = [
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "raft").rglob("*.py")
        if re.search(r"backoff_max_ms\b.*= [0-9]", path.read_text())
    ]
    assert written == []


@pytest.mark.parametrize(("name", "declared"), sorted(get_type_hints(BrokerValues).items()))
def test_a_declared_attribute_has_the_type_of_its_key(name: str, declared: Any) -> None:
    (key,) = (key for key in BROKER_KEYS.values() if key.name.replace(".", "_") == name)
    expected = TYPES[key.type] if key.default is not None else TYPES[key.type] | None
    assert declared == expected
    value = getattr(BrokerConfig(), name)
    assert value is None or isinstance(value, getattr(declared, "__origin__", declared))


def test_brokers_read_no_config_by_its_text() -> None:
    """`str(config["…"])` has no type that the type checker could check, and no name that it could find."""
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for folder in ("broker", "cli/machine", "groups", "shares", "transactions", "raft", "storage")
        for path in (SOURCE / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"[cC]onfig\)?\[\"", line)
    ]
    assert found == []
