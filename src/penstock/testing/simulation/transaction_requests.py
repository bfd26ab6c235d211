"""Requests of a transactional producer to coordinators, and copies of requests that arrive late.

A producer of transaction.version 1 uses the API versions that existed before version 2.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from penstock.testing.simulation.clients import Client, Unanswered
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT

__all__ = [
    "ADD_PARTITIONS_V1",
    "ECHO",
    "ECHO_S",
    "END_TXN_V1",
    "GROUP",
    "PRODUCE_V1",
    "TRANSACTION",
    "TXN_OFFSET_COMMIT_V1",
    "CoordinatorRequests",
    "NotSent",
    "TransactionalId",
]

#: the types of coordinators
TRANSACTION: Final = 1
GROUP: Final = 0
_TIMEOUTS_S: Final = (0.25, 3.0, 3.0)
_BACKOFF_S: Final = (0.01, 0.06)
#: probability that a copy of a request arrives late, and the delay in seconds
ECHO: Final = 0.1
ECHO_S: Final = (0.0, 1.5)


def _limited(api: Api[RequestT, ResponseT], version_max: int) -> Api[RequestT, ResponseT]:
    """The API as a client knows it that was built before the versions after `version_max`."""
    return Api(
        api.key,
        api.name,
        (api.min_supported, version_max),
        request=api.request,
        response=api.response,
        flexible_from=api.flexible_from,
    )


ADD_PARTITIONS_V1: Final = _limited(ADD_PARTITIONS_TO_TXN, 3)
PRODUCE_V1: Final = _limited(PRODUCE, 11)
TXN_OFFSET_COMMIT_V1: Final = _limited(TXN_OFFSET_COMMIT, 4)
END_TXN_V1: Final = _limited(END_TXN, 4)


class NotSent(Exception):
    """No coordinator was found; the request has not left."""


class TransactionalId:
    """A transactional id, with state that all its instances share."""

    def __init__(self, name: str, version: int, timeout_ms: int) -> None:
        self.name = name
        #: the transaction.version of its producers
        self.version = version
        self.timeout_ms = timeout_ms
        self.instances = 0
        #: requests without a response: they may be executed at any later time
        self.unanswered = 0


class CoordinatorRequests:
    """The requests of one instance. `late` is a second client process, whose copies of requests arrive late.

    Without `late` there are no late copies.
    """

    def __init__(self, client: Client, late: Client | None, identity: TransactionalId) -> None:
        self._client = client
        self._late = late
        self._id = identity
        self._rng = client.rng
        self._addresses: dict[tuple[int, str], tuple[str, int]] = {}

    async def send(self, kind: int, key: str, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """Send a request to a coordinator; Unanswered if there is no response."""
        place = kind, key
        try:
            if place not in self._addresses:
                found = await self._client.find_coordinator(key, kind)
                self._addresses[place] = found.host, found.port
            address = self._addresses[place]
        except Unanswered:
            raise NotSent from None
        try:
            return await self._client.send(address, api, request, self._rng.choice(_TIMEOUTS_S))
        except Unanswered:
            self._id.unanswered += 1
            self._addresses.pop(place, None)
            raise

    async def send_until_answered(
        self, kind: int, key: str, api: Api[RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        while True:
            try:
                return await self.send(kind, key, api, request)
            except (Unanswered, NotSent):
                await self.pause(kind, key)

    async def pause(self, kind: int, key: str) -> None:
        """Wait before the next attempt, which looks the coordinator up again."""
        self._addresses.pop((kind, key), None)
        await asyncio.sleep(self._rng.uniform(*_BACKOFF_S))

    def echo(self, kind: int, key: str, api: Api[RequestT, ResponseT], request: RequestT) -> None:
        """Have a copy of a request arrive late, at the coordinator of that time."""
        if self._late is not None and self._rng.random() < ECHO:
            repeating = self._repeat(self._late, kind, key, api, request)
            asyncio.get_running_loop().create_task(repeating)

    async def _repeat(
        self, late: Client, kind: int, key: str, api: Api[RequestT, ResponseT], request: RequestT
    ) -> None:
        await asyncio.sleep(self._rng.uniform(*ECHO_S))
        with suppress(Unanswered):
            found = await late.find_coordinator(key, kind)
            await late.send((found.host, found.port), api, request)
