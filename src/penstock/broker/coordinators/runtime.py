"""Runs coordinators: state machines whose state is an internal topic, one shard per partition of it.

It has a seat for each partition that is this broker's, and takes questions and events there. Groups run here;
transactions and share groups bring shards of their own. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from penstock.broker.coordinators.shard_host import Question, Seat, Shard
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.ports import Clock
from penstock.wire.schema import Struct

__all__ = ["CoordinatorRuntime", "Question", "Shard"]

S = TypeVar("S", bound=Shard)


class CoordinatorRuntime(Generic[S]):
    """The coordinators of one internal topic that are this broker's, by partition."""

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], S],
        partitions: Partitions,
        clock: Clock,
        loader: Loader,
        commit_patience_s: float,
    ) -> None:
        self.topic = topic
        self._make_shard = make_shard
        self._partitions = partitions
        #: what members' sessions are measured with
        self.clock = clock
        self._loader = loader
        #: how long an answer waits until what it is based on is committed
        self._commit_patience_s = commit_patience_s
        self._seats: dict[int, Seat[S]] = {}

    def elected(self, index: int) -> None:
        """The partition is ours: load it."""
        partition = self._partitions.find(self.topic, index)
        if isinstance(partition, Partition) and index not in self._seats:
            seat = self._seats[index] = Seat(
                partition, self._make_shard, self.clock, self._loader, self._commit_patience_s
            )
            seat.load()

    def resigned(self, index: int) -> None:
        """The partition is someone else's, or gone."""
        seat = self._seats.pop(index, None)
        if seat is not None:
            seat.unload(ApiError(ErrorCode.NOT_COORDINATOR))

    def resign_all(self) -> None:
        for index in list(self._seats):
            self.resigned(index)

    def resign_gone(self) -> None:
        """Topics were deleted, perhaps ours: another of the same name has seats already that stay."""
        for index, seat in list(self._seats.items()):
            if not seat.partition.hosted:
                self.resigned(index)

    def ask(
        self,
        index: int,
        decide: Callable[[S, Question], Struct | None],
        refusal: Callable[[ApiError], Struct],
    ) -> Struct | Deferred[Struct]:
        """What the shard of partition `index` decides, once it may be told."""
        seat = self._seats.get(index)
        if seat is None:
            return refusal(ApiError(ErrorCode.NOT_COORDINATOR))
        return seat.ask(decide, refusal)

    def tell_all(self, event: Callable[[S], None]) -> None:
        for seat in self._seats.values():
            seat.tell(event)

    def __contains__(self, index: int) -> bool:
        """Whether partition `index` is ours, be it still loading."""
        return index in self._seats

    def indexes(self) -> Iterator[int]:
        return iter(self._seats)
