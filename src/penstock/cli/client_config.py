"""The security of the command line as a client: a file of client configs under Kafka's names.

`--command-config FILE` or PENSTOCK_COMMAND_CONFIG names it, as with Kafka's own tools. Commands on a cluster
in a directory use the file that `penstock cluster start --secure` has written there.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.failure import Failure, misused

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = [
    "client_login",
    "client_security",
    "java_settings",
    "librdkafka_settings",
    "use",
    "use_by_default",
]

_BEARER: Final = "OAUTHBEARER"
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
    return resolved(pairs, lambda path: Path(path).read_text(encoding="utf-8"), os.environ)


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
    if found.get("sasl.mechanism") != _BEARER:
        from penstock.security.client_names import librdkafka_names

        return dict(librdkafka_names(found))
    from penstock.model.errors import InvalidConfig
    from penstock.net.client_security import librdkafka_security

    try:
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
        return of(protocol, settings.get, lambda: b64encode(os.urandom(24)).decode())
    except InvalidConfig as error:
        raise Failure(f"{(_chosen or _default)[0]}: {error}") from error


def client_login() -> Callable[[str, str], ClientSecurity] | None:
    """Makes the security of connections of any user; None if the cluster has no SASL.

    The file gives the protocol, the mechanism and TLS. Its own user and password are not used.
    """
    settings = _settings()
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if not protocol.startswith("SASL_"):
        return None
    if settings.get("sasl.mechanism") == _BEARER:
        # Every user would have the rights of the token.
        raise Failure("a login with a password needs SCRAM or PLAIN as sasl.mechanism, not OAUTHBEARER")
    import asyncio

    from penstock.net.client_security import client_security as of

    def security(user: str, password: str) -> ClientSecurity:
        own = {**settings, "sasl.jaas.config": "", "sasl.username": user, "sasl.password": password}
        made = of(protocol, own.get, lambda: b64encode(os.urandom(24)).decode(), in_thread=asyncio.to_thread)
        assert made is not None, "SASL is no plaintext"
        return made

    return security
