"""The client side of connections to one broker: requests in, responses or `peer_errors` out.

A `Peer` connects when there is something to send, waits between attempts that fail, and pipelines. A
connection that fails, ends, sends invalid bytes or does not respond in time is closed. All pending requests
then fail: nothing is ever sent twice, retries are up to the caller. The next `send` connects again, at once
if the last connection had worked.

Only `create_connection`, timers and futures of the given loop are used, so the same code runs on uvloop and
on a simulated network. Owned by that loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.net.calls import Call, Landing
from penstock.net.client_link import ClientLink
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRefused, PeerTimedOut, cause_of, is_refusal
from penstock.ports import Rng
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.backoff import Backoff
from penstock.wire.conversation import MAX_IN_FLIGHT, Conversation
from penstock.wire.frames import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = ["Peer"]

T = TypeVar("T")
#: the part of a session's lifetime after which a client authenticates again, as in Kafka
_LOGIN_AGAIN: Final = 0.85
_LOGIN_SPREAD: Final = 0.1
_BACKOFF_FIRST_S: Final = 0.02
_BACKOFF_LIMIT_S: Final = 1.0


class Peer:
    """One broker, as another one or a client talks to it.

    `on_gone` is called once for each connection, or attempt to connect, that came to nothing.
    """

    __slots__ = (
        "_backoff",
        "_closed",
        "_connecting",
        "_deriving",
        "_due_at",
        "_is_attempting",
        "_last_error",
        "_loop",
        "_max_in_flight",
        "_max_response_bytes",
        "_not_before",
        "_on_gone",
        "_rng",
        "_security",
        "_timer",
        "_waiting",
        "client_id",
        "heard_at",
        "host",
        "link",
        "port",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        client_id: str,
        rng: Rng,
        on_gone: Callable[[PeerGone], None] | None = None,
        backoff: Backoff | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_response_bytes: int = MAX_FRAME_BYTES,
        security: ClientSecurity | None = None,
    ) -> None:
        """`security` has TLS and SASL; None for plaintext."""
        self._security = security
        self.host = host
        self.port = port
        self._loop = loop
        self.client_id = client_id
        self._rng = rng
        self._on_gone = on_gone
        self._backoff = backoff or Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        self._max_in_flight = max_in_flight
        self._max_response_bytes = max_response_bytes
        self.link: ClientLink | None = None
        self._connecting: asyncio.Task[None] | None = None
        #: computes a key of the login; kept, because the loop has weak references only
        self._deriving: asyncio.Task[None] | None = None
        #: an attempt to connect is under way; while `_connecting` without it we wait for `_not_before`
        self._is_attempting = False
        self._not_before = loop.time()
        self._last_error: PeerGone = PeerTimedOut(f"{self.address}: no request was sent yet")
        self._waiting: deque[Call] = deque()
        #: goes off when the first answer may be overdue; one timer, however many are awaited
        self._timer: asyncio.Handle | None = None
        #: the time of that timer: a timer of uvloop that is due at once does not know it
        self._due_at = 0.0
        self._closed = False
        #: when the other side last sent anything, by the loop's time; before all time if it never did
        self.heard_at = -inf

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        """Whether a request would go out at once."""
        return self.link is not None and self.link.conversation.is_ready

    @property
    def waits_since(self) -> float | None:
        """When the oldest request without an answer was made, by the loop's time; None if there is none."""
        return min((call.deadline - call.timeout_s for call in self._unanswered()), default=None)

    async def send(
        self,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        *,
        answered: bool = True,
    ) -> ResponseT:
        """The response to `request`, sent in the newest version that both sides support.

        Raises `PeerGone`, or `UnsupportedVersion` where there is no such version. With `answered=False` (as
        Produce wants it for acks=0) it returns an empty response once the request is on its way.
        """
        answer: asyncio.Future[ResponseT] = self._loop.create_future()
        self.post(api, request, timeout_s, answer, answered=answered)
        return await answer

    def post(
        self, api: Api[Any, Any], request: Any, timeout_s: float, answer: Landing, *, answered: bool = True
    ) -> Call:
        """Like `send`, without a waiting task; errors go to the receiver of the response."""
        call = Call(api, request, timeout_s, self._loop.time(), answered, answer)
        if self._closed:
            call.fail(self._last_error.copy())
            return call
        self._expect(call)
        self._waiting.append(call)
        self._advance()
        return call

    def repeat(self, call: Call, write: Callable[[int, T], bytes], fields: T) -> bool:
        """Send a request that differs from the answered `call` in numbers only; false if it has to wait.

        `write` is given a correlation id and the fields, and the answer goes where that of `call` went.
        """
        link = self.link
        if link is None or self._waiting:
            return False
        correlation_id = link.conversation.repeat(call.api)
        if correlation_id is None:
            return False
        call.renew(self._loop.time())
        self._expect(call)
        link.repeat(call, write(correlation_id, fields))
        return True

    def speaks(self, api: Api[Any, Any]) -> int | None:
        """The version for requests to the peer; None if it is unknown now."""
        link = self.link
        return None if link is None or not link.conversation.is_ready else link.conversation.version(api)

    def close(self) -> None:
        """Close the connection and fail pending requests. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._on_gone = None
            if self._timer is not None:
                self._timer.cancel()
            if self._deriving is not None:
                self._deriving.cancel()
            self._give_up(PeerLost(f"{self.address}: closed by ourselves"))

    # -- connecting -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Send what waits, as far as it may go; connect first if need be."""
        if self.link is not None:
            self.link.send()
        elif self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        wait_s = self._not_before - self._loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._is_attempting = True
        try:
            await self._loop.create_connection(self._new_link, self.host, self.port)
        except OSError as e:
            self._end_attempt()
            kind = PeerRefused if is_refusal(e) else PeerLost
            self._give_up(kind(f"{self.address}: cannot connect: {cause_of(e)}"))
        else:
            self._end_attempt()

    def _new_link(self) -> asyncio.BufferedProtocol:
        security = self._security
        conversation = Conversation(
            self.client_id,
            max_in_flight=self._max_in_flight,
            max_response_bytes=self._max_response_bytes,
            login=None if security is None else security.login,
        )
        link = self.link = ClientLink(self, conversation, self._waiting)
        if security is None or security.tls is None:
            return link
        from penstock.net.tls import TlsTransport  # only TLS pays for the import

        link.channel = TlsTransport(self._loop, security.tls.context, link, server_hostname=self.host)
        return link.channel

    def _end_attempt(self) -> None:
        self._connecting = None
        self._is_attempting = False

    # -- what the link reports ------------------------------------------------------------------------

    def link_ready(self, link: ClientLink) -> None:
        """The handshake is done."""
        self._backoff.succeeded()
        self._schedule_login(link)

    def _schedule_login(self, link: ClientLink) -> None:
        """Authenticate again before the session ends (KIP-368)."""
        lifetime_s = link.conversation.session_lifetime_s
        if lifetime_s:
            share = _LOGIN_AGAIN + _LOGIN_SPREAD * self._rng.uniform(0.0, 1.0)
            self._loop.call_later(lifetime_s * share, link.authenticate)

    def link_needs_key(self, link: ClientLink, compute: Callable[[], object]) -> None:
        """Compute a key of the login in a thread, and let the authentication go on."""
        assert self._security is not None and self._security.in_thread is not None
        in_thread = self._security.in_thread

        async def derive() -> None:
            try:
                await in_thread(compute)
            except Exception as e:  # noqa: BLE001 - otherwise the requests wait for their timeouts
                self.link_lost(link, f"cannot authenticate: {e!r}")
            else:
                link.resume()

        self._deriving = self._loop.create_task(derive())

    def link_heard(self) -> None:
        """Something has come."""
        self.heard_at = self._loop.time()

    def link_lost(self, link: ClientLink, reason: str, kind: type[PeerLost] = PeerLost) -> None:
        """A connection ended by itself; one that we gave up is not ours any more."""
        if link is self.link:
            self._give_up(kind(f"{self.address}: {reason}"))

    # -- giving up ------------------------------------------------------------------------------------

    def _expect(self, call: Call) -> None:
        """Have a missing answer to `call`, which is about to be sent, noticed at its deadline.

        A timer for each call would be expensive, so the timer of an earlier call stays. It is moved if no
        other answer is awaited and it is due in less than three quarters of the call's timeout. Otherwise
        requests at long intervals, such as heartbeats, would wake up an idle process for old deadlines.
        """
        is_old = self._due_at < call.deadline - call.timeout_s / 4
        if self._timer is None or call.deadline < self._due_at or (is_old and self._awaits_nothing):
            self._watch(call.deadline)

    @property
    def _awaits_nothing(self) -> bool:
        return not self._waiting and (self.link is None or not self.link.calls)

    def _watch(self, deadline: float) -> None:
        """Look for answers that are overdue at `deadline`, not at the time before."""
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = deadline
        self._timer = self._loop.call_at(deadline, self._look_for_overdue)

    def _look_for_overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        for call in self._unanswered():
            # Any may have been failed with one before it.
            if call.deadline <= now and not call.is_over:
                self._timed_out(call)
        deadlines = [call.deadline for call in self._unanswered()]
        if deadlines and self._timer is None:
            self._watch(min(deadlines))

    def _unanswered(self) -> list[Call]:
        sent = () if self.link is None else self.link.calls
        return [call for call in (*sent, *self._waiting) if not call.is_over]

    def _timed_out(self, call: Call) -> None:
        if self._connecting is not None and not self._is_attempting:
            # It has only waited for our next attempt, so it learns how the last one ended.
            self._waiting.remove(call)
            call.fail(self._last_error.copy())
        else:
            gone = PeerTimedOut(f"{self.address}: no answer to {call.api.name} in {call.timeout_s:g} s")
            self._give_up(gone)

    def _give_up(self, error: PeerGone) -> None:
        """Let go of the connection, or of the attempt to make one, and fail all that depended on it."""
        link, self.link = self.link, None
        connecting = self._connecting
        self._end_attempt()
        if connecting is not None:
            connecting.cancel()
        if link is None or not link.conversation.is_ready:
            self._not_before = self._loop.time() + self._backoff.failed(self._rng.uniform(-1.0, 1.0))
        self._last_error = error
        calls = list(self._waiting)
        self._waiting.clear()
        if link is not None:
            calls = [*link.calls, *calls]
            link.abort()
        for call in calls:
            call.fail(error.copy())
        if self._on_gone is not None:
            self._on_gone(error)
