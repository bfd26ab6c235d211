"""Fails a client early if no broker has ever responded.

librdkafka retries a bootstrap address for as long as a message may take, two minutes by default, without an
error. A wrong address or a broker that is not running should be reported within seconds, and a wrong password
at once. Once a broker has responded, the client's own timeouts apply.

librdkafka reports when it has lost all brokers. If that happens before the first response, `verify` looks for
the reason. A reason that another attempt cannot change is reported at once. Otherwise `verify` requests
metadata at the end of `timeout_s`; a broker that has started in the meantime responds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from penstock.client.connection_causes import Cause, Causes, Kind
from penstock.client.errors import AuthenticationFailed, NotReachable, Refused

__all__ = ["FirstContact", "refused_by"]

#: how long the last request for metadata may take
_VERIFY_S: Final = 1.0
_REMEDIES: Final = {
    Kind.LOGIN: "Check sasl.username, sasl.password and sasl.mechanism in config",
    Kind.CERTIFICATE: "Set ssl.ca.location in config to the authority of the brokers, "
    "and use a host name that the certificate has",
    Kind.TLS: "Check the ssl settings in config: a broker may require a client certificate",
    Kind.TLS_MISSING: "Set security.protocol in config to ssl or sasl_ssl",
    Kind.TLS_UNEXPECTED: "Set security.protocol in config to plaintext or sasl_plaintext, or use another "
    "port",
    Kind.LOGIN_MISSING: "Set security.protocol in config to sasl_plaintext, with sasl.username and "
    "sasl.password",
    Kind.LOGIN_UNEXPECTED: "Set security.protocol in config to plaintext or ssl, or use another port",
}


def refused_by(cause: Cause) -> AuthenticationFailed:
    """The error of a client that no broker accepts, with the remedy."""
    return AuthenticationFailed(f"{cause.text}. {_REMEDIES[cause.kind]}", cause.code)


class FirstContact:
    """The first connection of one client. `error_cb` belongs into its configuration."""

    def __init__(self, bootstrap: str, timeout_s: float | None) -> None:
        """`timeout_s` of None leaves everything to the client's own timeouts."""
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._deadline = 0.0
        self._lost_all = False
        self._causes = Causes(bootstrap, {})
        self._is_examined = False
        #: whether a broker has answered
        self.made = timeout_s is None

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The client's configuration, with what this needs to learn of its connections."""
        if self._timeout_s is None:
            return config
        self._causes = Causes(self._bootstrap, config)
        settings = {"socket.connection.setup.timeout.ms": max(1000, round(self._timeout_s * 1000)), **config}
        return settings | {"error_cb": self._chained(config.get("error_cb"))}

    def _chained(self, other: Callable[[Any], None] | None) -> Callable[[Any], None]:
        def error_cb(error: Any) -> None:
            self._causes.note(error)
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._lost_all = True
            if other is not None:
                other(error)

        return error_cb

    def begin(self, now: float) -> None:
        self._deadline = now + (self._timeout_s or 0.0)

    def is_overdue(self, now: float) -> bool:
        """Returns true if no broker has answered, and it is time to `verify` that."""
        if self.made or not self._lost_all:
            return False
        return not self._is_examined or self._causes.reported is not None or now >= self._deadline

    def is_late(self, now: float) -> bool:
        """Returns true if no answer is known in time, whether or not librdkafka has reported an error."""
        return not self.made and now >= self._deadline

    async def verify(self, rk: Any) -> Refused | None:
        """The error for everything that waits; None if a broker answers by now, or may do so in time."""
        self._is_examined = True
        cause = await asyncio.to_thread(self._causes.examined)
        if cause is None and not self.is_late(asyncio.get_running_loop().time()):
            return None
        try:
            await asyncio.to_thread(rk.list_topics, timeout=_VERIFY_S)
        except KafkaException as e:
            if cause is not None:
                return refused_by(cause)
            return NotReachable(
                f"no broker responded at {self._bootstrap} within {self._timeout_s:g} s ({e.args[0].str()}). "
                "Check that a broker listens there, or raise connect_timeout",
                KafkaError._ALL_BROKERS_DOWN,
                retriable=True,
            )
        self.made = True
        return None
