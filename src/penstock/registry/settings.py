"""The settings of a schema registry: its address, and a properties file with credentials."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from penstock.model.errors import InvalidConfig
from penstock.security.hosts import is_local_host

__all__ = ["SECRETS", "RegistrySettings", "check_address", "registry_settings"]

_OPTION: Final = "--schema-registry-config"
_URL: Final = "schema.registry.url"
_BASIC: Final = "basic.auth.user.info"
_BEARER: Final = "bearer.auth.token"
#: values that a file should not show to other users
SECRETS: Final = (_BASIC, _BEARER)
_KNOWN: Final = frozenset({_URL, *SECRETS, "ca.location", "certificate.location", "read.only"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """A registry, and the credentials for it."""

    #: without a slash at its end
    url: str
    #: the value of the Authorization header; None without credentials
    authorization: str | None = field(default=None, repr=False)
    #: texts that no message shows
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: PEM certificates that sign that of the registry; None for those of the system
    ca_file: str | None = None
    #: PEM file with key and certificates of the client, for mutual TLS
    certificate_file: str | None = None
    #: whether no page changes the registry
    is_read_only: bool = False


def registry_settings(
    pairs: Mapping[str, str], url: str | None = None, option: str = _OPTION
) -> RegistrySettings:
    """The settings of a file, which `option` names, and of an address; InvalidConfig names the wrong one."""
    unknown = sorted(pairs.keys() - _KNOWN)
    if unknown:
        raise InvalidConfig(f"{unknown[0]!r} is unknown: the settings are {', '.join(sorted(_KNOWN))}")
    address = (url or pairs.get(_URL, "")).strip().rstrip("/")
    if not address:
        raise InvalidConfig(f"{_URL} is missing")
    check_address(address, option)
    authorization, secrets = _authorization(pairs)
    if authorization is not None and not _is_private(address):
        raise InvalidConfig(f"{address} would get the credentials unencrypted: use https (http on loopback)")
    read_only = pairs.get("read.only", "false")
    if read_only not in ("true", "false"):
        raise InvalidConfig(f"read.only {read_only!r} is neither true nor false")
    return RegistrySettings(
        url=address,
        authorization=authorization,
        secrets=secrets,
        ca_file=pairs.get("ca.location") or None,
        certificate_file=pairs.get("certificate.location") or None,
        is_read_only=read_only == "true",
    )


def check_address(url: str, option: str = _OPTION) -> None:
    """InvalidConfig if it is no address of a registry, or has a user; `option` names the file for that."""
    # The URL is not in the message: it may have a password.
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.scheme in ("http", "https")
        has_user = parts.username is not None or "@" in parts.netloc
        # Raises ValueError if it is no number.
        _ = parts.port
    except ValueError:
        raise InvalidConfig("the address of the schema registry is not a URL") from None
    if has_user:
        raise InvalidConfig(
            f"other users of this machine can see a password in the address of the schema registry: "
            f"set {_BASIC} in {option}"
        )
    if not is_valid or parts.query or parts.fragment:
        raise InvalidConfig(f"{url!r} is not a URL, such as http://127.0.0.1:8081")


def _is_private(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" or is_local_host(f"[{host}]" if ":" in host else host)


def _authorization(pairs: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """The header of the credentials, and the texts in it that are secret."""
    basic, bearer = pairs.get(_BASIC), pairs.get(_BEARER)
    if basic and bearer:
        raise InvalidConfig(f"{_BASIC} and {_BEARER} exclude each other")
    if basic:
        user, colon, password = basic.partition(":")
        if not user or not colon:
            raise InvalidConfig(f"{_BASIC} is not USER:PASSWORD")
        encoded = b64encode(basic.encode()).decode()
        return f"Basic {encoded}", tuple(each for each in (encoded, basic, password) if each)
    if bearer:
        if not bearer.isascii() or not bearer.isprintable() or " " in bearer:
            raise InvalidConfig(f"{_BEARER} is not a token")
        return f"Bearer {bearer}", (bearer,)
    return None, ()
