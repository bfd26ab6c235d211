"""Producer ids, from blocks that the controller hands out: one metadata record per block, not per id.

Ids of a block that were not used before a restart are lost, never handed out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.broker.controller import Controller
from penstock.wire.metadata_records import ProducerIdsRecord
from penstock.wire.schema import Struct

__all__ = ["ProducerIds"]

BLOCK: Final = 1000


class ProducerIds:
    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody had before."""
        async with self._turn:
            if self._next == self._end:
                self._next = await self._controller.change(self._reserve)
                self._end = self._next + BLOCK
            producer_id = self._next
            self._next += 1
            return producer_id

    def _reserve(self) -> tuple[Sequence[Struct], int]:
        first = self._controller.image.next_producer_id
        record = ProducerIdsRecord(broker_id=self._node_id, broker_epoch=-1, next_producer_id=first + BLOCK)
        return [record], first
