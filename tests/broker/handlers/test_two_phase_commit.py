"""Two-phase commit on the wire (KIP-939): InitProducerId 6, and outcomes from other connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker.conftest import penstock_only
from tests.broker.handlers.transaction_requests import Txn, init
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, fetch, until, values_in

pytestmark = penstock_only
NO_TIMEOUT_MS = 2**31 - 1


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker(config={"transaction.two.phase.commit.enable": "true"}) as running:
        yield running.bootstrap


def keep(client: RawClient, name: str, *, two_phase: bool = True) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=60_000,
        enable_2pc=two_phase,
        keep_prepared_txn=True,
    )
    return client.call(INIT_PRODUCER_ID, 6, request)


def outcome(client: RawClient, topic: Topic) -> tuple[bool, bool]:
    """Whether the records are below the last stable offset, and whether they are aborted."""
    data = fetch(client, topic, 0, isolation_level=1)
    return values_in(data) != [], bool(data.aborted_transactions)


@pytest.mark.parametrize("committed", [True, False])
def test_another_connection_ends_a_prepared_transaction(address: str, topic: Topic, committed: bool) -> None:
    with RawClient(address) as first:
        error, txn = init(first, version=6, enable_2pc=True)
        assert error == "NONE"
        assert txn.produce(topic, b"prepared") == "NONE"
        assert txn.describe().transaction_timeout_ms == NO_TIMEOUT_MS
    with RawClient(address) as second:
        kept = keep(second, txn.id)
        assert kept.error_code == ErrorCode.NONE
        assert (kept.producer_id, kept.producer_epoch) == (txn.producer_id, txn.epoch + 1)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (
            txn.producer_id,
            txn.epoch,
        )
        assert outcome(second, topic) == (False, False)
    with RawClient(address) as third:
        fenced = txn._replace(client=third)
        assert fenced.end(committed, 5).error_code == ErrorCode.PRODUCER_FENCED
        assert fenced.produce(create_topic(third), b"late") == "INVALID_PRODUCER_EPOCH"
        ending = Txn(third, txn.id, kept.producer_id, kept.producer_epoch)
        answer = ending.end(committed, 5)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, kept.producer_epoch + 1)
        wanted = "CompleteCommit" if committed else "CompleteAbort"
        until(lambda: ending.describe().transaction_state == wanted)
        assert ending.end(committed, 5).error_code == ErrorCode.NONE, "the first answer may be lost"
        until(lambda: outcome(third, topic) == (True, not committed))


def test_a_transaction_of_the_older_protocol_is_kept(client: RawClient, topic: Topic) -> None:
    """librdkafka writes, and its transaction loses its timeout through another connection."""
    _, txn = init(client, version=4)
    assert txn.add(topic.name) == ["NONE"]
    assert txn.produce(topic, b"a", version=10) == "NONE"
    kept = keep(client, txn.id)
    assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (txn.producer_id, txn.epoch)
    assert txn.describe().transaction_timeout_ms == NO_TIMEOUT_MS
    ending = txn._replace(epoch=kept.producer_epoch)
    assert ending.end(True, 5).error_code == ErrorCode.NONE
    until(lambda: outcome(client, topic) == (True, False))


def test_a_prepared_transaction_that_is_not_kept_is_aborted(client: RawClient, topic: Topic) -> None:
    _, txn = init(client, version=6, enable_2pc=True)
    assert txn.produce(topic, b"a") == "NONE"
    until(lambda: init(client, txn.id, 6, enable_2pc=True)[0] == "NONE")
    until(lambda: outcome(client, topic) == (True, True))


def test_a_broker_without_it_refuses() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        assert init(client, version=6, enable_2pc=True)[0] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        assert init(client, version=6, keep_prepared_txn=True)[0] == "NONE"
