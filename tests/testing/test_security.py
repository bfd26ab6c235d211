"""Secured brokers and clusters in tests."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from penstock.model.errors import ProtocolError
from penstock.testing import broker, cluster
from penstock.testing.clusters import Cluster, reserve_port
from penstock.testing.security import new_security
from tests.secured import versions
from tests.waiting import eventually

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


class _Steady:
    """A producer that sends numbers until it is stopped, and knows which of them were acknowledged."""

    def __init__(self, bootstrap: str, settings: dict[str, str]) -> None:
        own = {"enable.idempotence": "true", "linger.ms": "1", "log_level": "0"}
        # By default librdkafka waits for up to ten seconds before it connects to a broker again.
        patience = {
            "retry.backoff.ms": "20",
            "reconnect.backoff.ms": "20",
            "reconnect.backoff.max.ms": "200",
        }
        self._producer = Producer({"bootstrap.servers": bootstrap, **own, **patience, **settings})
        self._name = settings.get("security.protocol", "PLAINTEXT")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[str] = []
        self.failures: list[object] = []
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.wait(0.005):
                return
            self._producer.produce("t", f"{self._name} {number}", on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())
        else:
            self.failures.append(error)

    def wait_for_more(self, running: Cluster) -> None:
        """Return when messages are acknowledged that were sent after this call."""
        known = len(self.acknowledged) + len(self._producer)
        running.wait_until(lambda: len(self.acknowledged) > known or bool(self.failures))

    def finish(self) -> list[str]:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0 and not self.failures
        return self.acknowledged


def read_all(bootstrap: str, settings: dict[str, str], count: int) -> list[str]:
    own = {"group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **own})
    consumer.subscribe(["t"])
    values: list[str] = []

    def has_all() -> bool:
        found = consumer.consume(1000, 0.2)
        values.extend(v.decode() for m in found if m.error() is None and (v := m.value()) is not None)
        return len(values) >= count

    eventually(has_all)
    consumer.close()
    return values


def node_principals(running: Cluster) -> set[str]:
    """The principals of all connections to internal listeners."""
    found = set()
    for node in running.ids:
        internal = running._nodes[node].broker.stages.listening.internal
        assert internal is not None
        found |= {str(connection.session.principal) for connection in list(internal.server.connections)}
    return found


def test_a_cluster_moves_to_tls_broker_by_broker() -> None:
    """The move of docs/tls.md under load: three rounds of restarts, and no message is lost or stored twice.

    Clients and nodes use plaintext before the move, and nothing but TLS after it.
    """
    security = new_security("127.0.0.1")
    with cluster(brokers=3) as running, ExitStack() as reserved:
        old = {node: running.address(node) for node in running.ids}
        ports = {node: reserved.enter_context(reserve_port()).getsockname()[1] for node in running.ids}
        secured = ",".join(f"127.0.0.1:{port}" for port in ports.values())

        def restart(node: int, mode: str, *names: str) -> None:
            settings = running._nodes[node]._settings
            listeners = dict(each.split("://") for each in settings["listeners"].split(","))
            listeners["SASL_SSL"] = f"127.0.0.1:{ports[node]}"
            running.stop(node)
            settings |= security.brokers
            settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,INTERNAL:SSL"
            settings["penstock.internal.tls.mode"] = mode
            settings["listeners"] = ",".join(f"{name}://{listeners[name]}" for name in (*names, "INTERNAL"))
            running.start(node)
            running.wait_for_isr("t")

        plain = _Steady(running.bootstrap, {})
        plain.wait_for_more(running)
        for node in running.ids:
            restart(node, "allow", "PLAINTEXT", "SASL_SSL")
            plain.wait_for_more(running)
        assert node_principals(running) == {"User:ANONYMOUS"}
        tls = _Steady(secured, security.client)
        tls.wait_for_more(running)
        for node in running.ids:
            restart(node, "prefer", "PLAINTEXT", "SASL_SSL")
            plain.wait_for_more(running)
            tls.wait_for_more(running)
        eventually(lambda: node_principals(running) == {"User:CN=broker"})
        sent = plain.finish()
        for node in running.ids:
            restart(node, "require", "SASL_SSL")
            tls.wait_for_more(running)
        sent += tls.finish()
        assert sorted(read_all(secured, security.client, len(sent))) == sorted(sent)
        for address in old.values():
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1)
        internal = running._nodes[1].broker.stages.listening.internal
        assert internal is not None
        with pytest.raises((OSError, ProtocolError)):
            versions(internal.listener.port)
