"""Secured brokers and clusters in tests."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from penstock.testing import broker, cluster
from penstock.testing.clusters import reserve_port
from penstock.testing.security import new_security

pytest.importorskip("cryptography")


def produce(bootstrap: str, settings: dict[str, str], value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.produce("t", value, on_delivery=lambda error, message: failures.append(error))
    producer.flush(60)
    assert failures == [None]


def test_a_secured_broker_serves_its_user_alone() -> None:
    with broker(secure=True) as running:
        produce(running.bootstrap, running.client_config, b"x")
        stranger = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=0.5)


def test_a_secured_cluster_replicates_and_fails_over() -> None:
    """Quorum, replication and forwarding over mutual TLS."""
    with cluster(brokers=3, secure=True) as running:
        produce(running.bootstrap, running.client_config, b"one")
        running.kill(running.wait_for_leader("t"))
        produce(running.bootstrap, running.client_config, b"two")
        own = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": running.bootstrap, **running.client_config, **own})
        consumer.subscribe(["t"])
        values: list[bytes | None] = []
        while len(values) < 2:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
        consumer.close()
        assert values == [b"one", b"two"]


def test_a_cluster_moves_to_tls_broker_by_broker() -> None:
    """As docs/tls.md has it: add a listener, move the clients, remove the old listener."""
    security = new_security("127.0.0.1")
    with cluster(brokers=3) as running, ExitStack() as reserved:
        old = {node: running.address(node) for node in running.ids}
        ports = {node: reserved.enter_context(reserve_port()).getsockname()[1] for node in running.ids}

        def restart(node: int, *names: str) -> None:
            settings = running._nodes[node]._settings
            listeners = dict(each.split("://") for each in settings["listeners"].split(","))
            listeners["SASL_SSL"] = f"127.0.0.1:{ports[node]}"
            kept = {name: listeners[name] for name in (*names, "INTERNAL")}
            running.kill(node)
            settings |= security.brokers
            settings["listener.security.protocol.map"] = (
                "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,INTERNAL:PLAINTEXT"
            )
            settings["listeners"] = ",".join(f"{name}://{address}" for name, address in kept.items())
            running.start(node)

        produce(running.bootstrap, {}, b"one")
        for node in running.ids:
            restart(node, "PLAINTEXT", "SASL_SSL")
            produce(running.bootstrap, {}, b"plain")
        secured = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        produce(secured, security.client, b"two")
        for node in running.ids:
            restart(node, "SASL_SSL")
            produce(secured, security.client, b"tls")
        for address in old.values():
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1)
