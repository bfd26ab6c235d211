"""The settings of single sign-on: a properties file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from penstock.model.errors import InvalidConfig
from penstock.security.hosts import is_local_host

__all__ = ["ACCESS", "CALLBACK", "ID", "SsoSettings", "is_safe_url", "sso_settings"]

#: the path of the redirect URI
CALLBACK: Final = "/sso/callback"
#: which token authenticates at the brokers
ACCESS: Final = "access"
ID: Final = "id"
_KNOWN: Final = frozenset(
    {
        "audience",
        "ca.location",
        "client.id",
        "client.secret",
        "console.url",
        "issuer",
        "label",
        "scope",
        "token",
        "user.claim",
    }
)
_REQUIRED: Final = ("issuer", "client.id", "console.url")


@dataclass(frozen=True, slots=True, kw_only=True)
class SsoSettings:
    """A provider, this console as its client, and the token that brokers get."""

    issuer: str
    client_id: str
    #: the console as browsers see it, without a slash at its end
    console_url: str
    #: empty for a public client, which proves itself by PKCE alone
    client_secret: str = field(default="", repr=False)
    scope: str = "openid profile"
    #: for providers that issue access tokens by audience
    audience: str = ""
    token: str = ACCESS
    #: the claim of the ID token that the console shows as the user; empty for the usual ones
    user_claim: str = ""
    #: PEM certificates that sign that of the provider; None for those of the system
    ca_file: str | None = None
    label: str = "Single sign-on"

    @property
    def redirect_uri(self) -> str:
        return self.console_url + CALLBACK

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console over TLS, so that cookies need it, too."""
        return self.console_url.startswith("https:")


def sso_settings(pairs: Mapping[str, str]) -> SsoSettings:
    """The settings of a file; InvalidConfig names the one that is missing, unknown or malformed."""
    unknown = sorted(pairs.keys() - _KNOWN)
    if unknown:
        raise InvalidConfig(f"{unknown[0]!r} is unknown: the settings are {', '.join(sorted(_KNOWN))}")
    for name in _REQUIRED:
        if not pairs.get(name, "").strip():
            raise InvalidConfig(f"{name} is missing")
    for name in ("issuer", "console.url"):
        _check_url(name, pairs[name])
    scope = pairs.get("scope", "openid profile")
    if "openid" not in scope.split():
        raise InvalidConfig(f"scope {scope!r} needs openid")
    token = pairs.get("token", ACCESS)
    if token not in (ACCESS, ID):
        raise InvalidConfig(f"token {token!r} is neither {ACCESS} nor {ID}")
    return SsoSettings(
        issuer=pairs["issuer"].strip(),
        client_id=pairs["client.id"].strip(),
        client_secret=pairs.get("client.secret", ""),
        console_url=pairs["console.url"].strip().rstrip("/"),
        scope=scope,
        audience=pairs.get("audience", ""),
        token=token,
        user_claim=pairs.get("user.claim", ""),
        ca_file=pairs.get("ca.location") or None,
        label=pairs.get("label") or "Single sign-on",
    )


def is_safe_url(url: str) -> bool:
    """Whether a URL is https, or http to this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment:
        return False
    shown = f"[{host}]" if ":" in host else host
    return parts.scheme == "https" or (parts.scheme == "http" and is_local_host(shown))


def _check_url(name: str, url: str) -> None:
    if not is_safe_url(url.strip()) or urlsplit(url.strip()).query:
        raise InvalidConfig(f"{name} {url!r} must be an https URL (http on loopback)")
