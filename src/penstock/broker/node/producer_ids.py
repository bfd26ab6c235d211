"""Producer ids, from blocks that the controller hands out: one metadata record per block, not per id.

Ids of a block that were not used before a restart are lost, never handed out twice.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.node.cluster_node import ClusterNode, ControllerUnavailable
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.allocate_producer_ids import ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest

__all__ = ["ProducerIds"]

#: how long a producer waits for its turn, and then for the controller: it may find an id elsewhere
_PATIENCE_S: Final = 1.0


class ProducerIds:
    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody had before; PenstockError as long as the controller gives out none."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._turn.acquire()
        except TimeoutError as e:
            raise ControllerUnavailable("others wait for the controller's answer") from e
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
        block = await node.to_controller(ALLOCATE_PRODUCER_IDS, request, _PATIENCE_S)
        if block.error_code:
            raise ApiError(ErrorCode(block.error_code), "the controller gives out no producer ids")
        self._next = block.producer_id_start
        self._end = self._next + block.producer_id_len
