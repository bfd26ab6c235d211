"""The configs of Apache Kafka's brokers that Penstock does not have: all are known, ignored or refused."""

from pathlib import Path
from typing import Final

import pytest

from penstock.model.config import BROKER_KEYS, BrokerConfig, configs_of, load_config_file
from penstock.model.config.foreign_keys import IGNORED, IGNORED_PREFIXES, REFUSED
from penstock.model.errors import InvalidConfig

#: of Apache Kafka 4.3.1, internal ones included
_KAFKA: Final = Path(__file__).with_name("kafka_broker_configs.txt").read_text().split()
#: removed in Kafka 4, and still in files that were written before
_EARLIER: Final = {
    "auto.include.jmx.reporter",
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "delegation.token.master.key",
    "inter.broker.protocol.version",
    "log.message.downconversion.enable",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "reserved.broker.max.id",
}


def test_each_config_of_kafka_has_one_decision() -> None:
    foreign = [*IGNORED, *REFUSED]
    assert len(_KAFKA) == 360
    assert sorted(set(_KAFKA) - BROKER_KEYS.keys()) == sorted(set(foreign) - _EARLIER)
    assert len(foreign) == len(set(foreign))
    assert not BROKER_KEYS.keys() & set(foreign)
    assert set(foreign) > _EARLIER
    assert not _EARLIER & set(_KAFKA)


def test_a_server_properties_file_with_all_ignored_configs_starts_a_broker() -> None:
    lines = [f"{name}=anything" for name in (*IGNORED, *(f"{prefix}x" for prefix in IGNORED_PREFIXES))]
    file = load_config_file("\n".join([*lines, "num.partitions=3"]), "properties")
    assert file.configs == {"num.partitions": "3"}
    assert file.ignored == {**IGNORED, **{f"{prefix}x": why for prefix, why in IGNORED_PREFIXES.items()}}
    assert BrokerConfig(file.configs).num_partitions == 3
    assert all("\n" not in reason and "anything" not in reason for reason in file.ignored.values())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_config_that_guards_something_stops_the_start(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name} is refused: ") as raised:
        load_config_file(f"{name}=com.example.Guard", "properties")
    assert "com.example" not in str(raised.value)
    for harmless in ("", *REFUSED[name].harmless):
        assert name in load_config_file(f"{name}={harmless}", "properties").ignored


@pytest.mark.parametrize(
    "name",
    ["listener.name.external.ssl.engine.factory.class", "listener.name.a.plain.ssl.engine.factory.class"],
)
def test_a_guard_of_one_listener_is_refused_too(name: str) -> None:
    with pytest.raises(InvalidConfig, match="is refused: its checks of certificates"):
        load_config_file(f"{name}: com.example.Guard", "yaml")


def test_an_ignored_config_of_one_listener_and_mechanism() -> None:
    name = "listener.name.external.oauthbearer.sasl.login.callback.handler.class"
    assert name in load_config_file(f"{name}=com.example.Login", "properties").ignored


@pytest.mark.parametrize("name", ["create.topic.policy.class.name", "alter.config.policy.class.name"])
def test_a_policy_stops_the_start(name: str) -> None:
    with pytest.raises(InvalidConfig, match="the policy would not be enforced"):
        BrokerConfig(load_config_file(f"{name}=com.example.Policy", "properties").configs)
    assert BrokerConfig({name: ""})[name] == ""


def test_an_ignored_config_on_the_command_line_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match=r"metric.reporters has no effect: .*penstock.metrics.listener"):
        configs_of([("metric.reporters", "com.example.Reporter")])
