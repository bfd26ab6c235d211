"""The leader's side of AddPartitionsToTxn: requests that are in flight, merged, and what fails them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.broker.produce.verification import Membership, TransactionVerifier
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
        self._answers: list[asyncio.Future[AddPartitionsToTxnResponse]] = []
        self.codes: list[tuple[str, ErrorCode]] = []
        self.verifier = TransactionVerifier(lambda _: COORDINATOR, self._send)

    async def _send(self, broker: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert broker == COORDINATOR
        self.requests.append(request)
        answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    def call(self, name: str, membership: Membership = ADDS, index: int = 0) -> None:
        self.verifier.verify(membership, ("topic", index), lambda code: self.codes.append((name, code)))

    async def answer(
        self, code: ErrorCode = ErrorCode.NONE, failed: dict[int, ErrorCode] | None = None
    ) -> None:
        """Answer the oldest request, with an error for each partition in `failed`."""
        await asyncio.sleep(0)
        request = self.requests[len(self.requests) - len(self._answers)]
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
        await self._resolve(lambda future: future.set_result(response))

    async def refuse(self, code: ErrorCode) -> None:
        await asyncio.sleep(0)
        response = AddPartitionsToTxnResponse(error_code=code)
        await self._resolve(lambda future: future.set_result(response))

    async def hang_up(self) -> None:
        await asyncio.sleep(0)
        await self._resolve(lambda future: future.set_exception(PeerLost("gone")))

    async def _resolve(self, resolve: Callable[[asyncio.Future[Any]], None]) -> None:
        resolve(self._answers.pop(0))
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

    async def send(broker: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        raise AssertionError("there is no coordinator")

    TransactionVerifier(lambda _: -1, send).verify(ADDS, ("topic", 0), codes.append)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
