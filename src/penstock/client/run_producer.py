"""The transactional producer of a run: given by the caller, or made here and replaced after it was fenced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from penstock.client.errors import MisusedClient, NotReachable, ProducerFenced, TransactionFailed
from penstock.client.producer import Producer
from penstock.client.retrying import RetryPolicy
from penstock.client.stopping import Stop, Stopped
from penstock.client.transactions import Transaction

__all__ = ["RunProducer"]

_log = logging.getLogger("penstock.client")
_RETRY = RetryPolicy(backoff=0.1, max_backoff=5.0)


class RunProducer:
    """Has one producer at a time. A producer of the caller is neither closed nor replaced."""

    def __init__(
        self,
        given: Producer | None,
        make: Callable[[], Producer],
        *,
        is_shared_id: bool,
        timeout_s: float,
        stop: Stop,
    ) -> None:
        """`is_shared_id` is false if the transactional id is random, so that no other producer has it."""
        self._stop = stop
        self._given = given
        self._make = make
        self._is_shared_id = is_shared_id
        self._timeout_s = timeout_s
        self._producer: Producer | None = given

    async def __aenter__(self) -> Self:
        """`Stopped` if the consumer is closed before the producer has started."""
        if self._given is None:
            self._producer = await self._started()
        elif not self._given.is_transactional:
            raise MisusedClient("exactly_once needs a producer with a transactional_id")
        else:
            self._given.stop = self._stop
        return self

    async def _started(self) -> Producer:
        if self._stop.is_set():
            raise Stopped
        producer = self._make()
        producer.stop = self._stop
        await producer.start()
        return producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._given is not None:
            self._given.stop = Stop()
        elif self._producer is not None:
            await self._producer.close()

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        assert self._producer is not None, "not entered"
        return self._producer.transaction()

    @property
    def has_committed(self) -> bool:
        """Returns true if the last transaction was committed."""
        return self._producer is not None and self._producer.has_committed

    def is_replaceable(self, failure: TransactionFailed, elapsed_s: float) -> bool:
        """Returns true if a new producer with the same id can go on.

        A producer that was fenced within its transaction's timeout has lost its id to another one.
        """
        if self._given is not None:
            return False
        if isinstance(failure, ProducerFenced):
            return not self._is_shared_id or elapsed_s >= self._timeout_s
        return failure.is_timeout

    async def replace(self) -> None:
        """Make a new producer with the same id, which completes the transaction of the old one.

        `Stopped` if the consumer is closed before it has started.
        """
        assert self._producer is not None
        await self._producer.close()
        retry = 0
        while True:
            try:
                self._producer = await self._started()
                return
            except NotReachable as e:
                _log.warning("no new transactional producer yet: %s", e)
                await self._stop.sleep(_RETRY.delay(retry))
                retry += 1
