"""TLS and SASL of connections that this process opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from penstock.model.errors import InvalidConfig
from penstock.net.tls_contexts import TlsContexts
from penstock.security.sasl_client import Login, SaltedPasswords
from penstock.security.sasl_users import parse_jaas
from penstock.security.tls_settings import tls_settings

__all__ = ["ClientSecurity", "client_security"]

InThread: TypeAlias = Callable[..., Awaitable[Any]]


class ClientSecurity(NamedTuple):
    """How to connect to a broker. Without both, plaintext."""

    tls: TlsContexts | None = None
    login: Login | None = None
    #: computes the keys of the login; None where the event loop may be held up for milliseconds
    in_thread: InThread | None = None


def client_security(
    protocol: str,
    lookup: Callable[[str], str | None],
    nonce: Callable[[], str],
    *,
    mechanism: str | None = None,
    in_thread: InThread | None = None,
) -> ClientSecurity | None:
    """The security of a protocol and client configs; None for plaintext, InvalidConfig if incomplete."""
    if protocol == "PLAINTEXT":
        return None
    tls = TlsContexts(tls_settings(lookup), server=False) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return ClientSecurity(tls)
    mechanism = mechanism or lookup("sasl.mechanism") or "SCRAM-SHA-512"
    keys = SaltedPasswords(deferred=in_thread is not None)
    return ClientSecurity(tls, _login(mechanism, lookup, nonce, keys), in_thread)


def _login(
    mechanism: str, lookup: Callable[[str], str | None], nonce: Callable[[], str], keys: SaltedPasswords
) -> Login:
    options = parse_jaas(lookup("sasl.jaas.config") or "x required;")
    user = options.get("username") or lookup("sasl.username")
    password = options.get("password") or lookup("sasl.password")
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise InvalidConfig(f"SASL mechanism {mechanism} is not supported here: use SCRAM-SHA-512 or PLAIN")
    if not user or password is None:
        raise InvalidConfig(
            f"SASL mechanism {mechanism} needs a user and a password: set username and password in "
            f"sasl.jaas.config"
        )
    return Login(mechanism, user, lambda: password, nonce, keys)
