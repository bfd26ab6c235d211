"""The one place that changes the cluster's metadata: decide, log, commit, apply.

A change is decided on the image of the node that leads the quorum, its records are appended to the metadata
log, and applied once a majority has them on its disks; whoever asked is answered after that. One change at a
time, so every decision sees all before it. A leader decides nothing before it has applied everything that
was committed in earlier epochs, which it knows when the start of its own is.
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
#: how long a controller may take to follow what it has decided: as long as thousands of new partitions do
_STUCK_S: Final = 30.0


class NotController(PenstockError):
    """This node does not lead the quorum, or no longer: what was asked may be tried again elsewhere."""


class Controller:
    """Decides while this node leads the quorum."""

    def __init__(
        self, image: ClusterImage, quorum: QuorumDriver, loader: MetadataLoader, clock: Clock
    ) -> None:
        self.image = image
        self._quorum = quorum
        self._loader = loader
        self._clock = clock
        self._turn = asyncio.Lock()
        #: the epoch and the end of the records that are being committed, and who waits for that
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
        """Where the records of the decision at hand will go."""
        return self._quorum.state.log.end_offset

    async def change(self, decide: Callable[[], tuple[Sequence[Struct], T]]) -> T:
        """Decide on the image as it then is; return the decision's result once its records are applied.

        Raises NotController where this node does not lead, or ceases to before the records are committed, or
        applied.
        """
        async with self._turn:
            await self._reach(self.next_offset)
            result, end_offset = await self._quorum.run(lambda: self._append(decide))
            if end_offset is not None:
                await self._reach(end_offset)
                self.on_changed()
            return result

    async def between_changes(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what must not see the image change under its feet."""
        await self._loader.between_changes(work)

    def leader_changed(self) -> None:
        """There is another epoch: what is not committed by now may never be."""
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

    async def _reach(self, end_offset: int) -> None:
        """Wait until everything below `end_offset` is committed and applied, as long as this node leads."""
        if self._quorum.failure is not None:
            raise self._quorum.failure
        if not self._quorum.state.is_leader:
            raise NotController("another node leads the quorum")
        reached = self._loader.wait_for(end_offset)
        self._pending = (self._quorum.state.epoch, end_offset, reached)
        # One that leads alone has nobody to leave it to.
        patience_s = _STUCK_S if len(self._quorum.state.voters) > 1 else None
        try:
            # Awaited itself: an error in the moment of a cancellation is taken, too.
            async with asyncio.timeout(patience_s):
                await reached
        except TimeoutError:
            await self._leave_it_to_others()
        finally:
            self._pending = None

    async def _leave_it_to_others(self) -> None:
        """A disk that hangs keeps this node from following what is committed, so from deciding; not others.

        The quorum does not notice: the disks of the others are a majority.
        """
        log.error("controller_stuck", applied=self._loader.applied, end_offset=self.next_offset)
        await self._quorum.resign(0)
        raise NotController("this node cannot follow what is committed")


def _nothing() -> None:
    """No one to call."""
