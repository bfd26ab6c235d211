"""The topology of real clients: idempotent and transactional producers, groups of three types, rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka
import pytest
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker
from tests.console.logins import tls_login
from tests.console.share_members import working
from tests.waiting import eventually

pytestmark = pytest.mark.process


@contextmanager
def reading(bootstrap: str, topic: str, group: str, protocol: str) -> Iterator[None]:
    """A member of a group that has committed a message and goes on."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": f"client of {group}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    try:
        message = None
        while message is None:
            message = consumer.poll(1.0)
        assert message.error() is None, message.error()
        consumer.commit(message, asynchronous=False)
        yield
    finally:
        consumer.close()


def produce(bootstrap: str, topic: str, **config: Any) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, **config}
    )
    if "transactional.id" in config:
        producer.init_transactions()
        producer.begin_transaction()
    for n in range(6):
        producer.produce(topic, str(n))
    if "transactional.id" in config:
        producer.commit_transaction()
    assert producer.flush(30) == 0
    return producer


def topology(client: TestClient, **query: str) -> Any:
    answer = client.get("/api/topology", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_producers_and_groups_of_a_topic(console: TestClient, bootstrap: str, topic: str) -> None:
    transactional = {"transactional.id": f"tx of {topic}"}
    producers = [produce(bootstrap, topic), produce(bootstrap, topic, **transactional)]
    groups = {f"{kind} of {topic}": kind for kind in ("classic", "consumer", "share")}
    with ExitStack() as stack:
        for name, kind in groups.items():
            if kind == "share":
                stack.enter_context(working(bootstrap, topic, name))
            else:
                stack.enter_context(reading(bootstrap, topic, name, kind))

        def have_members() -> bool:
            listed = topology(console, q=topic)["groups"]
            return {each["name"]: each["members"] for each in listed} == dict.fromkeys(groups, 1)

        eventually(have_members, 60)
        found = topology(console, q=topic)
    assert [each["name"] for each in found["topics"]] == [topic]
    assert {each["name"]: each["kind"] for each in found["groups"]} == groups
    clients = {each["name"]: each["clients"][0] for each in found["groups"]}
    assert clients[f"classic of {topic}"]["client"] == f"client of classic of {topic}"
    assert clients[f"share of {topic}"]["client"] == "worker-1"
    assert all(each["host"] for each in clients.values())
    reads = {each["group"]: each for each in found["reads"]}
    assert all(reads[name]["assigned"] for name in groups)
    assert reads[f"classic of {topic}"]["lag"] > 0
    names = {each["transactional_id"] for each in found["producers"]}
    assert names == {None, f"tx of {topic}"}
    assert {each["topic"] for each in found["writes"]} == {topic}
    assert found["gaps"] == {"topics": None, "groups": None, "producers": None}
    del producers


def test_data_that_a_user_may_not_see_is_refused_and_not_empty() -> None:
    pytest.importorskip("cryptography")
    acls = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with broker(secure=True, config=acls) as running:
        settings = ConsoleSettings(
            bootstrap=parse_bootstrap(running.bootstrap),
            login=tls_login(running),
            hosts=["testserver"],
            timeout_s=30.0,
        )
        with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
            admin = {"user": "admin", "password": running.client_config["sasl.password"]}
            assert client.post("/api/login", json=admin).status_code == 200
            assert client.post("/api/topics", json={"name": "seen", "replicas": 1}).status_code == 200
            user = {"user": "reader", "password": "reader-pw-1", "mechanism": "SCRAM-SHA-512"}
            assert client.post("/api/users", json=user).status_code == 200
            acl = {
                "principal": "User:reader",
                "host": "*",
                "operation": "describe",
                "permission": "allow",
                "resource": "topic",
                "name": "seen",
                "pattern": "literal",
            }
            assert client.post("/api/acls", json=acl).status_code == 200
            client.post("/api/logout")
            client.post("/api/login", json={"user": "reader", "password": "reader-pw-1"})
            found = topology(client)
            assert [each["name"] for each in found["topics"]] == ["seen"]
            assert found["gaps"]["producers"]["state"] == "refused"
            assert "needs Read" in found["gaps"]["producers"]["reason"]
