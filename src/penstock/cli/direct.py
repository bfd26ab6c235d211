"""Sends requests that librdkafka does not support directly to the brokers of any Kafka cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from penstock.cli.client_config import client_security, librdkafka_settings
from penstock.cli.failure import Failure, misused, too_late
from penstock.model.addresses import Address, address_text, parse_address
from penstock.model.errors import UnsupportedVersion, error_name
from penstock.net.cluster_client import ClusterClient
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRefused, PeerRejected, PeerTimedOut
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest

if TYPE_CHECKING:
    from penstock.client.connection_causes import Cause
    from penstock.net.link_client import LinkPort

__all__ = ["HELLO", "DirectLine", "NoAnswer", "refuse"]

T = TypeVar("T")
#: a request that every broker answers without other brokers
HELLO: Final = ApiVersionsRequest(client_software_name="penstock-cli", client_software_version="1")


#: how long the search for a cause may wait for an address
_LOOK_S: Final = 0.5


class NoAnswer(Failure):
    """A broker accepts connections and has not responded in time."""


class DirectLine:
    """Connections to brokers: `with DirectLine(bootstrap, timeout_s) as line`.

    `send` uses the first broker that has responded to ApiVersions: a broker that hangs does not block it.
    """

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        #: addresses that refuse connections: the process is gone
        self.refused: set[str] = set()
        self._addresses = [address.strip() for address in bootstrap.split(",")]
        #: how the last request to an address has failed
        self._gone: dict[Address, PeerGone] = {}
        self._runner = asyncio.Runner()
        self._client = ClusterClient(list(map(_pair, self._addresses)), "penstock-cli", client_security())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    @property
    def addresses(self) -> list[str]:
        """The bootstrap addresses."""
        return list(self._addresses)

    def send(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of one of the bootstrap brokers."""
        return self._runner.run(self._send_to_contact(api, request))

    def run(self, work: Callable[[LinkPort], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`, whose requests go where those of `send` go."""
        return self._runner.run(work(_Port(self)))

    def turn_to(self, address: str) -> None:
        """Send requests to this broker from now on: its metadata is newer than the first one's."""
        self._client.contact = _pair(address)

    def send_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        """The responses of several brokers to concurrent requests; None for one that does not respond."""
        return self._runner.run(self._send_named(addresses, api, request))

    async def _send_named(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        named = list(addresses)
        answers = await self._send_each(list(map(_pair, named)), api, request)
        return dict(zip(named, answers, strict=True))

    async def _send_to_contact(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        untried = set(self._client.bootstrap)
        has_answer = False
        while True:
            address = self._client.contact = self._client.contact or await self._first_to_answer(untried)
            if address is None:
                raise await self._no_contact(api, has_answer)
            has_answer = True
            untried.discard(address)
            try:
                return await self._send_to(address, api, request)
            except PeerTimedOut as error:
                # The request may still be carried out, so no other broker gets it. The broker may hang,
                # though.
                self._client.contact = None
                text = f"{address_text(*address)} has not answered {api.name}"
                raise NoAnswer(too_late(text, self.timeout_s)) from error
            except PeerGone:
                self._client.contact = None
            except UnsupportedVersion as error:
                raise Failure(f"{address_text(*address)} does not support {api.name}") from error

    async def _first_to_answer(self, addresses: Iterable[Address]) -> Address | None:
        """The first broker that responds to ApiVersions; None if none does."""
        hellos = [asyncio.create_task(self._answers(address)) for address in addresses]
        try:
            for hello in asyncio.as_completed(hellos):
                address, answers = await hello
                if answers:
                    return address
        finally:
            for pending in hellos:
                pending.cancel()
        return None

    async def _no_contact(self, api: Api[RequestT, ResponseT], has_answer: bool) -> Failure:
        """The failure if no address is left. With `has_answer` one has responded before, and may again."""
        from penstock.cli.contacts import not_accepted, unreachable

        cause = await asyncio.to_thread(self._cause)
        if cause is not None:
            return not_accepted(cause)
        if has_answer and await self._first_to_answer(self._client.bootstrap):
            return NoAnswer(
                f"{self.bootstrap} closed the connection instead of answering {api.name}: try again"
            )
        return unreachable(self.bootstrap)

    def _cause(self) -> Cause | None:
        """Why no broker accepts the command, as far as the errors of connections tell."""
        from penstock.client.connection_causes import Causes

        lost = {a: gone for a, gone in self._gone.items() if isinstance(gone, PeerLost)}
        if not lost:
            return None  # refused connections and timeouts have other reasons
        causes = Causes(",".join(address_text(*a) for a in lost), librdkafka_settings())
        for gone in lost.values():
            causes.note_own(str(gone), is_login=isinstance(gone, PeerRejected))
        return causes.examined(_LOOK_S)

    async def _answers(self, address: Address) -> tuple[Address, bool]:
        answers = await self._send_each([address], API_VERSIONS, HELLO)
        return address, answers[0] is not None

    async def _send_each(
        self, addresses: list[Address], api: Api[RequestT, ResponseT], request: RequestT
    ) -> list[ResponseT | None]:
        async def answer(address: Address) -> ResponseT | None:
            try:
                return await self._send_to(address, api, request)
            except (PeerGone, UnsupportedVersion):
                return None

        return await asyncio.gather(*(answer(address) for address in addresses))

    async def _send_to(self, address: Address, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        try:
            return await self._client.send_to(address, api, request, self.timeout_s)
        except PeerGone as gone:
            self._gone[address] = gone
            if isinstance(gone, PeerRefused):
                self.refused.add(address_text(*address))
            raise

    async def _close(self) -> None:
        self._client.close()
        await asyncio.sleep(0)  # their transports end with the next turn of the loop


class _Port:
    """Sends the requests of a coroutine; error codes are Failures."""

    def __init__(self, line: DirectLine) -> None:
        self._line = line

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, *, changes: bool = False
    ) -> ResponseT:
        return await self._line._send_to_contact(api, request)

    async def send_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        return await self._line._send_named(addresses, api, request)

    def check(self, code: int, message: str | None, about: str) -> None:
        refuse(code, message, about)


def _pair(address: str) -> Address:
    try:
        return parse_address(address)
    except ValueError as error:
        misused(f"{error}: correct --bootstrap")


def refuse(code: int, message: str | None, about: str) -> None:
    """Raise a Failure `about` something unless `code` is NONE."""
    if code:
        raise Failure(f"{about}: {message or error_name(code)}")
