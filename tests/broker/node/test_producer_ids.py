"""Producer ids come from blocks of the controller, each id once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.broker.node.producer_ids import ProducerIds
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.allocate_producer_ids import AllocateProducerIdsResponse


class Controller:
    """Allocates blocks of two ids; fails while `error` is set."""

    def __init__(self) -> None:
        self.blocks = 0
        self.error = ErrorCode.NONE

    async def send(self, *_: object) -> AllocateProducerIdsResponse:
        await asyncio.sleep(0)
        start = self.blocks * 2
        self.blocks += 1
        return AllocateProducerIdsResponse(error_code=self.error, producer_id_start=start, producer_id_len=2)


def producer_ids(controller: Controller) -> ProducerIds:
    return ProducerIds(1, lambda: 5, cast(Any, controller))


def test_concurrent_requests_share_blocks_and_get_different_ids() -> None:
    async def main() -> None:
        controller = Controller()
        ids = producer_ids(controller)
        assert sorted(await asyncio.gather(*(ids.next() for _ in range(5)))) == [0, 1, 2, 3, 4]
        assert controller.blocks == 3

    asyncio.run(main())


def test_without_a_block_a_new_one_is_requested_in_the_background() -> None:
    async def main() -> None:
        controller = Controller()
        ids = producer_ids(controller)
        assert (ids.take(), ids.take(), ids.is_empty) == (None, None, True)
        while ids.is_empty:  # noqa: ASYNC110 - the refill sets no event
            await asyncio.sleep(0)
        assert (ids.take(), ids.take(), ids.take()) == (0, 1, None)
        await ids.refill()
        assert controller.blocks == 2

    asyncio.run(main())


def test_an_error_of_the_controller_is_passed_on_and_the_next_request_tries_again() -> None:
    async def main() -> None:
        controller = Controller()
        ids = producer_ids(controller)
        controller.error = ErrorCode.STALE_BROKER_EPOCH
        with pytest.raises(ApiError, match="no producer ids"):
            await ids.next()
        controller.error = ErrorCode.NONE
        assert await ids.next() == 2

    asyncio.run(main())


def test_reserved_ids_of_a_block_are_not_used() -> None:
    async def main() -> None:
        controller = Controller()
        ids = producer_ids(controller)
        assert await ids.next() == 0
        ids.reserved(1)
        assert await ids.next() == 1
        # The next two blocks are older than the reservation, and the third in part.
        ids.reserved(7)
        assert await ids.next() == 7
        assert controller.blocks == 4
        assert await ids.next() == 8

    asyncio.run(main())
