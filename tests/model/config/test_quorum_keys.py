"""Configs of a node's place in its cluster."""

from __future__ import annotations

import pytest

from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidConfig

_LISTENERS = "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:19092"
_VOTERS = "controller.quorum.voters"
_BOOTSTRAP = "controller.quorum.bootstrap.servers"


def test_a_broker_without_an_internal_listener_is_a_cluster_of_its_own() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert config.internal_endpoint is None and not config.quorum_voters


def test_the_internal_listener_is_none_of_the_clients() -> None:
    config = BrokerConfig({"listeners": _LISTENERS, _VOTERS: "1@127.0.0.1:19092,2@[::1]:19093"})
    assert config.internal_endpoint is not None
    assert (config.internal_endpoint.name, config.internal_endpoint.port) == ("INTERNAL", 19092)
    assert [endpoint.name for endpoint in config.endpoints] == ["PLAINTEXT"]
    assert config.quorum_voters == {1: ("127.0.0.1", 19092), 2: ("::1", 19093)}


def test_kafkas_names_of_the_internal_listener_work() -> None:
    config = BrokerConfig(
        {
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            _VOTERS: "1@localhost:9093",
        }
    )
    assert config.internal_endpoint is not None and config.internal_endpoint.name == "CONTROLLER"


def test_a_controller_alone_needs_no_listener_for_clients() -> None:
    config = BrokerConfig(
        {"process.roles": "controller", "listeners": "INTERNAL://:19092", _VOTERS: "1@localhost:19092"}
    )
    assert not config.is_broker and not config.endpoints


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({_VOTERS: "1@127.0.0.1"}, "write ID@HOST:PORT"),
        ({_VOTERS: "1@a:99999"}, "write ID@HOST:PORT"),
        ({_VOTERS: "1@a:1,1@b:2"}, "node 1 twice"),
        ({"process.roles": "broker"}, "needs the addresses of the voters"),
        ({"process.roles": "broker", _VOTERS: "1@a:1"}, "process.roles must contain controller"),
        ({"listeners": "PLAINTEXT://:9092", _VOTERS: "1@a:1"}, "add INTERNAL://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:9092", "process.roles": "controller"}, "add INTERNAL://HOST:PORT"),
        ({"listeners": "INTERNAL://:9092"}, "add one for clients"),
        ({_BOOTSTRAP: "127.0.0.1:19093"}, "does not define the voters"),
        ({_BOOTSTRAP: "127.0.0.1:19092,127.0.0.1:19093"}, "does not define the voters"),
    ],
)
def test_contradicting_configs_are_refused(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        BrokerConfig({"listeners": _LISTENERS, **settings})
