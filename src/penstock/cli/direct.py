"""Sends requests that librdkafka does not support directly to the brokers of any Kafka cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from penstock.broker.base.system_ports import SystemRng
from penstock.cli.client_config import client_security
from penstock.cli.failure import Failure, misused, too_late
from penstock.model.config.layers import bracketed
from penstock.model.errors import ErrorCode, UnsupportedVersion
from penstock.net.client import Peer
from penstock.net.peer_errors import PeerGone, PeerRefused, PeerTimedOut
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest

__all__ = ["HELLO", "DirectLine", "NoAnswer", "address_of", "refuse"]

#: a request that every broker answers without other brokers
HELLO: Final = ApiVersionsRequest(client_software_name="penstock-cli", client_software_version="1")


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
        self._contact: str | None = None
        self._runner = asyncio.Runner()
        self._peers: dict[str, Peer] = {}
        self._security = client_security()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def send(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of one of the bootstrap brokers."""
        return self._runner.run(self._send_to_contact(api, request))

    def turn_to(self, address: str) -> None:
        """Send requests to this broker from now on: its metadata is newer than the first one's."""
        self._contact = address

    def send_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        """The responses of several brokers to concurrent requests; None for one that does not respond."""
        return self._runner.run(self._send_each(list(addresses), api, request))

    async def _send_to_contact(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        untried = set(self._addresses)
        while True:
            address = self._contact = self._contact or await self._first_to_answer(untried)
            if address is None:
                raise await self._no_contact(api)
            untried.discard(address)
            try:
                return await self._send_to(address, api, request)
            except PeerTimedOut as error:
                # The request may still be carried out, so no other broker gets it. The broker may hang,
                # though.
                self._contact = None
                raise NoAnswer(too_late(f"{address} has not answered {api.name}", self.timeout_s)) from error
            except PeerGone:
                self._contact = None
            except UnsupportedVersion as error:
                raise Failure(f"{address} does not support {api.name}") from error

    async def _first_to_answer(self, addresses: Iterable[str]) -> str | None:
        """The first broker that responds to ApiVersions; None if none does."""
        for address in self._addresses:
            self._peer(address)  # report an invalid address before any request is sent
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

    async def _no_contact(self, api: Api[RequestT, ResponseT]) -> Failure:
        if await self._first_to_answer(self._addresses):
            return NoAnswer(
                f"{self.bootstrap} closed the connection instead of answering {api.name}: try again"
            )
        return Failure(
            f"no broker answers at {self.bootstrap}: start one with `penstock up`, or "
            f"name another with --bootstrap"
        )

    async def _answers(self, address: str) -> tuple[str, bool]:
        answers = await self._send_each([address], API_VERSIONS, HELLO)
        return address, answers[address] is not None

    async def _send_each(
        self, addresses: list[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        async def answer(address: str) -> ResponseT | None:
            try:
                return await self._send_to(address, api, request)
            except (PeerGone, UnsupportedVersion):
                return None

        answers = await asyncio.gather(*(answer(address) for address in addresses))
        return dict(zip(addresses, answers, strict=True))

    async def _send_to(self, address: str, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        try:
            return await self._peer(address).send(api, request, self.timeout_s)
        except PeerRefused:
            self.refused.add(address)
            raise

    def _peer(self, address: str) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                misused(f"{address!r} is not HOST:PORT: correct --bootstrap")
            peer = self._peers[address] = Peer(
                asyncio.get_running_loop(),
                host.strip("[]"),
                int(port),
                client_id="penstock-cli",
                rng=SystemRng(),
                security=self._security,
            )
        return peer

    async def _close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        await asyncio.sleep(0)  # their transports end with the next turn of the loop


def address_of(host: str, port: int) -> str:
    """The address of a broker as HOST:PORT."""
    return f"{bracketed(host)}:{port}"


def refuse(code: int, message: str | None, about: str) -> None:
    """Raise a Failure `about` something unless `code` is NONE."""
    if code:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"error {code}"
        raise Failure(f"{about}: {message or name}")
