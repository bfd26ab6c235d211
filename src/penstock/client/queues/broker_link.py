"""Drives the share session with one broker: one request at a time, on a connection of its own.

The broker releases everything that was acquired through a connection when the connection closes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.client.errors import Refused
from penstock.client.queues.connections import REQUEST_TIMEOUT_S
from penstock.client.queues.fetches import Fetched
from penstock.client.queues.message import QueueMessage
from penstock.client.queues.refusals import refusal
from penstock.client.queues.session import ShareSession
from penstock.model.errors import ErrorCode, UnsupportedVersion
from penstock.net.client import Peer
from penstock.net.peer_errors import PeerGone
from penstock.wire.apis.share_acknowledge import SHARE_ACKNOWLEDGE
from penstock.wire.apis.share_fetch import SHARE_FETCH
from penstock.wire.backoff import Backoff

__all__ = ["BrokerLink", "LinkOwner"]

_log = logging.getLogger("penstock.client")
_BACKOFF_FIRST_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 1.0
#: how long a fetch waits at most while messages are processed: their acknowledgements wait for its end
_BUSY_WAIT_S: Final = 0.1
#: the longest time between two looks at locks that may have to be renewed
_IDLE_S: Final = 5.0
#: the first version with renewals
_RENEWALS_FROM: Final = 2


class LinkOwner(Protocol):
    """The member that a link belongs to."""

    def room(self) -> int:
        """How many records a link may fetch now: its share of those that the member can take.

        All fetches together may ask for one record more per broker. In large requests each asks for all.
        """
        ...

    def reserve(self, records: int) -> None:
        """A fetch for `records` is under way; negative when it has ended."""
        ...

    def deliver(self, messages: list[QueueMessage]) -> None: ...

    def fail(self, error: Refused) -> None: ...

    def refresh(self) -> None:
        """The metadata is out of date, or the broker is not reachable."""
        ...


class BrokerLink:
    """The session with one broker. `run` is a task that ends after `stop`, or when the session is idle."""

    def __init__(
        self,
        owner: LinkOwner,
        make_session: Callable[[Callable[[], None]], ShareSession],
        make_peer: Callable[[Callable[[PeerGone], None]], Peer],
        max_wait_s: float,
        renew_for_s: float,
    ) -> None:
        self._owner = owner
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._max_wait_s = max_wait_s
        self._renew_for_s = renew_for_s
        self._backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        self._not_before_s = 0.0
        self._stopping = False
        self.session = make_session(self._work.set)
        self._peer = make_peer(self._gone)

    def wake(self) -> None:
        """There may be room for records."""
        self._work.set()

    def stop(self) -> None:
        """End the session after the request under way."""
        self._stopping = True
        self._work.set()

    async def run(self) -> None:
        try:
            while not self._stopping:
                self._work.clear()
                if not await self._step():
                    await self._rest()
                if self.session.is_idle and not self._stopping:
                    await self._close()
            await self._close()
        finally:
            self.session.end("the queue is closed")
            self._peer.close()

    async def _step(self) -> bool:
        """Send a request if there is one to send."""
        session, now_s = self.session, self._loop.time()
        if now_s < self._not_before_s:
            return False
        session.renew_due(now_s, self._renew_for_s)
        if session.is_open and session.needs_acknowledge:
            await self._acknowledge()
            return True
        room = self._owner.room() if session.wanted else 0
        if room > 0:
            await self._fetch(room)
            return True
        if session.is_open and session.has_pending:
            await self._acknowledge()
            return True
        return False

    async def _rest(self) -> None:
        """Wait for work, for the next attempt, or for locks to renew."""
        now_s = self._loop.time()
        wait_s = min(_IDLE_S, self.session.lock_s / 4 or _IDLE_S)
        if now_s < self._not_before_s:
            # Work does not make the next attempt come sooner.
            await asyncio.sleep(self._not_before_s - now_s)
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._work.wait()
        except TimeoutError:
            pass

    async def _fetch(self, room: int) -> None:
        session = self.session
        wait_s = min(self._max_wait_s, _BUSY_WAIT_S) if session.held_count else self._max_wait_s
        request = session.fetch_request(room, round(wait_s * 1000), self._loop.time())
        self._owner.reserve(room)
        try:
            response = await self._send(SHARE_FETCH, request, wait_s)
        finally:
            self._owner.reserve(-room)
        if response is not None:
            self._take(session.fetched(response, self._loop.time()))

    async def _acknowledge(self) -> None:
        session = self.session
        version = self._peer.speaks(SHARE_ACKNOWLEDGE)
        if version is not None and version < _RENEWALS_FROM:
            session.forbid_renewals()
        request = session.acknowledge_request(self._loop.time())
        response = await self._send(SHARE_ACKNOWLEDGE, request, 0.0)
        if response is not None:
            self._take(session.acknowledged(response, self._loop.time()))

    async def _close(self) -> None:
        """End the session, with the acknowledgements that are still to be sent."""
        request = self.session.close_request(self._loop.time())
        if request is not None:
            response = await self._send(SHARE_ACKNOWLEDGE, request, 0.0)
            if response is not None:
                self.session.acknowledged(response, self._loop.time())
        self.session.end("the session is closed")

    async def _send(self, api: Any, request: Any, wait_s: float) -> Any:
        """The response; None if there is none, and the session has ended."""
        try:
            return await self._peer.send(api, request, wait_s + REQUEST_TIMEOUT_S)
        except PeerGone as e:
            self.session.end(f"the connection to the broker ended: {e}")
            self._wait()
            self._owner.refresh()
        except UnsupportedVersion:
            about = f"{self._peer.address} does not support {api.name}"
            self.session.end(about)
            self._owner.fail(refusal(ErrorCode.UNSUPPORTED_VERSION, None, about))
        return None

    def _take(self, fetched: Fetched) -> None:
        if fetched.messages:
            self._owner.deliver(fetched.messages)
        if fetched.failure is not None:
            self._owner.fail(fetched.failure)
        if fetched.is_stale:
            self._owner.refresh()
        if fetched.is_stale or fetched.must_wait or fetched.failure is not None:
            self._wait()
        else:
            self._backoff.succeeded()

    def _wait(self) -> None:
        self._not_before_s = self._loop.time() + self._backoff.failed(random.uniform(-1.0, 1.0))

    def _gone(self, error: PeerGone) -> None:
        """The connection has ended, and the session with it."""
        if self.session.is_open:
            _log.info("share session ended: %s", error)
            self.session.end(f"the connection to the broker ended: {error}")
            self._owner.refresh()
            self._work.set()
