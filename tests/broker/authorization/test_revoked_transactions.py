"""Access that is revoked in the middle of a transaction ends with the next request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.disks import on_disk
from tests.broker.handlers.transaction_requests import Txn, find, init
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, fetch, new_name, until, values_in

READ_COMMITTED = 1
V1, V2 = 4, 5
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
NO_TOPIC, NO_GROUP, NO_TRANSACTION = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)


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
    with RawClient(bootstrap) as connected:
        yield connected
    admin.revoke()


@pytest.fixture
def topic(admin: Admin) -> Topic:
    made = create_topic(admin)
    admin.allow(Operation.WRITE, TOPIC, made.name)
    return made


@pytest.fixture
def txn(client: RawClient, admin: Admin, topic: Topic) -> Txn:
    """A transaction with one record."""
    name = new_name("txn")
    admin.allow(Operation.WRITE, TRANSACTION, name)
    error, started = init(client, name)
    assert error == "NONE"
    assert started.produce(topic, b"allowed") == "NONE"
    return started


def wait_for_commit(admin: Admin, topic: Topic) -> None:
    """Wait for the record of `txn` and no other; the marker has a value, too."""
    until(lambda: b"allowed" in values_in(fetch(admin, topic, 0, isolation_level=READ_COMMITTED)))
    assert b"denied" not in values_in(fetch(admin, topic, 0))


def end(txn: Txn, version: int) -> str:
    return ErrorCode(txn.end(True, version).error_code).name


@pytest.mark.parametrize("version", [V1, V2])
def test_the_transactional_id(client: RawClient, admin: Admin, topic: Topic, txn: Txn, version: int) -> None:
    assert admin.revoke(txn.id) == 1
    assert txn.produce(topic, b"denied", sequence=1) == NO_TRANSACTION
    assert txn.add(topic.name) == [NO_TRANSACTION]
    assert txn.commit_offset("g", topic.name, 3) == NO_TRANSACTION
    assert end(txn, version) == NO_TRANSACTION
    admin.allow(Operation.DESCRIBE, TRANSACTION, txn.id)
    assert init(client, txn.id)[0] == NO_TRANSACTION
    assert values_in(fetch(admin, topic, 0, isolation_level=READ_COMMITTED)) == []
    # The transaction is still open: access that is granted again can end it.
    admin.allow(Operation.WRITE, TRANSACTION, txn.id)
    assert end(txn, version) == "NONE"
    wait_for_commit(admin, topic)


def test_a_topic(admin: Admin, topic: Topic, txn: Txn) -> None:
    """What was written while it was allowed can still be committed, as in Kafka."""
    assert admin.revoke(topic.name) == 1
    assert txn.produce(topic, b"denied", sequence=1) == NO_TOPIC
    assert txn.add(topic.name) == [NO_TOPIC]
    assert end(txn, V2) == "NONE"
    wait_for_commit(admin, topic)


def test_a_group(client: RawClient, admin: Admin, topic: Topic, txn: Txn) -> None:
    group = new_name("group")
    admin.allow(Operation.READ, GROUP, group)
    admin.allow(Operation.READ, TOPIC, topic.name)

    def add_offsets() -> str:
        request = AddOffsetsToTxnRequest(
            transactional_id=txn.id, producer_id=txn.producer_id, producer_epoch=txn.epoch, group_id=group
        )
        return ErrorCode(client.call(ADD_OFFSETS_TO_TXN, 3, request).error_code).name

    assert find(client, group, 0) == ErrorCode.NONE
    until(lambda: add_offsets() == "NONE")
    assert txn.commit_offset(group, topic.name, 3) == "NONE"
    assert admin.revoke(group) == 1
    assert add_offsets() == NO_GROUP
    assert txn.commit_offset(group, topic.name, 3) == NO_GROUP
    assert end(txn, V2) == "NONE"
