"""Requests to the provider of single sign-on, in threads of its own.

Metadata and keys are fetched on first use. Keys are fetched again when a token names one that is not known,
at most every `_KEYS_AGAIN_S`. No request follows a redirect: it would carry the client's secret, or keys, to
and from another address.
"""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import jwt
import msgspec

from penstock.console.sso.flow import Metadata, SsoFailed, check_claims, metadata_of
from penstock.console.sso.settings import SsoSettings

__all__ = ["Answer", "Provider", "Refused"]

_TIMEOUT_S: Final = 10.0
_BYTES_MAX: Final = 1 << 20
_METADATA_S: Final = 3600.0
_KEYS_AGAIN_S: Final = 30.0
_SKEW_S: Final = 60
#: asymmetric ones only: with others, anyone who knows the client's secret could sign
_ALGORITHMS: Final = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
]


class Refused(SsoFailed):
    """The token endpoint has refused a code or a refresh token."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the token endpoint."""

    access_token: str
    token_type: str = "Bearer"
    id_token: str | None = None
    refresh_token: str | None = None
    expires_in: float | None = None


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


class Provider:
    """One provider. All methods block, in any thread."""

    def __init__(self, settings: SsoSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        context = ssl.create_default_context(cafile=settings.ca_file)
        handlers: list[Any] = [_NoRedirect, HTTPSHandler(context=context)]
        if settings.issuer.startswith("http:"):
            # A proxy of the environment would get the client's secret and tokens in plain text.
            handlers.append(ProxyHandler({}))
        self._opener = build_opener(*handlers)
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: dict[str | None, Any] = {}
        self._keys_at: float | None = None

    def metadata(self) -> Metadata:
        """The provider's metadata; SsoFailed if it cannot be had."""
        now = self._clock()
        if self._metadata is None or now - self._metadata[0] > _METADATA_S:
            url = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
            self._metadata = now, metadata_of(self._send(Request(url)), self.settings)
        return self._metadata[1]

    def exchange(self, code: str, verifier: str) -> Answer:
        """The tokens of a code."""
        return self._tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self.settings.redirect_uri,
                "code_verifier": verifier,
            }
        )

    def renew(self, refresh_token: str) -> Answer:
        """New tokens; Refused if the user has to log in again."""
        return self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    def claims(self, id_token: str, nonce: str | None) -> dict[str, Any]:
        """The verified claims of an ID token; SsoFailed if any check fails."""
        try:
            key = self._key(jwt.get_unverified_header(id_token).get("kid"))
            found: dict[str, Any] = jwt.decode(
                id_token,
                key,
                algorithms=_ALGORITHMS,
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_SKEW_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise SsoFailed("provider", f"the ID token is not valid: {error}") from error
        check_claims(found, self.settings, nonce)
        return found

    def _key(self, name: str | None) -> Any:
        now = self._clock()
        if name not in self._keys and (self._keys_at is None or now - self._keys_at >= _KEYS_AGAIN_S):
            self._keys_at = now
            self._keys = _keys_of(self._send(Request(self.metadata().jwks_uri)))
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if name not in self._keys:
            raise SsoFailed("provider", f"the provider has no key {name!r}")
        return self._keys[name]

    def _tokens(self, form: Mapping[str, str]) -> Answer:
        settings, metadata = self.settings, self.metadata()
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        fields = {**form, "client_id": settings.client_id}
        if settings.client_secret:
            methods = metadata.token_endpoint_auth_methods_supported
            if "client_secret_basic" in methods or "client_secret_post" not in methods:
                pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
                headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
            else:
                fields["client_secret"] = settings.client_secret
        request = Request(metadata.token_endpoint, urlencode(fields).encode(), headers, method="POST")
        data = self._send(request)
        try:
            found = msgspec.json.decode(data, type=Answer)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SsoFailed("provider", "the answer of the token endpoint is malformed") from error
        if found.token_type.lower() != "bearer":
            raise SsoFailed("provider", f"the token endpoint answers with a {found.token_type!r} token")
        return found

    def _send(self, request: Request) -> bytes:
        url = request.full_url.partition("?")[0]
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                data: bytes = response.read(_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                reason = _reason(error)
            kind = Refused if error.code in (400, 401) and request.data is not None else SsoFailed
            raise kind("provider", f"{url} answers {reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise SsoFailed("provider", f"{url} does not answer: {error!r}") from error
        if len(data) > _BYTES_MAX:
            raise SsoFailed("provider", f"{url} answers with more than {_BYTES_MAX} bytes")
        return data


def _keys_of(data: bytes) -> dict[str | None, Any]:
    """The keys of a JWKS by their name; those of other kinds or uses are left out."""
    try:
        listed = msgspec.json.decode(data, type=dict[str, Any]).get("keys")
        entries = [each for each in listed or [] if each.get("use", "sig") == "sig"]
    except (msgspec.MsgspecError, RecursionError, TypeError, AttributeError) as error:
        raise SsoFailed("provider", f"the provider's keys are malformed: {error}") from error
    found: dict[str | None, Any] = {}
    for each in entries:
        try:
            if each.get("kty") != "oct":
                found[each.get("kid")] = jwt.PyJWK(each).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
    return found


def _reason(error: HTTPError) -> str:
    """The status and the error fields of RFC 6749, section 5.2."""
    try:
        fields = msgspec.json.decode(error.read(10_000), type=dict[str, Any])
        named = [str(fields[name])[:200] for name in ("error", "error_description") if name in fields]
    except (OSError, msgspec.MsgspecError, RecursionError):
        named = []
    return ": ".join([str(error.code), *named])
