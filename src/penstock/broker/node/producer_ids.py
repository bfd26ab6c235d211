"""Allocates producer ids from blocks of the controller: one metadata record per block, not per id.

The unused ids of a block are lost at a restart. No id is allocated twice.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.node.controller_client import ControllerUnavailable
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.wire.apis.allocate_producer_ids import ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest

__all__ = ["ProducerIds"]

log = get_logger("producers")

#: how long a request waits for earlier ones, and then for the controller: the producer may try another broker
_PATIENCE_S: Final = 1.0


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._next = 0
        self._end = 0
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
        node = self._node
        request = AllocateProducerIdsRequest(broker_id=node.node_id, broker_epoch=node.broker_epoch)
        block = await node.controller_client.send(ALLOCATE_PRODUCER_IDS, request, _PATIENCE_S)
        if block.error_code:
            raise ApiError(ErrorCode(block.error_code), "the controller allocates no producer ids")
        self._next = block.producer_id_start
        self._end = self._next + block.producer_id_len
