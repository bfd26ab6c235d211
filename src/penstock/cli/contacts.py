"""What a command has learnt of its connections, and what it says if no broker answers."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.failure import Failure
from penstock.model.addresses import parse_address

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from penstock.client.connection_causes import Cause, Causes

__all__ = ["Contacts", "NoContact", "Waiting", "not_accepted", "unreachable"]

_CONNECT_S: Final = 1.0
#: how long the search for a cause may wait for an address: --timeout is kept
_LOOK_S: Final = 0.5
#: a user at a terminal learns within two seconds that no broker answers
_SAY_AFTER_S: Final = 1.5
#: the least time between two lines of a command that goes on trying
_SAY_AGAIN_S: Final = 10.0


class NoContact(Failure):
    """No broker of the cluster has responded: another request would wait as long as the first one."""


def unreachable(bootstrap: str) -> NoContact:
    """The failure of a command that has found no broker."""
    return NoContact(
        f"no broker answers at {bootstrap}: start one with `penstock up`, or name another with --bootstrap"
    )


def not_accepted(cause: Cause) -> NoContact:
    """The failure of a command that no broker accepts, with the setting to change."""
    from penstock.client.connection_causes import Kind

    remedies = {
        Kind.LOGIN: "check the user, the password and sasl.mechanism",
        Kind.CERTIFICATE: "set ssl.truststore.location to the authority of the brokers, and use a host name "
        "that the certificate has",
        Kind.TLS: "check the ssl settings; a broker may require a client certificate (ssl.keystore.location)",
        Kind.TLS_MISSING: "set security.protocol to SSL or SASL_SSL",
        Kind.TLS_UNEXPECTED: "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use another port",
        Kind.LOGIN_MISSING: "set security.protocol to SASL_PLAINTEXT, with a user and a password",
        Kind.LOGIN_UNEXPECTED: "set security.protocol to PLAINTEXT or SSL, or use another port",
    }
    return NoContact(f"{cause.text}: {remedies[cause.kind]} (in the file of --command-config)")


class Contacts:
    """The errors of connections of one command."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._found: Causes | None = None
        self._cause: Cause | None = None
        self._unresolved = False
        self._examines = False
        #: librdkafka has lost all brokers that it knows
        self.lost_all = False

    def note(self, error: KafkaError) -> None:
        """Take an error of librdkafka's `error_cb`."""
        name = error.name()
        if name == "_RESOLVE":
            self._unresolved = self.lost_all = True
        elif name == "_ALL_BROKERS_DOWN":
            self.lost_all = self._examines = True
        else:
            self._causes.note(error)

    def refusal(self) -> Cause | None:
        """Why no broker accepts the command; None if that is not known. Looks once after each loss."""
        if self._cause is None and (self._causes.reported is not None or self._examines):
            self._examines = False
            self._cause = self._causes.examined(_LOOK_S)
        return self._cause

    def is_unreachable(self) -> bool:
        """Whether every address refuses or has no host, so that waiting longer will not help.

        librdkafka reports "all brokers down" before it has tried every address. So the command connects to
        the bootstrap addresses itself.
        """
        if self._unresolved:
            return True
        return self.lost_all and not any(map(_listens, self._bootstrap.split(",")))

    def failure(self) -> Failure:
        return unreachable(self._bootstrap) if self._cause is None else not_accepted(self._cause)

    @property
    def _causes(self) -> Causes:
        if self._found is None:  # imported for failures only
            from penstock.client.connection_causes import Causes

            self._found = Causes(self._bootstrap, self._settings)
        return self._found


class Waiting:
    """Says that a command goes on trying."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._said_at: float | None = None

    def attempt_s(self, wanted_s: float, waited_s: float) -> float:
        """How long the next attempt may take. Says that no broker answers, if that is overdue."""
        if waited_s >= _SAY_AFTER_S:
            self.say()
            return wanted_s
        return min(wanted_s, _SAY_AFTER_S - waited_s)

    def say(self) -> None:
        """One line, not too often."""
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= max(_SAY_AGAIN_S, self._timeout_s):
            self._said_at = now
            how_long = f"still trying (--timeout {self._timeout_s:g})"
            line = f"penstock: no broker answers at {self._bootstrap}: {how_long}"
            print(line, file=sys.stderr, flush=True)


def _listens(address: str) -> bool:
    try:
        socket.create_connection(parse_address(address), _CONNECT_S).close()
    except (OSError, ValueError):
        return False
    return True
