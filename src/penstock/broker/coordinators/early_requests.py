"""Requests that reach their coordinator before it has opened the partition of their key.

FindCoordinator creates an internal topic and names the leaders of its partitions at once. A leader learns of
the topic a moment later, or is still opening the log. Without a wait it would answer NOT_COORDINATOR, and the
client would look for another coordinator. The wait is short: a request whose partition does not appear is
answered NOT_COORDINATOR.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.net.deferred import Deferred
from penstock.wire.schema import Struct

__all__ = ["EarlyRequests"]

#: how long a request waits for the partition of its key
_TIMEOUT_S: Final = 0.5


class EarlyRequests:
    """The waiting requests, in the order of their arrival."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Deferred[Struct], tuple[str, Callable[[], Struct | Deferred[Struct]]]] = {}

    def add(
        self, key: str, submit: Callable[[], Struct | Deferred[Struct]], refuse: Callable[[], Struct]
    ) -> Deferred[Struct]:
        """Have `submit` called when the partition of `key` is open, or `refuse` after the timeout."""
        response: Deferred[Struct] = Deferred()
        self._waiting[response] = key, submit

        def expire() -> None:
            if self._waiting.pop(response, None) is not None:
                response.resolve(refuse())

        def cancel() -> None:
            self._waiting.pop(response, None)

        asyncio.get_running_loop().call_later(_TIMEOUT_S, expire)
        response.on_cancel = cancel
        return response

    def submit(self, is_open: Callable[[str], bool]) -> None:
        """Submit the requests whose key is now in an open partition."""
        ready = [(response, submit) for response, (key, submit) in self._waiting.items() if is_open(key)]
        for response, submit in ready:
            del self._waiting[response]
            _pass_on(submit(), response)


def _pass_on(result: Struct | Deferred[Struct], response: Deferred[Struct]) -> None:
    if not isinstance(result, Deferred):
        response.resolve(result)
        return
    response.on_cancel = result.cancel
    result.then(response.resolve)
