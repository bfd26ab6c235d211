"""Two-phase transactions for applications: `penstock.twophase` on a thread of its own.

Owned by: the event loop's thread. One request is under way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from penstock.client.errors import MisusedClient, NotReachable
from penstock.client.settings import security_of
from penstock.model.addresses import parse_bootstrap
from penstock.model.errors import ErrorCode, InvalidConfig
from penstock.net.peer_errors import PeerGone
from penstock.reading.connection import Cluster, Endpoint, Security
from penstock.security.client_names import java_names
from penstock.twophase.outcomes import PreparedTransaction
from penstock.twophase.prepared import PreparedTransactions

__all__ = ["TwoPhase"]

T = TypeVar("T")


class TwoPhase:
    """Prepares and decides transactions that any producer has written; use it in `async with`.

    Errors are `penstock.twophase.outcomes.NotSupported` and `OtherOutcome`, and `NotReachable`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout: float = 60.0,
        client_id: str = "penstock",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`config` takes security under librdkafka's names. A call ends after `timeout` at the latest."""
        self._bootstrap = bootstrap
        endpoint = Endpoint(
            tuple(parse_bootstrap(bootstrap)),
            client_id,
            request_timeout_s=min(timeout, 30.0),
            total_timeout_s=timeout,
            security=_security(config or {}),
        )
        self._cluster = Cluster(endpoint)
        self._transactions = PreparedTransactions(self._cluster)
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        async with self._turn:
            self._cluster.close()

    async def check(self, transactional_id: str) -> None:
        """`NotSupported` if a transaction of this id could not be prepared. No transaction may be open."""
        await self._call(lambda: self._transactions.check(transactional_id))

    async def prepare(self, transactional_id: str) -> PreparedTransaction | None:
        """Keep the open transaction, without a timeout, and fence its producer; None if none is open.

        Call it when all messages of the transaction are acknowledged.
        """
        return await self._call(lambda: self._transactions.prepare(transactional_id))

    async def end(self, prepared: PreparedTransaction, *, committed: bool) -> None:
        """Commit or abort, also again. `OtherOutcome` if the transaction has another outcome."""
        await self._call(lambda: self._transactions.end(prepared, committed=committed))

    async def abort(self, transactional_id: str) -> None:
        """Abort what is open under this id, prepared or not, and fence its producer."""
        await self._call(lambda: self._transactions.abort(transactional_id))

    async def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix that loaded coordinators have open transactions of."""
        return await self._call(lambda: self._transactions.open_ids(prefix))

    async def _call(self, call: Callable[[], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(call)
            except PeerGone as e:
                raise NotReachable(
                    f"no coordinator responded at {self._bootstrap} ({e}): check the cluster, and try again",
                    int(ErrorCode.REQUEST_TIMED_OUT),
                    retriable=True,
                ) from e


def _security(config: Mapping[str, Any]) -> Security | None:
    """TLS and SASL from settings under librdkafka's names; None for plaintext."""
    try:
        settings = java_names({name: str(value) for name, value in security_of(config).items()})
    except InvalidConfig as e:
        raise MisusedClient(f"security settings of config=: {e}") from e
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return None
    return Security(protocol, tuple(sorted(settings.items())))
