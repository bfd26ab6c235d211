"""The only code that changes the cluster's metadata: decide, append, commit, apply.

The leader of the quorum decides on its image and appends the records to the metadata log. A majority of the
voters writes them to disk, which commits them. The leader then applies them and answers the request. Changes
run one at a time, so each decision sees all previous ones. A new leader decides nothing before it has applied
all records that were committed in earlier epochs. It has done so once the first record of its own epoch is
applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.metadata.image import ClusterImage
from penstock.model.errors import PenstockError
from penstock.ports import Clock
from penstock.records.record import Record, build_batch
from penstock.wire.metadata_records import encode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["Controller", "NotController"]

T = TypeVar("T")
log = get_logger("controller")
#: how long a controller may take to apply a change; the creation of thousands of partitions takes this long
_STUCK_S: Final = 30.0


class NotController(PenstockError):
    """This node does not lead the quorum, or no longer does: the request can be retried on another node."""


class Controller:
    """Changes the metadata while this node leads the quorum."""

    def __init__(
        self, image: ClusterImage, quorum: QuorumDriver, loader: MetadataLoader, clock: Clock
    ) -> None:
        self.image = image
        self._quorum = quorum
        self._loader = loader
        self._clock = clock
        self._turn = asyncio.Lock()
        #: the epoch and the end offset of the records that are being committed, and a future for their commit
        self._pending: tuple[int, int, asyncio.Future[None]] | None = None
        #: called after the records of a change were applied
        self.on_changed: Callable[[], None] = _nothing

    @property
    def is_active(self) -> bool:
        """Whether this node may decide now."""
        start = self._quorum.node.epoch_start_offset
        return start is not None and self._loader.applied > start

    @property
    def next_offset(self) -> int:
        """The offset of the first record of the current decision."""
        return self._quorum.state.log.end_offset

    async def change(self, decide: Callable[[], tuple[Sequence[Struct], T]]) -> T:
        """Call `decide` on the current image; returns its result once its records are applied.

        Raises NotController if this node does not lead, or loses leadership before the records are committed
        and applied.
        """
        async with self._turn:
            await self._wait_until_applied(self.next_offset)
            result, end_offset = await self._quorum.run(lambda: self._append(decide))
            if end_offset is not None:
                await self._wait_until_applied(end_offset)
                self.on_changed()
            return result

    async def between_changes(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while the image does not change."""
        await self._loader.between_changes(work)

    def leader_changed(self) -> None:
        """Abandon a change that is not committed if this node has lost leadership."""
        quorum = self._quorum.state
        if self._pending is not None:
            epoch, end_offset, _ = self._pending
            leads_on = quorum.is_leader and quorum.epoch == epoch
            if end_offset > quorum.high_watermark and not leads_on:
                self._abandon(NotController("leadership was lost before the change was committed"))

    def failed(self, error: PenstockError) -> None:
        self._abandon(error)

    def _abandon(self, error: PenstockError) -> None:
        if self._pending is not None and not self._pending[2].done():
            self._pending[2].set_exception(error)

    def _append(self, decide: Callable[[], tuple[Sequence[Struct], T]]) -> tuple[T, int | None]:
        if not self.is_active:
            raise NotController("another node leads the quorum")
        records, result = decide()
        if not records:
            return result, None
        now = self._clock.now_ms()
        batch = build_batch(
            Record(n, now, None, encode_metadata_record(record)) for n, record in enumerate(records)
        )
        return result, self._quorum.node.append(bytearray(batch)) + len(records)

    async def _wait_until_applied(self, end_offset: int) -> None:
        """Wait until everything below `end_offset` is committed and applied, as long as this node leads."""
        if self._quorum.failure is not None:
            raise self._quorum.failure
        if not self._quorum.state.is_leader:
            raise NotController("another node leads the quorum")
        reached = self._loader.wait_for(end_offset)
        self._pending = (self._quorum.state.epoch, end_offset, reached)
        # The only voter has no other node to hand leadership to.
        patience_s = _STUCK_S if len(self._quorum.state.voters) > 1 else None
        try:
            # Awaited directly, so that an error at the moment of a cancellation is retrieved, too.
            async with asyncio.timeout(patience_s):
                await reached
        except TimeoutError:
            await self._resign()
        finally:
            self._pending = None

    async def _resign(self) -> None:
        """Resign, because this node cannot apply committed records, for example because its disk hangs.

        The quorum does not notice the hang as long as the other voters' disks are a majority.
        """
        log.error("controller_stuck", applied=self._loader.applied, end_offset=self.next_offset)
        await self._quorum.resign(0)
        raise NotController("this node cannot apply committed metadata")


def _nothing() -> None:
    """The default callback: does nothing."""
