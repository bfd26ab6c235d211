"""Topics that a link mirrors need Alter on the cluster: they have what the user of the link may read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.metadata.image import LINK
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.storage.memory import MemoryFiles
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.configs import DELETE, SET, alter, replace
from tests.broker.configs import TOPIC as TOPIC_CONFIGS
from tests.broker.disks import on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic, new_name, request_topic

OP, TOPIC, CLUSTER = Operation, ResourceType.TOPIC, ResourceType.CLUSTER
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
PROMOTED = f"west/promoted/{'A' * 22}/secrets"
MIRRORING = f"west/mirroring/{'A' * 22}/secrets"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with on_disk(MemoryFiles(), **CONFIG) as started:
        yield started.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as connected:
        yield connected


@pytest.fixture
def client(bootstrap: str, admin: Admin) -> Iterator[RawClient]:
    """A client that may create, configure and read all topics of this cluster."""
    for operation in (OP.CREATE, OP.ALTER_CONFIGS, OP.ALTER, OP.READ, OP.DESCRIBE_CONFIGS):
        admin.allow(operation, TOPIC, "*")
    with RawClient(bootstrap) as connected:
        yield connected
    admin.revoke()


def test_a_topic_that_names_a_link_is_not_created(client: RawClient, admin: Admin) -> None:
    """The attack: a topic of one's own mirrors what only the user of the link may read at the source."""
    name = new_name()
    result = request_topic(client, name, 1, {"penstock.link": MIRRORING})
    assert (result.name, result.error_code) == (name, DENIED)
    assert request_topic(client, name, 1, {"retention.ms": "1000"}).error_code == ErrorCode.NONE
    admin.allow(OP.ALTER, CLUSTER, "kafka-cluster")
    assert request_topic(client, new_name(), 1, {"penstock.link": MIRRORING}).error_code != DENIED


@pytest.mark.parametrize("value", ["", PROMOTED])
def test_the_link_of_a_topic_is_not_changed(client: RawClient, admin: Admin, value: str) -> None:
    topic = create_topic(admin).name
    assert alter(admin, TOPIC_CONFIGS, topic, ("penstock.link", SET, value))[0] == ErrorCode.NONE
    for change in (SET, MIRRORING), (SET, value), (DELETE, None):
        assert alter(client, TOPIC_CONFIGS, topic, ("penstock.link", *change))[0] == DENIED
    for configs in {"penstock.link": MIRRORING}, {"retention.ms": "1000"}, {}:
        assert replace(client, TOPIC_CONFIGS, topic, configs)[0] == DENIED
    kept = {"penstock.link": value, "retention.ms": "1000"}
    assert replace(client, TOPIC_CONFIGS, topic, kept)[0] == ErrorCode.NONE
    assert alter(client, TOPIC_CONFIGS, topic, ("retention.ms", DELETE, None))[0] == ErrorCode.NONE
    admin.allow(OP.ALTER, CLUSTER, "kafka-cluster")
    assert alter(client, TOPIC_CONFIGS, topic, ("penstock.link", DELETE, None))[0] == ErrorCode.NONE


def test_a_link_uses_no_files_of_brokers_for_others_than_super_users(client: RawClient, admin: Admin) -> None:
    admin.allow(OP.ALTER, CLUSTER, "kafka-cluster")
    name = new_name()
    link = {"bootstrap.servers": "127.0.0.1:1", "paused": "true", "security.protocol": "SSL"}
    given = [(key, SET, value) for key, value in link.items()]
    assert alter(client, LINK, name, *given)[0] == ErrorCode.NONE
    code, message = alter(client, LINK, name, ("ssl.keystore.location", SET, "/etc/hostname"))
    assert (code, "only a super user" in (message or "")) == (DENIED, True)
    secret = ("ssl.keystore.key", SET, "x")
    assert alter(client, LINK, name, secret)[0] == ErrorCode.NONE
    moved = ("bootstrap.servers", SET, "127.0.0.1:2")
    assert alter(client, LINK, name, moved)[0] == DENIED
    assert alter(client, LINK, name, moved, secret)[0] == ErrorCode.NONE
    assert replace(client, LINK, name, {})[0] == ErrorCode.NONE
