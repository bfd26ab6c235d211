"""Requests that librdkafka has no call for, sent to brokers directly: any Kafka cluster answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from penstock.broker.world import SystemRng
from penstock.cli.failure import Failure
from penstock.model.errors import ErrorCode, UnsupportedVersion
from penstock.net.client import Peer, PeerGone
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = ["DirectLine", "refuse"]


class DirectLine:
    """Connections to brokers, for a while: `with DirectLine(bootstrap, timeout_s) as line`."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._runner = asyncio.Runner()
        self._peers: dict[str, Peer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def ask(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The answer of the first broker that gives one, of those to start from."""
        return self._runner.run(self._ask_any(api, request))

    def ask_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        """The answers of several brokers, asked at once; None from who does not answer."""
        return self._runner.run(self._ask_each(list(addresses), api, request))

    async def _ask_any(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        for address in self.bootstrap.split(","):
            try:
                return await self._ask_at(address.strip(), api, request)
            except PeerGone as error:
                last: PeerGone = error
            except UnsupportedVersion as error:
                raise Failure(f"{address} does not know {api.name}: it is too old, or too simple") from error
        raise Failure(
            f"no broker answers at {self.bootstrap}: start one with `penstock up`, or "
            f"name another with --bootstrap"
        ) from last

    async def _ask_each(
        self, addresses: list[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        async def answer(address: str) -> ResponseT | None:
            try:
                return await self._ask_at(address, api, request)
            except (PeerGone, UnsupportedVersion):
                return None

        answers = await asyncio.gather(*(answer(address) for address in addresses))
        return dict(zip(addresses, answers, strict=True))

    async def _ask_at(self, address: str, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        peer = self._peers.get(address)
        if peer is None:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit():
                raise Failure(f"{address!r} is not HOST:PORT: mend --bootstrap")
            peer = self._peers[address] = Peer(
                asyncio.get_running_loop(),
                host.strip("[]"),
                int(port),
                client_id="penstock-cli",
                rng=SystemRng(),
            )
        return await peer.send(api, request, self.timeout_s)

    async def _close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        await asyncio.sleep(0)  # their transports end with the next turn of the loop


def refuse(code: int, message: str | None, about: str) -> None:
    """Raise a Failure `about` something unless `code` says that all is well."""
    if code:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"error {code}"
        raise Failure(f"{about}: {message or name}")
