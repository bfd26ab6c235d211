"""Allocates producer ids from blocks of the controller: one metadata record per block, not per id.

The unused ids of a block are lost at a restart. No id is allocated twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller_client import ControllerClient, ControllerUnavailable
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.wire.apis.allocate_producer_ids import ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest

__all__ = ["ProducerIds"]

log = get_logger("producers")

#: how long a request waits for earlier ones, and then for the controller: the producer may try another broker
_PATIENCE_S: Final = 1.0


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerClient) -> None:
        """`broker_epoch` returns that of this broker's registration; ApiError if there is none."""
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._next = 0
        self._end = 0
        #: ids below it are reserved for records that were made elsewhere, as far as this process has seen
        self.floor = 0
        self._turn = asyncio.Lock()
        self._refill: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Returns true if the next id needs a block of the controller."""
        return self._next == self._end

    def take(self) -> int | None:
        """A new producer id of the current block. At its end, None, and a new block is requested."""
        if self.is_empty:
            if self._refill is None or self._refill.done():
                self._refill = asyncio.get_running_loop().create_task(self.refill())
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    def reserved(self, below: int) -> None:
        """Do not use ids below `below` any more: the controller has reserved them."""
        self.floor = max(self.floor, below)
        if self._next < self.floor:
            self._next = min(self.floor, self._end)

    async def reserve(self, below: int) -> None:
        """Have no broker use an id below `below`; PenstockError if the controller does not respond."""
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), reserve_below=below
        )
        answer = await self._controller.send(ALLOCATE_PRODUCER_IDS, request, _PATIENCE_S)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code), "the controller reserves no producer ids")

    async def refill(self) -> None:
        """Request a block if there is none. A failure is logged: the next request tries again."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                async with self._turn:
                    if self.is_empty:
                        await self._reserve()
        except (TimeoutError, PenstockError) as e:
            log.info("no_producer_id", error=str(e))

    async def next(self) -> int:
        """A new producer id; PenstockError if the controller allocates no block."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._turn.acquire()
        except TimeoutError as e:
            raise ControllerUnavailable("earlier requests still wait for the controller") from e
        try:
            if self._next == self._end:
                await self._reserve()
            producer_id = self._next
            self._next += 1
            return producer_id
        finally:
            self._turn.release()

    async def _reserve(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        while self.is_empty:
            block = await self._controller.send(ALLOCATE_PRODUCER_IDS, request, _PATIENCE_S)
            if block.error_code:
                raise ApiError(ErrorCode(block.error_code), "the controller allocates no producer ids")
            self._end = block.producer_id_start + block.producer_id_len
            # The block may be older than a reservation that this broker knows of.
            self._next = min(max(block.producer_id_start, self.floor), self._end)
