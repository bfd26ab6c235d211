"""Computes the checksum of this node's image, and keeps the result of its comparison.

The checksum is computed when the image has not changed for a few seconds, so that all nodes compute it at the
same offset. A large image is summed in slices, between which the event loop runs other work. If the image
changes meanwhile, the sum is abandoned. Heartbeats report the checksum. Their responses carry the expected
checksum.

A node whose image differs cannot know which topics and partitions it should have. While `diverged` is set,
the partitions that the metadata releases are set aside in the quarantine instead of being deleted.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.metadata.checksum import ImageChecksum, checksum_steps, layout, signed
from penstock.model.ticks import until_tick
from penstock.wire.apis.broker_heartbeat import ReportedChecksum

__all__ = ["ImageCheck"]

log = get_logger("metadata")
#: how long the image must be unchanged before its checksum is computed
_IDLE_S: Final = 5.0
#: records that are summed in one turn of the event loop, about 2 ms
_SLICE: Final = 64
_HINT: Final = "restart this broker; if this is logged again, replace it (penstock broker add, then remove)"


class ImageCheck:
    """Computes checksums from `start` to `stop`."""

    def __init__(self, loader: MetadataLoader) -> None:
        self._loader = loader
        self._task: asyncio.Task[None] | None = None
        #: the last checksum that was computed
        self.latest: ImageChecksum | None = None
        #: a description of the difference to the other nodes' images, None if none is known
        self.diverged: str | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop, seen = asyncio.get_running_loop(), -1
        while True:
            await asyncio.sleep(until_tick(loop.time(), _IDLE_S))
            end_offset = self._loader.applied
            known = self.latest is not None and self.latest.end_offset == end_offset
            if end_offset == seen and end_offset and not known:
                await self._compute(end_offset)
            seen = end_offset

    async def _compute(self, end_offset: int) -> None:
        total = 0
        steps = checksum_steps(self._loader.image)
        while self._is_at(end_offset):
            for _ in range(_SLICE):
                step = next(steps, None)
                if step is None:
                    self.latest = ImageChecksum(end_offset, signed(total), layout())
                    return
                total = step
            await asyncio.sleep(0)

    def _is_at(self, end_offset: int) -> bool:
        """Whether the image contains all records below `end_offset`, and none at or above it."""
        return self._loader.applied == end_offset and self._loader.image.offset < end_offset

    def report(self) -> ReportedChecksum | None:
        """The latest checksum, for a heartbeat."""
        return None if self.latest is None else ReportedChecksum(**self.latest._asdict())

    def compared(self, sent: ReportedChecksum | None, expected: ReportedChecksum | None) -> None:
        """Compare the checksum of a heartbeat with the one that the controller expects."""
        if sent is None or expected is None or sent.end_offset != expected.end_offset:
            return
        if sent.checksum == expected.checksum:
            if self.diverged is not None:
                self.diverged = None
                log.info("metadata_agrees", end_offset=sent.end_offset)
        elif self.diverged is None:
            self.diverged = f"the metadata up to offset {sent.end_offset} differs from the other nodes'"
            log.error(
                "metadata_diverged",
                end_offset=sent.end_offset,
                checksum=sent.checksum,
                expected=expected.checksum,
                hint=_HINT,
            )
