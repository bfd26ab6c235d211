"""Runs a coordinator: hosts a shard for each partition of its internal topic that this broker leads.

The runtime knows nothing of groups: any coordinator passes the factory of its shards, and a function for
the effects that they decide. Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.broker.coordinators.early_requests import EarlyRequests
from penstock.broker.coordinators.host_settings import HostSettings
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.replies import PendingReply
from penstock.broker.coordinators.shard_host import CoordinatorShardHost, Operation
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.coordination.outbox import EndMarker, TransactionalRecords
from penstock.coordination.shard import CoordinatorShard
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.wire.schema import Struct

__all__ = ["CoordinatorRuntime"]

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on this broker, by partition."""

    def __init__(
        self, topic: InternalTopic, partitions: Partitions, node_id: int, settings: HostSettings[S]
    ) -> None:
        self.topic = topic
        self._partitions = partitions
        self._node_id = node_id
        self.settings = settings
        self._hosts: dict[int, CoordinatorShardHost[S]] = {}
        self._early = EarlyRequests()
        #: resolved when the next shard is hosted
        self._next_host: asyncio.Future[None] | None = None

    # -- leadership

    def elected(self, index: int) -> None:
        """This broker has become the leader of partition `index`: load its shard."""
        partition = self._partitions.find(self.topic.name, index)
        if isinstance(partition, Partition) and index not in self._hosts:
            host = self._hosts[index] = CoordinatorShardHost(partition, self.settings)
            host.load()
            if self._next_host is not None:
                self._next_host.set_result(None)
                self._next_host = None
            self._early.submit(lambda key: self.topic.partition_for(key) == index)

    def resigned(self, index: int) -> None:
        """This broker is no longer the leader of partition `index`, or the partition is deleted."""
        host = self._hosts.pop(index, None)
        if host is not None:
            host.unload(ApiError(ErrorCode.NOT_COORDINATOR))

    def resign_all(self) -> None:
        for index in list(self._hosts):
            self.resigned(index)

    def resign_deleted(self) -> None:
        """Unload the shards of deleted partitions. A new topic of the same name may already have hosts."""
        for index, host in list(self._hosts.items()):
            if not host.partition.hosted:
                self.resigned(index)

    def __contains__(self, index: int) -> bool:
        """Returns true if this broker coordinates partition `index`, even if its shard is still loading."""
        return index in self._hosts

    def partition(self, index: int) -> Partition | None:
        """The partition, if this broker coordinates it."""
        host = self._hosts.get(index)
        return None if host is None else host.partition

    def shard(self, index: int) -> S | None:
        """The shard of partition `index`, None if it is not loaded here. Each load makes a new shard."""
        host = self._hosts.get(index)
        return None if host is None else host.shard

    def unappended(self, index: int, producer_id: int) -> Sequence[TransactionalRecords | EndMarker]:
        """The records of a producer's transactions that the shard of partition `index` has decided on in
        this turn of the event loop. The log does not have them yet.
        """
        host = self._hosts.get(index)
        return () if host is None else host.decisions.records.of_producer(producer_id)

    def submit_to(
        self, index: int, operation: Operation[S], error_response: Callable[[ApiError], Struct]
    ) -> Struct | Deferred[Struct]:
        """Run `operation` on the shard of partition `index`."""
        host = self._hosts.get(index)
        if host is None:
            return error_response(ApiError(ErrorCode.NOT_COORDINATOR))
        return host.submit(operation, error_response)

    def indexes(self) -> Iterator[int]:
        """The partitions that this broker coordinates."""
        return iter(self._hosts)

    def is_settled(self, key: str) -> bool:
        """Returns true if another broker leads the partition of `key`, or if the partition is hosted here.

        A partition of a new topic is in the image before its log is open.
        """
        index = self.topic.partition_for(key)
        return index >= 0 and (self.topic.leader_of(index) != self._node_id or index in self._hosts)

    async def wait_until_settled(self, keys: Sequence[str], timeout_s: float) -> None:
        """Wait until all keys are settled, for a limited time: a log may be damaged or its disk offline."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not all(map(self.is_settled, keys)) and loop.time() < deadline:
            if self._next_host is None:
                self._next_host = loop.create_future()
            await asyncio.wait([self._next_host], timeout=deadline - loop.time())

    # -- requests

    def submit(
        self, key: str, operation: Operation[S], error_response: Callable[[ApiError], Struct]
    ) -> Struct | Deferred[Struct]:
        """Run `operation` on the shard that holds `key`. Returns the response, or a Deferred of it.

        A request waits if this broker does not know the topic yet, or has not opened its partition.
        """
        index = self.topic.partition_for(key)
        host = self._hosts.get(index)
        if host is not None:
            return host.submit(operation, error_response)
        if index >= 0 and self.topic.leader_of(index) != self._node_id:
            return error_response(ApiError(ErrorCode.NOT_COORDINATOR))
        return self._early.add(
            key,
            lambda: self.submit_to(self.topic.partition_for(key), operation, error_response),
            lambda: error_response(ApiError(ErrorCode.NOT_COORDINATOR)),
        )

    def submit_each(
        self,
        items: Iterable[tuple[int | str, T]],
        operation: Callable[[S, T], Struct],
        error_response: Callable[[T, ApiError], Struct],
        finish: Callable[[list[Any]], Struct],
    ) -> Struct | Deferred[Struct]:
        """Run `operation` for each (partition or key, item), and combine all responses by `finish`."""
        responses: list[Any] = []
        missing = 1
        result: Deferred[Struct] = Deferred()

        def arrived(position: int, response: Struct) -> None:
            nonlocal missing
            responses[position] = response
            missing -= 1
            if not missing:
                result.resolve(finish(responses))

        for position, (place, item) in enumerate(items):
            response = self._submit_item(place, item, operation, error_response)
            responses.append(response)
            if isinstance(response, Deferred):
                missing += 1
                response.then(partial(arrived, position))
        missing -= 1
        if missing:
            return result
        return finish(responses)

    def _submit_item(
        self,
        place: int | str,
        item: T,
        operation: Callable[[S, T], Struct],
        error_response: Callable[[T, ApiError], Struct],
    ) -> Struct | Deferred[Struct]:
        def operate(shard: S, _: PendingReply) -> Struct:
            return operation(shard, item)

        refuse = partial(error_response, item)
        if isinstance(place, int):
            return self.submit_to(place, operate, refuse)
        return self.submit(place, operate, refuse)

    def notify(self, index: int, event: Callable[[S], None]) -> None:
        """Run a turn of one shard that no request waits for, for example the outcome of an effect."""
        host = self._hosts.get(index)
        if host is not None:
            host.notify(event)

    def notify_all(self, event: Callable[[S], None]) -> None:
        """Run a turn of each shard that no request waits for."""
        for host in self._hosts.values():
            host.notify(event)
