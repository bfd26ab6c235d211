"""Connections to the brokers of a cluster, and the client's view of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.client.connection_causes import Causes
from penstock.client.errors import MisusedClient, NotReachable
from penstock.client.first_contact import refused_by
from penstock.client.queues.refusals import refusal
from penstock.client.settings import security_of
from penstock.model.addresses import parse_bootstrap
from penstock.model.errors import ErrorCode, InvalidConfig, UnsupportedVersion
from penstock.net.client import Peer
from penstock.net.client_security import ClientSecurity, client_security
from penstock.net.cluster_client import ClusterClient
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRejected
from penstock.net.randomness import SystemRng
from penstock.security.client_names import java_names
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.backoff import Backoff
from penstock.wire.routing import Address, Reaction, coordinator_in, coordinator_request, reaction_to

__all__ = ["REQUEST_TIMEOUT_S", "Connections", "security_from"]

REQUEST_TIMEOUT_S: Final = 30.0
_BACKOFF_FIRST_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 1.0
_RNG: Final = SystemRng()
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


def security_from(config: Mapping[str, Any]) -> ClientSecurity | None:
    """TLS and SASL from settings under librdkafka's names, or those of Java clients; None for plaintext."""
    given = security_of(config)
    oauth_cb = given.pop("oauth_cb", None)
    settings = java_names({name: str(value) for name, value in given.items()})
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    try:
        return client_security(
            protocol,
            settings.get,
            in_thread=asyncio.to_thread,
            oauth_cb=oauth_cb,
        )
    except InvalidConfig as e:
        raise MisusedClient(f"security settings of config=: {e}") from e


def _protocol(security: ClientSecurity | None) -> str:
    """The security protocol under librdkafka's name."""
    if security is None:
        return "plaintext"
    login = "sasl_" if security.login is not None else ""
    return f"{login}{'plaintext' if security.tls is None else 'ssl'}"


class Connections:
    """One connection to each broker for requests that are answered soon. A fetch has a connection of its own.

    Belongs to the event loop that runs when it is made.
    """

    def __init__(self, bootstrap: str, client_id: str, security: ClientSecurity | None) -> None:
        self.bootstrap = bootstrap
        addresses = parse_bootstrap(bootstrap)
        self._client = ClusterClient(addresses, client_id, security)
        self.view = self._client.view
        # Before the first answer, each address may fail once until the reason is looked for.
        self._failures_left = len(addresses)
        self._causes = Causes(bootstrap, {"security.protocol": _protocol(security)})
        self._loop = asyncio.get_running_loop()
        self._names: dict[bytes, str] = {}
        self._has_answer = False

    def new_peer(self, address: Address, on_gone: Callable[[PeerGone], None] | None = None) -> Peer:
        """A connection of its own, which its owner closes."""
        return self._client.new_peer(address, on_gone)

    def close(self) -> None:
        self._client.close()

    async def send_to(
        self,
        address: Address,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> ResponseT:
        """The response of one broker. Raises `PeerGone`, or `Refused` if it does not know the API."""
        try:
            return await self._client.send_to(address, api, request, timeout_s)
        except UnsupportedVersion as e:
            about = f"{address[0]}:{address[1]} does not support {api.name}"
            raise refusal(ErrorCode.UNSUPPORTED_VERSION, None, about) from e

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float | None
    ) -> ResponseT:
        """The response of the first broker that responds; `NotReachable` if none does in time.

        `AuthenticationFailed` if the first connection is refused, or no TLS connection can be made: another
        attempt would not change it.
        """
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            left_s = REQUEST_TIMEOUT_S if deadline is None else deadline - self._loop.time()
            try:
                response = await self.send_to(
                    self.view.next_node(), api, request, max(0.01, min(left_s, REQUEST_TIMEOUT_S))
                )
                self._has_answer = True
                return response
            except PeerRejected as e:
                if not self._has_answer:
                    self._causes.note_own(str(e), is_login=True)
                    await self._examine(e, is_late=True)
                wait_s = await self._after(e, backoff, deadline, timeout_s)
            except PeerGone as e:
                wait_s = await self._after(e, backoff, deadline, timeout_s)
            await asyncio.sleep(wait_s)

    async def _after(
        self, gone: PeerGone, backoff: Backoff, deadline: float | None, timeout_s: float | None
    ) -> float:
        """How long to wait for the next attempt; raises if it would come after the deadline."""
        wait_s = backoff.failed(_RNG.uniform(-1.0, 1.0))
        is_late = deadline is not None and self._loop.time() + wait_s >= deadline
        if not self._has_answer:
            await self._examine(gone, is_late)
        if not is_late:
            return wait_s
        raise NotReachable(
            f"no broker responded at {self.bootstrap} within {timeout_s:g} s ({gone}). "
            "Check that a broker listens there, or raise connect_timeout",
            _TIMED_OUT,
            retriable=True,
        ) from gone

    async def _examine(self, gone: PeerGone, is_late: bool) -> None:
        """Raise `AuthenticationFailed` if the reason is one that another attempt does not change."""
        self._failures_left -= 1
        if isinstance(gone, PeerLost) and not isinstance(gone, PeerRejected):
            self._causes.note_own(str(gone), is_login=False)
        # Once all addresses have failed, and at the end: a broker may have started in between.
        if self._failures_left == 0 or is_late:
            cause = await asyncio.to_thread(self._causes.examined)
            if cause is not None:
                raise refused_by(cause) from gone

    async def refresh(self, topics: Iterable[str], timeout_s: float | None = REQUEST_TIMEOUT_S) -> None:
        """Update the view of the cluster. Topics are created if the brokers allow it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        response = await self.send(METADATA, request, timeout_s)
        self.view.update(response)
        self._names.update({topic.topic_id: topic.name for topic in response.topics if topic.name})
        for topic in response.topics:
            if topic.error_code and reaction_to(topic.error_code) is Reaction.FAIL:
                raise refusal(topic.error_code, None, f"topic {topic.name}")

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    async def coordinator(self, group: str) -> Address | None:
        """The address of a group's coordinator; None while there is none."""
        found = coordinator_in(
            await self.send(FIND_COORDINATOR, coordinator_request(group), REQUEST_TIMEOUT_S)
        )
        if not found.error_code:
            return found.host, found.port
        if reaction_to(found.error_code) is Reaction.FAIL:
            raise refusal(found.error_code, found.error_message, f"group {group}")
        return None
