"""A member of a share group: heartbeats, assignments, and sessions with the leaders of its partitions."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.errors import ClientError, NotReachable, Refused
from penstock.client.queues.broker_link import BrokerLink
from penstock.client.queues.connections import Connections
from penstock.client.queues.fetches import FetchLimits
from penstock.client.queues.membership import Heartbeat, Membership
from penstock.client.queues.message import Decoders, QueueMessage, TopicIdPartition
from penstock.client.queues.session import ShareSession
from penstock.net.peer_errors import PeerGone
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from penstock.wire.backoff import Backoff
from penstock.wire.routing import Address

__all__ = ["Member", "MemberSettings"]

_log = logging.getLogger("penstock.client")
_BACKOFF_FIRST_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 1.0
_HEARTBEAT_TIMEOUT_S: Final = 10.0
#: the metadata is refreshed this often even if nothing seems to have changed
_METADATA_AGE_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of a member that do not change."""

    limits: FetchLimits
    decoders: Decoders
    max_wait_s: float
    renew_for_s: float


class Member:
    """Runs in tasks of the event loop, from `start` to `close`. Messages go to `buffer`.

    `wants` is called with the number of messages that this member holds, and returns how many more it takes.
    """

    def __init__(
        self,
        connections: Connections,
        membership: Membership,
        topics: Sequence[str],
        settings: MemberSettings,
        wants: Callable[[int], int],
    ) -> None:
        self._connections = connections
        self._membership = membership
        self._topics = topics
        self._settings = settings
        self._wants = wants
        self._assigned: frozenset[TopicIdPartition] = frozenset()
        self._links: dict[Address, BrokerLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._link_tasks: set[asyncio.Task[None]] = set()
        self._stale = asyncio.Event()
        self._arrived = asyncio.Event()
        self._reserved = 0
        self._coordinator: Address | None = None
        self.buffer: deque[QueueMessage] = deque()
        self.failure: ClientError | None = None

    # -- life

    def start(self) -> None:
        for work in (self._beat(), self._follow_metadata()):
            self._spawn(work, self._tasks)

    async def close(self) -> None:
        """End the sessions, with what is acknowledged, and leave the group."""
        for link in self._links.values():
            link.stop()
        if self._link_tasks:
            await asyncio.wait(self._link_tasks)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        request = self._membership.leave_request()
        if request is not None and self._coordinator is not None:
            with suppress(PeerGone, ClientError):
                await self._connections.send_to(
                    self._coordinator, SHARE_GROUP_HEARTBEAT, request, _HEARTBEAT_TIMEOUT_S
                )

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, tasks))

    def _ended(self, task: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> None:
        tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._give_up(
                error if isinstance(error, ClientError) else ClientError(f"the queue failed: {error!r}")
            )
            if not isinstance(error, ClientError):
                _log.error("a task of the queue failed", exc_info=error)

    def _give_up(self, error: ClientError) -> None:
        """Reading raises this error from now on."""
        self.failure = self.failure or error
        self._arrived.set()

    # -- for readers

    @property
    def assignment(self) -> frozenset[TopicIdPartition]:
        return self._assigned

    def topic_name(self, place: TopicIdPartition) -> str | None:
        return self._connections.topic_name(place.topic_id)

    @property
    def held_count(self) -> int:
        return sum(link.session.held_count for link in self._links.values())

    async def wait(self) -> None:
        """Wait for messages, a failure, or `interrupt`."""
        self.wake()
        self._arrived.clear()
        await self._arrived.wait()

    def interrupt(self) -> None:
        """End the waits of readers."""
        self._arrived.set()

    def wake(self) -> None:
        """There may be room for more messages."""
        for link in self._links.values():
            link.wake()

    def next(self) -> QueueMessage | None:
        """The next message whose lock is held; None if there is none now."""
        now_s = asyncio.get_running_loop().time()
        while self.buffer:
            message = self.buffer.popleft()
            if message.is_held and now_s < message.deadline_s:
                return message
            if message.is_held:
                message.expire()
        return None

    # -- for links

    def room(self) -> int:
        wanted = self._wants(self.held_count)
        if wanted <= 0 or wanted >= self._settings.limits.whole_batches_from:
            return wanted
        sharing = sum(bool(link.session.wanted) for link in self._links.values())
        # At least one: a broker without messages must not keep the room that another one needs.
        return max(1, min(wanted - self._reserved, -(-wanted // max(1, sharing))))

    def reserve(self, records: int) -> None:
        self._reserved += records

    def deliver(self, messages: list[QueueMessage]) -> None:
        self.buffer.extend(messages)
        self._arrived.set()

    def fail(self, error: Refused) -> None:
        self._give_up(error)

    def refresh(self) -> None:
        self._stale.set()

    # -- heartbeats

    async def _beat(self) -> None:
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        while True:
            beat = await self._heartbeat()
            if beat is None:
                await asyncio.sleep(backoff.failed(random.uniform(-1.0, 1.0)))
                continue
            backoff.succeeded()
            if beat.failure is not None:
                self._give_up(beat.failure)
            if beat.finds_coordinator:
                self._coordinator = None
            if beat.assignment is not None and beat.assignment != self._assigned:
                self._assigned = beat.assignment
                self._stale.set()
            await asyncio.sleep(beat.delay_s)

    async def _heartbeat(self) -> Heartbeat | None:
        """The consequences of one heartbeat; None if no coordinator answers."""
        try:
            if self._coordinator is None:
                self._coordinator = await self._connections.coordinator(self._membership.group)
            if self._coordinator is None:
                return None
            request = self._membership.request()
            response = await self._connections.send_to(
                self._coordinator, SHARE_GROUP_HEARTBEAT, request, _HEARTBEAT_TIMEOUT_S
            )
        except (PeerGone, NotReachable) as e:
            _log.info("no heartbeat of group %s: %s", self._membership.group, e)
            self._coordinator = None
            return None
        return self._membership.answered(request, response)

    # -- partitions and their leaders

    async def _follow_metadata(self) -> None:
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_METADATA_AGE_S):
                    await self._stale.wait()
            self._stale.clear()
            try:
                await self._connections.refresh(self._topics)
            except NotReachable as e:
                _log.info("no metadata: %s", e)
                self._stale.set()
            else:
                if self._place():
                    backoff.succeeded()
                    continue
                self._stale.set()
            await asyncio.sleep(backoff.failed(random.uniform(-1.0, 1.0)))

    def _place(self) -> bool:
        """Give each link the partitions that its broker leads. Returns true if all have a known leader."""
        places: dict[Address, set[TopicIdPartition]] = {address: set() for address in self._links}
        is_complete = True
        for place in self._assigned:
            node = self._connections.view.leader_node(*place)
            if node is None:
                is_complete = False
            else:
                places.setdefault((node.host, node.port), set()).add(place)
        for address, partitions in places.items():
            link = self._links.get(address) or self._new_link(address)
            if set(link.session.wanted) != partitions:
                link.session.assign(partitions)
        return is_complete

    def _new_link(self, address: Address) -> BrokerLink:
        settings = self._settings

        def make_session(on_work: Callable[[], None]) -> ShareSession:
            return ShareSession(
                self._membership.group,
                self._membership.member_id,
                settings.limits,
                settings.decoders,
                self._connections.topic_name,
                on_work,
            )

        link = self._links[address] = BrokerLink(
            self,
            make_session,
            lambda on_gone: self._connections.new_peer(address, on_gone),
            settings.max_wait_s,
            settings.renew_for_s,
        )
        self._spawn(link.run(), self._link_tasks)
        return link
