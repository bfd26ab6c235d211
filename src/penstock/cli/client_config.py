"""The security of the command line as a client: a file of client configs under Kafka's names.

`--command-config FILE` or PENSTOCK_COMMAND_CONFIG names it, as with Kafka's own tools. Commands on a cluster
in a directory use the file that `penstock cluster start --secure` has written there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.failure import Failure, misused

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity
    from penstock.security.sasl_client import BearerTokens

__all__ = [
    "client_bearer",
    "client_login",
    "client_security",
    "client_user",
    "java_settings",
    "librdkafka_settings",
    "use",
    "use_by_default",
]

_chosen: list[Path] = []
_default: list[Path] = []


def use(path: Path | None) -> None:
    """Use a file from now on, and no other."""
    _chosen[:] = [] if path is None else [path]
    _default.clear()
    _settings.cache_clear()


def use_by_default(path: Path) -> None:
    """Use a file if it exists and no other was named."""
    if path.exists():
        _default[:] = [path]
        _settings.cache_clear()


@cache
def _settings() -> Mapping[str, str]:
    found = _chosen or _default
    if not found:
        return {}
    from penstock.model.config.files import property_pairs
    from penstock.model.config.placeholders import resolved

    try:
        text = found[0].read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        misused(f"cannot read --command-config {found[0]}: {reason}")
    pairs = dict(property_pairs(text))
    _check_files(found[0], pairs)
    return resolved(pairs, lambda path: Path(path).read_text(encoding="utf-8"), os.environ)


def _check_files(path: Path, settings: Mapping[str, str]) -> None:
    """Warn of files with secrets that other users can read: the file itself, its key store and others."""
    from penstock.cli.private_files import secret_files, secret_names, warn_if_exposed

    strict = settings.get("penstock.security.strict") == "true"
    if secret_names(settings) or settings.get("sasl.password"):
        warn_if_exposed(path, "--command-config", strict)
    store = settings.get("ssl.keystore.location")
    if store:
        warn_if_exposed(Path(store), "ssl.keystore.location", strict)
    for each in secret_files(settings):
        warn_if_exposed(Path(each), "--command-config refers to", strict)


def java_settings() -> dict[str, str]:
    """The security settings by the names of Kafka's Java clients."""
    settings = _settings()
    if not settings:
        return {}
    from penstock.security.client_names import SECURITY_PREFIXES

    return {name: value for name, value in settings.items() if name.startswith(SECURITY_PREFIXES)}


def librdkafka_settings() -> dict[str, Any]:
    """The settings for librdkafka."""
    found = java_settings()
    if not found:
        return {}
    from penstock.model.errors import InvalidConfig
    from penstock.security.client_names import librdkafka_names
    from penstock.security.mechanisms import uses_tokens

    try:
        if not uses_tokens(found.get("sasl.mechanism")):
            return dict(librdkafka_names(found))
        from penstock.net.client_security import librdkafka_security

        return librdkafka_security(found)
    except InvalidConfig as error:
        raise Failure(f"{(_chosen or _default)[0]}: {error}") from error


def client_security() -> ClientSecurity | None:
    """The security of connections of our own; None for plaintext."""
    settings = _settings()
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return None
    from penstock.model.errors import InvalidConfig
    from penstock.net.client_security import client_security as of

    try:
        return of(protocol, settings.get)
    except InvalidConfig as error:
        raise Failure(f"{(_chosen or _default)[0]}: {error}") from error


def client_user() -> str | None:
    """The user of the file's login with a password; None if it has no such login."""
    settings = _settings()
    if not settings.get("security.protocol", "PLAINTEXT").startswith("SASL_"):
        return None
    from penstock.security.sasl_users import parse_jaas

    return parse_jaas(settings.get("sasl.jaas.config") or "x required;").get("username") or settings.get(
        "sasl.username"
    )


def client_bearer() -> Callable[[str, BearerTokens], ClientSecurity]:
    """Makes the security of connections of any user with tokens; a Failure if the cluster has no SASL.

    The file gives the protocol and TLS.
    """
    settings = _settings()
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if not protocol.startswith("SASL_"):
        raise Failure("single sign-on needs security.protocol=SASL_SSL in --command-config")
    import asyncio

    from penstock.net.client_security import bearer_security

    return lambda user, tokens: bearer_security(protocol, settings.get, user, tokens, asyncio.to_thread)


def client_login(*, with_sso: bool = False) -> Callable[[str, str], ClientSecurity] | None:
    """Makes the security of connections of any user; None if the cluster has no SASL.

    The file gives the protocol, the mechanism and TLS. Its own user and password are not used. With single
    sign-on, a mechanism with tokens means that there are no passwords.
    """
    settings = _settings()
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if not protocol.startswith("SASL_"):
        return None
    from penstock.security.mechanisms import password_mechanisms, uses_tokens

    mechanism = settings.get("sasl.mechanism")
    if uses_tokens(mechanism):
        if with_sso:
            return None
        # Every user would have the rights of the token.
        usable = " or ".join(password_mechanisms())
        raise Failure(f"a login with a password needs {usable} as sasl.mechanism, not {mechanism}")
    import asyncio

    from penstock.net.client_security import client_security as of

    def security(user: str, password: str) -> ClientSecurity:
        own = {**settings, "sasl.jaas.config": "", "sasl.username": user, "sasl.password": password}
        made = of(protocol, own.get, in_thread=asyncio.to_thread)
        assert made is not None, "SASL is no plaintext"
        return made

    return security
