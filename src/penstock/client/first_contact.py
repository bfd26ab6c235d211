"""Fails a client early if no broker has ever responded.

librdkafka retries a bootstrap address for as long as a message may take, two minutes by default, without an
error. A wrong address or a broker that is not running should be reported within seconds. Once a broker has
responded, the client's own timeouts apply.

librdkafka reports when it has lost all brokers. If that happens before the first response, `verify` requests
metadata at the end of `timeout_s`; a broker that has started in the meantime responds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import NotReachable

__all__ = ["FirstContact"]

#: how long the last request for metadata may take
_VERIFY_S: Final = 1.0


class FirstContact:
    """The first connection of one client. `error_cb` belongs into its configuration."""

    def __init__(self, bootstrap: str, timeout_s: float | None) -> None:
        """`timeout_s` of None leaves everything to the client's own timeouts."""
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._deadline = 0.0
        self._lost_all = False
        #: whether a broker has answered
        self.made = timeout_s is None

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The client's configuration, with what this needs to learn of its connections."""
        if self._timeout_s is None:
            return config
        settings = {"socket.connection.setup.timeout.ms": max(1000, round(self._timeout_s * 1000)), **config}
        return settings | {"error_cb": self._chained(config.get("error_cb"))}

    def _chained(self, other: Callable[[Any], None] | None) -> Callable[[Any], None]:
        def error_cb(error: Any) -> None:
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._lost_all = True
            if other is not None:
                other(error)

        return error_cb

    def begin(self, now: float) -> None:
        self._deadline = now + (self._timeout_s or 0.0)

    def is_overdue(self, now: float) -> bool:
        """Returns true if no broker has answered, and it is time to `verify` that."""
        return self._lost_all and self.is_late(now)

    def is_late(self, now: float) -> bool:
        """Returns true if no answer is known in time, whether or not librdkafka has reported an error."""
        return not self.made and now >= self._deadline

    async def verify(self, rk: Any) -> NotReachable | None:
        """The error for everything that waits, or None if a broker answers by now."""
        try:
            await asyncio.to_thread(rk.list_topics, timeout=_VERIFY_S)
        except KafkaException as e:
            return NotReachable(
                f"no broker responded at {self._bootstrap} within {self._timeout_s:g} s ({e.args[0].str()}). "
                "Check that a broker listens there, or raise connect_timeout",
                KafkaError._ALL_BROKERS_DOWN,
                retriable=True,
            )
        self.made = True
        return None
