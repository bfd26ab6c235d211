"""Requests of this node to the active controller, wherever that is, with retries until a leader responds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from penstock.broker.node.controller_service import ControllerService
from penstock.broker.node.peers import Peers
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.broker.node.quorum_wait import reason_for_silence
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode, PenstockError
from penstock.net.peer_errors import PeerGone
from penstock.raft.messages import NO_NODE
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = ["ControllerClient", "ControllerUnavailable"]

T = TypeVar("T")
#: how long to wait for a new leader before the request is sent to the known leader again
_RETRY_S: Final = 0.05


class ControllerUnavailable(PenstockError):
    """No node has responded as the active controller in time."""


def _nothing() -> None:
    """The default callback: does nothing."""


class ControllerClient:
    """Sends requests to the leader of the quorum, which is the active controller. That may be this node."""

    def __init__(
        self, config: BrokerConfig, quorum: QuorumDriver, peers: Peers, service: ControllerService
    ) -> None:
        """`service` responds if this node is the active controller."""
        self._config = config
        self._node_id = config.node_id
        self._quorum = quorum
        self._peers = peers
        self._service = service
        self._leader_change = asyncio.Event()

    def leader_changed(self) -> None:
        """Wake requests that wait for another leader."""
        change, self._leader_change = self._leader_change, asyncio.Event()
        change.set()

    @property
    def is_here(self) -> bool:
        """Returns true if this node leads the quorum."""
        return self._leader_id == self._node_id

    @property
    def _leader_id(self) -> int:
        return self._quorum.state.leader_id

    @property
    def _patience_s(self) -> float:
        """How long a response may take before the request is sent again over another connection."""
        return self._config.controller_quorum_request_timeout_ms / 1000

    async def send(
        self,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        *,
        purpose: str = "controller",
        on_unanswered: Callable[[], None] = _nothing,
    ) -> ResponseT:
        """The active controller's response, from any node; ControllerUnavailable if there is none.

        `on_unanswered` is called before a retry if the controller may still execute the previous request.
        """

        async def attempt(left_s: float) -> ResponseT | None:
            if self.is_here:
                response = await self._service.handle(api, request)
            elif self._leader_id == NO_NODE:
                return None
            else:
                found = await self.send_to_leader(api, request, left_s, purpose)
                if found is None:
                    on_unanswered()
                    return None
                response = found
            return None if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER else response

        return await self.until_answered(attempt, timeout_s)

    async def until_answered(self, attempt: Callable[[float], Awaitable[T | None]], timeout_s: float) -> T:
        """The result of the first attempt that is not None; each attempt gets the seconds that are left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            answer = await attempt(max(0.001, deadline - loop.time()))
            if answer is not None:
                return answer
            if self._quorum.failure is not None:
                raise ControllerUnavailable(f"this node has left the quorum: {self._quorum.failure}")
            left_s = deadline - loop.time()
            if left_s <= 0:
                reason = reason_for_silence(self._quorum.state)
                raise ControllerUnavailable(f"no controller has responded in {timeout_s:g} s: {reason}")
            await self._wait_for_leader(min(left_s, _RETRY_S))

    async def _wait_for_leader(self, timeout_s: float) -> None:
        """Return when another node leads, or after `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._leader_change.wait()

    async def send_to_leader(
        self, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float, purpose: str
    ) -> ResponseT | None:
        """The response of the leader if that is another node; None if it does not respond in time."""
        return await self._send_to_leader(api, request, min(timeout_s, self._patience_s), purpose)

    async def send_to_leader_once(
        self, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float, purpose: str
    ) -> ResponseT | None:
        """Like `send_to_leader`, for requests that must not run twice: only another leader ends the wait."""
        change = self._leader_change
        sending = asyncio.ensure_future(self._send_to_leader(api, request, timeout_s, purpose))
        led = asyncio.ensure_future(change.wait())
        try:
            # A former leader may still respond. A retry before that could execute the request twice.
            await asyncio.wait([sending], timeout=self._patience_s)
            await asyncio.wait([sending, led], return_when=asyncio.FIRST_COMPLETED)
            return sending.result() if sending.done() else None
        finally:
            sending.cancel()
            led.cancel()

    async def _send_to_leader(
        self, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float, purpose: str
    ) -> ResponseT | None:
        if self._leader_id in (NO_NODE, self._node_id):
            return None
        try:
            return await self._peers.get(self._leader_id, purpose).send(api, request, timeout_s)
        except PeerGone:
            return None
