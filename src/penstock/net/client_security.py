"""TLS and SASL of connections that this process opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.model.errors import InvalidConfig
from penstock.net.randomness import new_nonce
from penstock.net.tls_contexts import TlsContexts
from penstock.security.bearer_settings import token_settings
from penstock.security.client_names import librdkafka_names
from penstock.security.mechanism import Login, Mechanism
from penstock.security.mechanisms import DEFAULT, mechanism_named, uses_tokens
from penstock.security.sasl_bearer import OAUTHBEARER
from penstock.security.sasl_client import BearerTokens, SaltedPasswords
from penstock.security.sasl_users import parse_jaas
from penstock.security.tls_settings import tls_settings

__all__ = ["ClientSecurity", "TokenFunction", "bearer_security", "client_security", "librdkafka_security"]

InThread: TypeAlias = Callable[..., Awaitable[Any]]
#: librdkafka's `oauth_cb`: returns a token and its expiry
TokenFunction: TypeAlias = Callable[[str], tuple[Any, ...]]


class ClientSecurity(NamedTuple):
    """How to connect to a broker. Without both, plaintext."""

    tls: TlsContexts | None = None
    login: Login | None = None
    #: computes the keys of the login; None where the event loop may be held up for milliseconds
    in_thread: InThread | None = None


def client_security(
    protocol: str,
    lookup: Callable[[str], str | None],
    nonce: Callable[[], str] = new_nonce,
    *,
    mechanism: str | None = None,
    in_thread: InThread | None = None,
    oauth_cb: TokenFunction | None = None,
) -> ClientSecurity | None:
    """The security of a protocol and client configs; None for plaintext, InvalidConfig if incomplete.

    `oauth_cb` returns the tokens of OAUTHBEARER, if another function than ours is to get them.
    """
    if protocol == "PLAINTEXT":
        return None
    tls = TlsContexts(tls_settings(lookup), server=False) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return ClientSecurity(tls)
    chosen = mechanism_named(mechanism or lookup("sasl.mechanism") or DEFAULT.name)
    keys = SaltedPasswords(deferred=in_thread is not None)
    if chosen.uses_tokens:
        user, tokens = _tokens(lookup, oauth_cb)
        return ClientSecurity(tls, Login(chosen, user, str, nonce, keys, tokens), in_thread)
    return ClientSecurity(tls, _login(chosen, lookup, nonce, keys), in_thread)


def bearer_security(
    protocol: str,
    lookup: Callable[[str], str | None],
    user: str,
    tokens: BearerTokens,
    in_thread: InThread,
) -> ClientSecurity:
    """The security of a user whose tokens another part of this process keeps. `user` is for messages."""
    tls = TlsContexts(tls_settings(lookup), server=False) if protocol.endswith("SSL") else None
    keys = SaltedPasswords(deferred=True)
    return ClientSecurity(tls, Login(OAUTHBEARER, user, str, str, keys, tokens), in_thread)


def _tokens(lookup: Callable[[str], str | None], oauth_cb: TokenFunction | None) -> tuple[str, BearerTokens]:
    """The name of the client, for error messages, and the source of its tokens."""
    from penstock.net.token_source import CallbackTokens, TokenSource  # only OAUTHBEARER needs urllib

    if oauth_cb is not None:
        return "oauth_cb", CallbackTokens(oauth_cb, lookup("sasl.oauthbearer.config") or "")
    settings = token_settings(lookup)
    return settings.client_id or settings.url, TokenSource(settings)


def librdkafka_security(settings: Mapping[str, str]) -> dict[str, Any]:
    """Client configs under librdkafka's names, with a function for tokens that it cannot get itself."""
    found: dict[str, Any] = librdkafka_names(settings)
    if uses_tokens(settings.get("sasl.mechanism")):
        tokens = token_settings(settings.get)
        if tokens.is_file:
            from penstock.net.token_source import TokenCallback

            found = {name: value for name, value in found.items() if not name.startswith("sasl.oauthbearer.")}
            found["oauth_cb"] = TokenCallback(tokens)
    return found


def _login(
    mechanism: Mechanism, lookup: Callable[[str], str | None], nonce: Callable[[], str], keys: SaltedPasswords
) -> Login:
    options = parse_jaas(lookup("sasl.jaas.config") or "x required;")
    user = options.get("username") or lookup("sasl.username")
    password = options.get("password") or lookup("sasl.password")
    if not user or password is None:
        raise InvalidConfig(
            f"SASL mechanism {mechanism.name} needs a user and a password: set username and password in "
            f"sasl.jaas.config"
        )
    is_delegated = options.get("tokenauth", "").lower() == "true"
    if is_delegated and mechanism.scram is None:
        raise InvalidConfig(f"tokenauth in sasl.jaas.config needs SCRAM, not {mechanism.name}")
    return Login(mechanism, user, lambda: password, nonce, keys, is_delegated=is_delegated)
