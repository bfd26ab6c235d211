"""The only code that changes the cluster's metadata: decide, append, commit, apply.

The leader of the quorum decides on its image and appends the records to the metadata log. A majority of the
voters writes them to disk, which commits them. The leader then applies them and answers the request. Changes
run one at a time, so each decision sees all previous ones. A new leader decides nothing before it has applied
all records that were committed in earlier epochs. It has done so once the first record of its own epoch is
applied.

A decision on thousands of partitions is made, encoded and applied in slices (ADR 62). It is still one batch
of the log, hence committed as a whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.base.urgent_lock import UrgentLock
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.metadata.image import ClusterImage
from penstock.model.errors import PenstockError
from penstock.model.steps import SLICE, Steps, at_once
from penstock.ports import Clock
from penstock.records.value_batch import value_batch
from penstock.wire.metadata_records import encode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["Controller", "Decide", "NotController"]

T = TypeVar("T")
#: returns the records of a change and the result for its caller
Decide: TypeAlias = Callable[[], tuple[Sequence[Struct], T] | Steps[tuple[Sequence[Struct], T]]]
log = get_logger("controller")
#: how long a controller may take to apply a change; the creation of thousands of partitions takes this long
_STUCK_S: Final = 30.0


class NotController(PenstockError):
    """This node does not lead the quorum, or no longer does: the request can be retried on another node."""


class _Large(NamedTuple):
    """A decision that is made, or encoded, in slices."""

    #: the leader epoch and the end of the log when it began
    epoch: int
    end_offset: int
    decided: Steps[tuple[Sequence[Struct], Any]]


class Controller:
    """Changes the metadata while this node leads the quorum."""

    def __init__(
        self,
        image: ClusterImage,
        quorum: QuorumDriver,
        loader: MetadataLoader,
        clock: Clock,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed` is called after the records of a change were applied."""
        self.image = image
        self._quorum = quorum
        self._loader = loader
        self._clock = clock
        self._turn = UrgentLock()
        #: the epoch and the end offset of the records that are being committed, and a future for their commit
        self._pending: tuple[int, int, asyncio.Future[None]] | None = None
        self._on_changed = on_changed

    @property
    def is_active(self) -> bool:
        """Whether this node may decide now."""
        start = self._quorum.node.epoch_start_offset
        return start is not None and self._loader.applied > start

    @property
    def next_offset(self) -> int:
        """The offset of the first record of the current decision."""
        return self._quorum.state.log.end_offset

    async def change(self, decide: Decide[T], *, is_urgent: bool = False) -> T:
        """Call `decide` on the current image; returns its result once its records are applied.

        If `decide` returns a generator, other requests are served between its slices. The image does not
        change meanwhile. Raises NotController if this node does not lead, or loses leadership before the
        records are committed and applied. An urgent change precedes all others that wait: fencing a broker,
        and the end of it.
        """
        async with self._turn.held(is_urgent):
            await self._wait_until_applied(self.next_offset)
            made: tuple[T, int | None] | None = None
            while made is None:
                made = await self._make(decide)
            result, end_offset = made
            if end_offset is not None:
                await self._wait_until_applied(end_offset)
                self._on_changed()
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

    async def _make(self, decide: Decide[T]) -> tuple[T, int | None] | None:
        """Decide, and append the records; returns their end, and None if the decision has to be repeated."""
        begun = await self._quorum.run(lambda: self._decide(decide))
        return await self._finish(begun) if isinstance(begun, _Large) else begun

    def _decide(self, decide: Decide[T]) -> tuple[T, int | None] | _Large:
        """Decide and append, or begin to if it takes long."""
        if not self.is_active:
            raise NotController("another node leads the quorum")
        decided = decide()
        if isinstance(decided, Generator):
            return _Large(self._quorum.state.epoch, self.next_offset, decided)
        records, result = decided
        if len(records) > SLICE:
            return _Large(self._quorum.state.epoch, self.next_offset, _made(decided))
        if not records:
            return result, None
        return result, self._append(at_once(self._encoded(records)), len(records))

    async def _finish(self, large: _Large) -> tuple[T, int | None] | None:
        """Make and append a large decision."""
        records, result = await self._while_leading(large, large.decided)
        self._check_leadership(large)
        if not records:
            return result, None
        batch = await self._while_leading(large, self._encoded(records))

        def append() -> tuple[T, int | None] | None:
            self._check_leadership(large)
            # The records of a registration contain their offset. Only a change of voters moves it meanwhile.
            if self.next_offset != large.end_offset:
                return None
            return result, self._append(batch, len(records))

        return await self._quorum.run(append)

    async def _while_leading(self, large: _Large, steps: Steps[T]) -> T:
        """The result of all slices. Without leadership the image may change under them."""
        while True:
            try:
                next(steps)
            except StopIteration as e:
                result: T = e.value
                return result
            await asyncio.sleep(0)
            self._check_leadership(large)

    def _check_leadership(self, large: _Large) -> None:
        if not self._quorum.state.is_leader or self._quorum.state.epoch != large.epoch:
            raise NotController("leadership was lost before the change was decided")

    def _encoded(self, records: Sequence[Struct]) -> Steps[bytearray]:
        return value_batch(map(encode_metadata_record, records), self._clock.now_ms())

    def _append(self, batch: bytearray, count: int) -> int:
        """Returns the end of the records in the log."""
        return self._quorum.node.append(batch) + count

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


def _made(decided: T) -> Steps[T]:
    """A decision that is made already."""
    yield
    return decided
