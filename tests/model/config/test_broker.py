"""A broker's values, their sources, and what DescribeConfigs shows of them."""

from __future__ import annotations

import pytest

from penstock.model.config import (
    BROKER_KEYS,
    BrokerConfig,
    ConfigEntry,
    ConfigSource,
    Endpoint,
    describe_broker,
)
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import InvalidConfig


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(e for e in entries if e.name == name)


def test_values_are_typed_by_name_and_by_attribute() -> None:
    config = BrokerConfig({"num.partitions": "4", "auto.create.topics.enable": "false", "log.dirs": "/a,/b"})
    assert config["num.partitions"] == config.num_partitions == 4
    assert config.auto_create_topics_enable is False
    assert config.data_dirs == ("/a", "/b")
    assert set(config) == set(BROKER_KEYS)


def test_dynamic_goes_before_the_clusters_before_static_before_default() -> None:
    config = BrokerConfig({"message.max.bytes": "1"})
    assert config.message_max_bytes == 1
    config.set_dynamic(dynamic_default={"message.max.bytes": "2"})
    assert config.message_max_bytes == 2
    config.set_dynamic(dynamic={"message.max.bytes": "3"})
    assert config.message_max_bytes == 3
    assert config.topic_defaults["max.message.bytes"] == 3

    shown = entry(describe_broker(config), "message.max.bytes")
    assert (shown.value, shown.source, shown.read_only) == ("3", ConfigSource.DYNAMIC_BROKER, False)
    assert [(s.value, s.source.name) for s in shown.synonyms] == [
        ("3", "DYNAMIC_BROKER"),
        ("2", "DYNAMIC_DEFAULT_BROKER"),
        ("1", "STATIC_BROKER"),
        ("1048588", "DEFAULT"),
    ]
    config.set_dynamic(dynamic={}, dynamic_default={})
    assert config.message_max_bytes == 1


def test_a_refused_update_changes_nothing() -> None:
    config = BrokerConfig()
    for bad in (
        {"num.partitions": "2"},
        {"message.max.bytes": "many"},
        {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
    ):
        with pytest.raises(InvalidConfig):
            config.check_dynamic(dynamic=bad)
        with pytest.raises(InvalidConfig):
            config.set_dynamic(dynamic={"background.threads": "3", **bad})
    assert config.background_threads == 10
    assert config.dynamic == {}


def test_check_dynamic_does_not_apply() -> None:
    config = BrokerConfig()
    config.check_dynamic(dynamic={"message.max.bytes": "5"})
    assert config.message_max_bytes == 1048588


def test_a_per_broker_config_is_refused_for_the_cluster() -> None:
    config = BrokerConfig()
    config.set_dynamic(dynamic={"sasl.kerberos.min.time.before.relogin": "58000"})
    with pytest.raises(InvalidConfig, match="whole cluster"):
        config.set_dynamic(dynamic_default={"sasl.kerberos.min.time.before.relogin": "58000"})


def test_the_finest_retention_unit_wins() -> None:
    hours = {"log.retention.hours": "2"}
    minutes = {**hours, "log.retention.minutes": "3"}
    assert BrokerConfig(hours).topic_defaults["retention.ms"] == 7_200_000
    assert BrokerConfig(minutes).topic_defaults["retention.ms"] == 180_000
    assert BrokerConfig({**minutes, "log.retention.ms": "5"}).topic_defaults["retention.ms"] == 5
    assert BrokerConfig({"log.retention.hours": "-1"}).topic_defaults["retention.ms"] == -1
    assert BrokerConfig({"log.flush.scheduler.interval.ms": "7"}).topic_defaults["flush.ms"] == 7


@pytest.mark.parametrize(
    ("configs", "complaint"),
    [
        ({"log.retention.ms": "0"}, "at least 1, or -1"),
        ({"node.id": "1", "broker.id": "2"}, "set only node.id"),
        ({"queued.max.request.bytes": "5"}, "at least one request"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "not be more than",
        ),
        ({"log.dirs": ""}, "must not be empty"),
    ],
)
def test_values_that_do_not_fit_together(configs: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        BrokerConfig(configs)


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_node_id_and_broker_id_are_one_number(name: str) -> None:
    config = BrokerConfig({name: "7"})
    assert config["node.id"] == config["broker.id"] == 7
    assert entry(describe_broker(config), "broker.id").source is ConfigSource.STATIC_BROKER
    assert BrokerConfig()["broker.id"] == 1


def test_request_memory_is_always_bounded() -> None:
    assert BrokerConfig().request_memory_bytes == 256 * 2**20
    assert BrokerConfig({"socket.request.max.bytes": "1000000000"}).request_memory_bytes == 2_000_000_000
    assert BrokerConfig({"queued.max.request.bytes": "200000000"}).request_memory_bytes == 200_000_000


def endpoints(**configs: str) -> tuple[Endpoint, ...]:
    return BrokerConfig({name.replace("_", "."): value for name, value in configs.items()}).endpoints


def test_endpoints() -> None:
    assert endpoints() == (Endpoint("PLAINTEXT", "", 9092, "", 9092, "PLAINTEXT"),)
    assert endpoints(listeners="PLAINTEXT://[::1]:0") == (
        Endpoint("PLAINTEXT", "::1", 0, "::1", 0, "PLAINTEXT"),
    )
    assert endpoints(listeners="plaintext://0.0.0.0:1")[0].advertised_host == ""
    assert endpoints(
        listeners="IN://10.0.0.1:1,OUT://:2",
        advertised_listeners="OUT://public.example:3",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
    ) == (
        Endpoint("IN", "10.0.0.1", 1, "10.0.0.1", 1, "PLAINTEXT"),
        Endpoint("OUT", "", 2, "public.example", 3, "PLAINTEXT"),
    )


def test_controller_listeners_are_not_for_clients() -> None:
    configs = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
    }
    assert [endpoint.name for endpoint in BrokerConfig(configs).endpoints] == ["PLAINTEXT"]
    with pytest.raises(InvalidConfig, match="add one for clients"):
        BrokerConfig({**configs, "listeners": "CONTROLLER://:9093"})


@pytest.mark.parametrize(
    ("configs", "complaint"),
    [
        ({"listeners": "localhost:9092"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://localhost:70000"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "two listeners called PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "two listeners at :1"),
        ({"listeners": "MINE://:1"}, "add MINE:PLAINTEXT"),
        ({"advertised.listeners": "OTHER://:1"}, "OTHER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients can reach"),
        ({"listener.security.protocol.map": "PLAINTEXT:TELNET"}, "write NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "OTHER"}, "OTHER"),
    ],
)
def test_bad_listeners(configs: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        BrokerConfig(configs)


def test_connection_overrides_name_addresses() -> None:
    config = BrokerConfig({"max.connections.per.ip.overrides": "127.0.0.1:5, [::1]:2,fe80::1:3"})
    assert config.max_connections_by_ip == {"127.0.0.1": 5, "::1": 2, "fe80::1": 3}
    assert BrokerConfig().max_connections_by_ip == {}


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:many", "a.host:5", ":5", "127.0.0.1:-1"])
def test_connection_overrides_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="address and a count"):
        BrokerConfig({"max.connections.per.ip.overrides": text})


def test_settings_without_effect_are_listed() -> None:
    config = BrokerConfig(
        {
            "num.io.threads": "4",
            "num.partitions": "2",
            "transaction.max.timeout.ms": "1000",
            "num.replica.alter.log.dirs.threads": "2",
        }
    )
    found = {key.name: key.without_effect for key in config.settings_without_effect()}
    assert found == {
        "num.io.threads": "Accepted for compatibility; without effect.",
        "num.replica.alter.log.dirs.threads": ("Without effect: replicas are moved one after the other."),
    }


_EXTERNAL = {"listeners": "EXTERNAL://:9092", "listener.security.protocol.map": "EXTERNAL:SASL_SSL"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "listener.name.EXTERNAL.ssl.client.auth",
            "listener.name.EXTERNAL.ssl.client.auth is for a listener EXTERNAL, but the listeners are "
            "external, internal; did you mean listener.name.external.ssl.client.auth?",
        ),
        ("listener.name.extrenal.ssl.client.auth", "did you mean listener.name.external.ssl.client.auth?"),
        ("listener.name.q.ssl.client.auth", "is for a listener q, but the listeners are external, internal"),
        ("listener.name.external.ssl.clent.auth", "did you mean listener.name.external.ssl.client.auth?"),
        ("listener.name.EXTERNAL.ssl.clent.auth", "did you mean listener.name.external.ssl.client.auth?"),
        ("Listener.name.external.ssl.client.auth", "did you mean listener.name.external.ssl.client.auth?"),
        (
            "listener.name.external.SCRAM-SHA-512.sasl.jaas.config",
            "did you mean listener.name.external.scram-sha-512.sasl.jaas.config?",
        ),
        # A key that all listeners share would have no effect for one of them.
        ("listener.name.external.penstock.authentication.timeout.ms", "Unknown broker config name"),
    ],
)
def test_a_key_of_a_listener_that_would_be_ignored_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        BrokerConfig({**_EXTERNAL, name: "required"})
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nodes_may_share_the_keys_of_other_nodes_listeners() -> None:
    protocols = "EXTERNAL:SASL_SSL,OTHER:SSL"
    name = "listener.name.other.ssl.client.auth"
    for others in ({"listener.security.protocol.map": protocols}, {"controller.listener.names": "OTHER"}):
        config = BrokerConfig({**_EXTERNAL, **others, name: "required"})
        assert config.for_listener("OTHER")("ssl.client.auth") == "required"


def test_a_key_for_one_listener_and_one_mechanism() -> None:
    config = BrokerConfig(
        {
            **_EXTERNAL,
            "ssl.client.auth": "none",
            "listener.name.external.ssl.client.auth": "required",
            "listener.name.external.scram-sha-256.sasl.jaas.config": "secret text",
        }
    )
    assert config.for_listener("OTHER")("ssl.client.auth") == "none"
    assert config.for_listener("EXTERNAL")("ssl.client.auth") == "required"
    assert config.for_listener("EXTERNAL", "PLAIN")("sasl.jaas.config") is None
    assert config.for_listener("EXTERNAL", "SCRAM-SHA-256")("sasl.jaas.config") == "secret text"


def test_secrets_are_not_described() -> None:
    name = "listener.name.external.scram-sha-256.sasl.jaas.config"
    config = BrokerConfig({**_EXTERNAL, name: "secret text", "ssl.key.password": "secret text"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert "secret text" not in repr(entries)
    for each in (name, "ssl.key.password"):
        assert entries[each].sensitive and entries[each].value is None
        assert [synonym.value for synonym in entries[each].synonyms] == [None]


@pytest.mark.parametrize("name", ["listener.name.external.num.partitions", "listener.name.x.gssapi.ssl.key"])
def test_unknown_keys_of_listeners_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="Unknown broker config name"):
        BrokerConfig({name: "1"})


def test_listeners_that_other_machines_reach() -> None:
    listeners = "PLAINTEXT://:1,A://127.0.0.1:2,B://[::1]:3,C://0.0.0.0:4,D://10.0.0.1:5"
    protocols = "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT,C:SSL,D:PLAINTEXT"
    config = BrokerConfig({"listeners": listeners, "listener.security.protocol.map": protocols})
    assert config.insecure_listeners() == ["PLAINTEXT://*:1", "D://10.0.0.1:5"]


@pytest.mark.parametrize(
    ("internal", "found"),
    [
        ({"listener.security.protocol.map": "C:SASL_SSL,INTERNAL:SSL"}, ["INTERNAL://10.0.0.1:2"]),
        (
            {
                "listener.security.protocol.map": "C:SASL_SSL,INTERNAL:SSL",
                "listener.name.internal.ssl.client.auth": "required",
            },
            [],
        ),
        ({"listener.security.protocol.map": "C:SASL_SSL,INTERNAL:SASL_SSL"}, []),
        (
            {
                "listener.security.protocol.map": "C:SASL_SSL,INTERNAL:SASL_SSL",
                "penstock.internal.tls.mode": "prefer",
            },
            ["INTERNAL://10.0.0.1:2"],
        ),
    ],
)
def test_brokers_need_certificates_where_others_reach_their_listener(
    internal: dict[str, str], found: list[str]
) -> None:
    listeners = {"listeners": "C://10.0.0.1:1,INTERNAL://10.0.0.1:2"}
    assert BrokerConfig(listeners | internal).insecure_listeners() == found


@pytest.mark.parametrize(
    ("configs", "found"),
    [
        ({}, ["A://*:1", "B://*:2"]),
        ({"ssl.client.auth": "required"}, ["B://*:2"]),
        ({"ssl.client.auth": "requested"}, ["A://*:1", "B://*:2"]),
        ({"authorizer.class.name": STANDARD_AUTHORIZER}, ["B://*:2"]),
    ],
)
def test_listeners_without_encryption_or_authentication_are_known(
    configs: dict[str, str], found: list[str]
) -> None:
    listeners = {
        "listeners": "A://:1,B://:2,C://:3,D://127.0.0.1:4,E://127.0.0.1:5",
        "listener.security.protocol.map": "A:SSL,B:SASL_PLAINTEXT,C:SASL_SSL,D:SSL,E:SASL_PLAINTEXT",
    }
    config = BrokerConfig(listeners | configs)
    assert list(config.weak_listeners()) == found
    assert config.insecure_listeners() == []


def test_a_name_that_starts_like_a_loopback_address_is_no_loopback() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://127.example:1"})
    assert config.insecure_listeners() == ["PLAINTEXT://127.example:1"]


def test_a_mounted_backup_needs_a_broker_in_memory_that_is_alone() -> None:
    with pytest.raises(InvalidConfig, match=r"penstock.mount needs penstock.memory"):
        BrokerConfig({"penstock.mount": "a"})
    voters = {"controller.quorum.voters": "1@h:1,2@h:2", "node.id": "1"}
    with pytest.raises(InvalidConfig, match=r"penstock.mount is for one broker"):
        BrokerConfig({"penstock.mount": "a", "penstock.memory": "true", **voters})
    assert BrokerConfig({"penstock.mount": "a", "penstock.memory": "true"}).penstock_mount == "a"
