"""The leader's side of AddPartitionsToTxn: requests that are in flight, merged, and what fails them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.broker.produce import verification
from penstock.broker.produce.verification import Lane, Membership, TransactionVerifier
from penstock.model.errors import ErrorCode
from penstock.net.peer_errors import PeerLost
from penstock.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

COORDINATOR = 3
ADDS = Membership("t", 7, 0, adds=True)


class Coordinator:
    """Answers requests when a test says so."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        #: whether each request is one of the slow lane
        self.slow: list[bool] = []
        self._unanswered: list[
            tuple[AddPartitionsToTxnRequest, asyncio.Future[AddPartitionsToTxnResponse]]
        ] = []
        self.codes: list[tuple[str, ErrorCode]] = []
        self.verifier = TransactionVerifier(lambda _: COORDINATOR, self._send)

    async def _send(self, lane: Lane, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert lane.coordinator == COORDINATOR
        self.requests.append(request)
        self.slow.append(lane.is_slow)
        answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self._unanswered.append((request, answer))
        return await answer

    def call(self, name: str, membership: Membership = ADDS, index: int = 0) -> None:
        self.verifier.verify(membership, ("topic", index), lambda code: self.codes.append((name, code)))

    async def answer(self, failed: dict[int, ErrorCode] | None = None, position: int = 0) -> None:
        """Answer the oldest request, or one behind it, with an error for each partition in `failed`."""
        await asyncio.sleep(0)
        request = self._unanswered[position][0]
        response = AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=(failed or {}).get(index, ErrorCode.NONE),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )
        await self._resolve(lambda future: future.set_result(response), position)

    async def refuse(self, code: ErrorCode) -> None:
        await asyncio.sleep(0)
        response = AddPartitionsToTxnResponse(error_code=code)
        await self._resolve(lambda future: future.set_result(response))

    async def hang_up(self) -> None:
        await asyncio.sleep(0)
        await self._resolve(lambda future: future.set_exception(PeerLost("gone")))

    async def _resolve(self, resolve: Callable[[asyncio.Future[Any]], None], position: int = 0) -> None:
        resolve(self._unanswered.pop(position)[1])
        for _ in range(3):
            await asyncio.sleep(0)


def run(main: Callable[[Coordinator], Coroutine[Any, Any, None]]) -> Coordinator:
    async def start() -> Coordinator:
        coordinator = Coordinator()
        await main(coordinator)
        return coordinator

    return asyncio.run(start())


def test_partitions_of_one_turn_are_sent_together() -> None:
    async def main(c: Coordinator) -> None:
        c.call("a", index=0)
        c.call("b", index=1)
        c.call("other", Membership("u", 8, 2, adds=False))
        await c.answer(failed={1: ErrorCode.PRODUCER_FENCED})

    c = run(main)
    (request,) = c.requests
    added, verified = request.transactions
    assert (added.transactional_id, added.producer_id, added.verify_only) == ("t", 7, False)
    assert [(topic.name, topic.partitions) for topic in added.topics] == [("topic", [0, 1])]
    assert (verified.transactional_id, verified.producer_epoch, verified.verify_only) == ("u", 2, True)
    assert c.codes == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.PRODUCER_FENCED),
        ("other", ErrorCode.NONE),
    ]


def test_one_request_is_in_flight() -> None:
    async def main(c: Coordinator) -> None:
        c.call("a")
        await asyncio.sleep(0)
        c.call("b", index=1)
        c.call("c", index=2)
        await asyncio.sleep(0)
        assert len(c.requests) == 1
        await c.answer()
        await c.answer()

    c = run(main)
    assert len(c.requests) == 2
    assert [name for name, _ in c.codes] == ["a", "b", "c"]


def test_a_newer_epoch_fences_the_one_that_waits() -> None:
    async def main(c: Coordinator) -> None:
        c.call("in flight")
        await asyncio.sleep(0)
        c.call("old", ADDS)
        c.call("new", ADDS._replace(producer_epoch=1))
        c.call("late", ADDS)
        await c.answer()
        await c.answer()

    assert run(main).codes == [
        ("old", ErrorCode.INVALID_PRODUCER_EPOCH),
        ("late", ErrorCode.INVALID_PRODUCER_EPOCH),
        ("in flight", ErrorCode.NONE),
        ("new", ErrorCode.NONE),
    ]


def test_epochs_of_different_producer_ids_are_not_compared() -> None:
    """After an overflow of the epoch, the next producer id starts with epoch 0."""

    async def main(c: Coordinator) -> None:
        c.call("in flight")
        await asyncio.sleep(0)
        c.call("old id", ADDS._replace(producer_epoch=32766))
        c.call("new id", ADDS._replace(producer_id=8))
        await c.answer()
        await c.answer()

    assert run(main).codes == [
        ("old id", ErrorCode.NETWORK_EXCEPTION),
        ("in flight", ErrorCode.NONE),
        ("new id", ErrorCode.NONE),
    ]


def test_a_lost_connection_and_an_error_of_the_whole_request() -> None:
    async def main(c: Coordinator) -> None:
        c.call("lost")
        await c.hang_up()
        c.call("unauthorised")
        await c.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        c.call("refused")
        await c.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    assert run(main).codes == [
        ("lost", ErrorCode.NETWORK_EXCEPTION),
        ("unauthorised", ErrorCode.INVALID_TXN_STATE),
        ("refused", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]


def test_without_a_coordinator_nothing_is_sent() -> None:
    codes: list[ErrorCode] = []

    async def send(lane: Lane, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        raise AssertionError("there is no coordinator")

    TransactionVerifier(lambda _: -1, send).verify(ADDS, ("topic", 0), codes.append)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


HELD_BACK = {0: ErrorCode.CONCURRENT_TRANSACTIONS}
OTHER = Membership("u", 8, 0, adds=True)


def test_a_transaction_that_was_held_back_does_not_delay_others_again() -> None:
    """Its coordinator answers such a request late: the markers of the transaction before are missing."""

    async def main(c: Coordinator) -> None:
        c.call("first")
        await c.answer(HELD_BACK)
        c.call("retry")
        c.call("other", OTHER, index=1)
        await c.answer(position=1)
        assert c.codes[1:] == [("other", ErrorCode.NONE)], "the retry has no response yet"
        await c.answer()
        c.call("later")
        await c.answer()

    c = run(main)
    assert c.slow == [False, True, False, False], "it is like the others after a success"
    assert [name for name, _ in c.codes] == ["first", "other", "retry", "later"]


def test_partitions_that_were_queued_behind_a_late_response_are_sent_apart() -> None:
    async def main(c: Coordinator) -> None:
        c.call("in flight")
        await asyncio.sleep(0)
        c.call("queued", index=0)
        c.call("other", OTHER, index=1)
        await c.answer(HELD_BACK)
        requests = dict(zip(c.slow[1:], c.requests[1:], strict=True))
        assert [t.transactional_id for t in requests[True].transactions] == ["t"]
        assert [t.transactional_id for t in requests[False].transactions] == ["u"]
        c.call("queued again", index=0)
        await c.answer(position=c.slow[1:].index(True))
        assert len(c.requests) == 3, "the transaction is like the others again, and waits behind them"
        await c.answer()
        await c.answer()

    c = run(main)
    assert sorted(name for name, _ in c.codes) == ["in flight", "other", "queued", "queued again"]
    assert c.slow[3] is False


def test_verification_alone_is_never_late() -> None:
    """Only requests that add partitions are held back by a coordinator."""

    async def main(c: Coordinator) -> None:
        for _ in range(2):
            c.call("verified", ADDS._replace(adds=False))
            await c.answer(HELD_BACK)

    assert run(main).slow == [False, False]


def test_few_transactions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_SLOW_MAX", 2)

    async def main(c: Coordinator) -> None:
        for _ in range(2):
            for name in ("a", "b", "c"):
                c.call(name, ADDS._replace(transactional_id=name))
                await c.answer(HELD_BACK)

    assert run(main).slow == [False] * 6
