"""The settings of OAUTHBEARER clients, and the messages between a client and a token endpoint.

A client gets its token with the grant `client_credentials` (RFC 6749, section 4.4), or from a file that
another process keeps current. The names are those of Kafka's clients (KIP-768, KIP-1139).
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode

import msgspec

from penstock.model.errors import InvalidConfig
from penstock.security.sasl_users import parse_jaas

__all__ = ["Token", "TokenSettings", "parse_response", "parse_token", "token_request", "token_settings"]

#: returns the text of a config, None if it is not set
Lookup = Callable[[str], str | None]

_PREFIX: Final = "sasl.oauthbearer."
_EXTENSION: Final = "extension_"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_DEFAULT_TIMEOUT_S: Final = 10.0


class Token(NamedTuple):
    """A bearer token, and when it expires in seconds since 1970; None if that is unknown."""

    value: str
    expires_at: float | None = None
    #: the claim `sub`, which names the user
    subject: str = ""

    def __repr__(self) -> str:
        return f"Token(…, {self.expires_at})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """How a client gets its token. `url` is the token endpoint, or a `file:` URL."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    #: whether id and secret are URL-encoded before they are joined (RFC 6749, section 2.3.1)
    encodes_credentials: bool = False
    #: PEM certificates that sign that of the endpoint; None for those of the system
    ca_file: str | None = None
    #: further pairs of the first message to the broker (KIP-342)
    extensions: tuple[tuple[str, str], ...] = ()
    timeout_s: float = _DEFAULT_TIMEOUT_S

    @property
    def is_file(self) -> bool:
        return self.url.startswith("file:")


def token_settings(lookup: Lookup) -> TokenSettings:
    """The settings under Kafka's names; InvalidConfig if one is missing or malformed.

    Options of `sasl.jaas.config` are used where a config is not set, as before KIP-1139.
    """
    options = parse_jaas(lookup("sasl.jaas.config") or "x required;")
    url = (lookup(f"{_PREFIX}token.endpoint.url") or "").strip()
    if not url.startswith(("file:", "http://", "https://")):
        raise InvalidConfig(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: the https or http URL of a token "
            "endpoint, or the file URL of a token"
        )
    settings = TokenSettings(
        url=url,
        client_id=lookup(f"{_PREFIX}client.credentials.client.id") or options.get("clientId", ""),
        client_secret=lookup(f"{_PREFIX}client.credentials.client.secret") or options.get("clientSecret", ""),
        scope=lookup(f"{_PREFIX}scope") or options.get("scope", ""),
        encodes_credentials=lookup(f"{_PREFIX}header.urlencode") == "true",
        ca_file=lookup("https.ca.location") or options.get("ssl.truststore.location") or None,
        extensions=_extensions(options),
        timeout_s=_timeout_s(lookup),
    )
    if not settings.is_file and not (settings.client_id and settings.client_secret):
        raise InvalidConfig(
            f"the token endpoint {url} needs sasl.oauthbearer.client.credentials.client.id and "
            f"sasl.oauthbearer.client.credentials.client.secret"
        )
    return settings


def _timeout_s(lookup: Lookup) -> float:
    text = lookup("sasl.login.read.timeout.ms")
    if text is None:
        return _DEFAULT_TIMEOUT_S
    if not text.strip().isdecimal():
        raise InvalidConfig(f"sasl.login.read.timeout.ms must be a number of milliseconds, not {text!r}")
    return int(text) / 1000 or _DEFAULT_TIMEOUT_S


def _extensions(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = tuple(
        (name.removeprefix(_EXTENSION), value)
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    )
    for name, value in found:
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            raise InvalidConfig(f"sasl.jaas.config: {_EXTENSION}{name} is no valid SASL extension")
    return found


def token_request(settings: TokenSettings) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request for a token."""
    pair = settings.client_id, settings.client_secret
    if settings.encodes_credentials:
        pair = quote_plus(pair[0]), quote_plus(pair[1])
    headers = {
        "Accept": "application/json",
        "Authorization": "Basic " + b64encode(":".join(pair).encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    fields = {"grant_type": "client_credentials"}
    if settings.scope:
        fields["scope"] = settings.scope
    return headers, urlencode(fields).encode()


def parse_response(content: bytes, now_s: float) -> Token:
    """The token in the response of an endpoint; ValueError if there is none."""
    try:
        response = msgspec.json.decode(content)
    except msgspec.MsgspecError:
        raise ValueError("the response is not JSON") from None
    value = response.get("access_token") if isinstance(response, dict) else None
    if not isinstance(value, str):
        raise ValueError("the response has no access_token")
    token = parse_token(value)
    lasts_s = response.get("expires_in")
    if token.expires_at is None and isinstance(lasts_s, int | float):
        token = token._replace(expires_at=now_s + lasts_s)
    return token


def parse_token(text: str) -> Token:
    """A token with the expiry and the subject of its claims, if it is a JWT. The broker verifies it.

    Raises ValueError, which never shows the text, if it is no token.
    """
    value = text.strip()
    if not _TOKEN.fullmatch(value):
        raise ValueError("it is no bearer token")
    claims = _claims(value)
    expiry, subject = claims.get("exp"), claims.get("sub")
    return Token(
        value,
        float(expiry) if isinstance(expiry, int | float) else None,
        subject if isinstance(subject, str) else "",
    )


def _claims(value: str) -> dict[str, Any]:
    parts = value.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, msgspec.MsgspecError):
        return {}
    return claims if isinstance(claims, dict) else {}
