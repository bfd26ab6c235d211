"""The authorisation code flow with PKCE (RFC 6749, 7636, 9207; OpenID Connect Core), without I/O.

A login that is under way is in a cookie of its browser, signed with a key of this process: it has the state,
the nonce, the verifier of PKCE and the page to return to. So nothing is kept here that visitors could fill,
and a response without the cookie of the browser that has asked is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from penstock.console.sso.settings import SsoSettings, is_safe_url
from penstock.model.errors import PenstockError

__all__ = [
    "LOGIN_S",
    "Metadata",
    "Pending",
    "SsoFailed",
    "answer_of",
    "authorization_url",
    "check_answer",
    "check_claims",
    "logout_url",
    "metadata_of",
    "new_pending",
    "opened",
    "safe_page",
    "sealed",
    "user_of",
]

#: how long a user may take at the provider
LOGIN_S: Final = 600
_SKEW_S: Final = 60
_USER_CLAIMS: Final = ("preferred_username", "email", "sub")
#: a place inside the console: a fragment is never sent to a server, and leads to no other one
_PAGE: Final = re.compile(r"#/[\w\-./~%?=&:+,!*'()@]{0,500}", re.ASCII)
_USER_MAX: Final = 200


class SsoFailed(PenstockError):
    """A login was not completed. `code` is one of those that the login page explains."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of itself (OpenID Connect Discovery)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """A login that is under way in one browser."""

    state: str
    nonce: str
    verifier: str
    page: str
    expires_at: int


def metadata_of(data: bytes, settings: SsoSettings) -> Metadata:
    """The metadata of a provider; SsoFailed if it is of another issuer, or not safe."""
    try:
        found = msgspec.json.decode(data, type=Metadata)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SsoFailed("provider", f"the metadata of {settings.issuer} is malformed: {error}") from error
    if found.issuer != settings.issuer:
        raise SsoFailed("provider", f"the provider at {settings.issuer} names the issuer {found.issuer!r}")
    endpoints = [found.authorization_endpoint, found.token_endpoint, found.jwks_uri]
    for url in [*endpoints, *([found.end_session_endpoint] if found.end_session_endpoint else [])]:
        if not is_safe_url(url):
            raise SsoFailed("provider", f"the provider names the endpoint {url!r}, which is not https")
    return found


def new_pending(page: str, now_s: float, token: Callable[[], str]) -> Pending:
    """A new login; `token` returns random text of at least 43 URL-safe characters."""
    return Pending(token(), token(), token(), safe_page(page), int(now_s) + LOGIN_S)


def safe_page(page: str) -> str:
    """A page of the console, `#/…`; empty for anything else: a login must not lead to another site."""
    return page if _PAGE.fullmatch(page) else ""


def sealed(pending: Pending, key: bytes) -> str:
    """The content of the cookie."""
    body = urlsafe_b64encode(msgspec.json.encode(pending)).decode()
    return f"{body}.{_signature(body, key)}"


def opened(cookie: str, key: bytes, now_s: float) -> Pending:
    """The login of a cookie; SsoFailed if it is missing, forged or too old."""
    body, _, signature = cookie.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(body, key).encode()):
        raise SsoFailed("expired", "the login was not begun in this browser, or the console was restarted")
    found = msgspec.json.decode(urlsafe_b64decode(body), type=Pending)
    if found.expires_at < now_s:
        raise SsoFailed("expired", "the login took too long")
    return found


def _signature(body: str, key: bytes) -> str:
    return hmac.new(key, b"penstock-sso:" + body.encode(), hashlib.sha256).hexdigest()


def authorization_url(settings: SsoSettings, metadata: Metadata, pending: Pending) -> str:
    """Where the browser goes to log in."""
    digest = hashlib.sha256(pending.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": settings.redirect_uri,
        "scope": settings.scope,
        "state": pending.state,
        "nonce": pending.nonce,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        **({"audience": settings.audience} if settings.audience else {}),
    }
    return _with_query(metadata.authorization_endpoint, query)


def answer_of(query: Mapping[str, str], pending: Pending, metadata: Metadata) -> str:
    """The code in the provider's answer; SsoFailed if it belongs to another login or is a refusal."""
    check_answer(query, pending)
    issuer = query.get("iss")
    if (issuer is None and metadata.authorization_response_iss_parameter_supported) or issuer not in (
        None,
        metadata.issuer,
    ):
        raise SsoFailed("provider", f"the answer is of the issuer {issuer!r}")
    code = query.get("code", "")
    if not code or len(code) > 4096:
        raise SsoFailed("provider", "the answer has no code")
    return code


def check_answer(query: Mapping[str, str], pending: Pending) -> None:
    """SsoFailed if an answer belongs to another login or is a refusal."""
    # A refusal opens no session, and some providers leave out its state.
    if "error" in query:
        reason = f"{query['error'][:100]}: {query.get('error_description', '')[:300]}"
        raise SsoFailed("refused", f"the provider has refused the login: {reason}")
    if not hmac.compare_digest(query.get("state", "").encode(), pending.state.encode()):
        raise SsoFailed("expired", "the answer belongs to another login")


def check_claims(claims: Mapping[str, Any], settings: SsoSettings, nonce: str | None) -> None:
    """Check an ID token whose signature, issuer, audience and times are verified already.

    `nonce` is None for a token of a renewal, which need not have one.
    """
    stated = claims.get("nonce")
    if nonce is not None and not hmac.compare_digest(str(stated or "").encode(), nonce.encode()):
        raise SsoFailed("provider", "the ID token belongs to another login (nonce)")
    audience = claims.get("aud")
    if isinstance(audience, list) and len(audience) > 1 and "azp" not in claims:
        raise SsoFailed("provider", "the ID token has several audiences and no authorized party (azp)")
    if claims.get("azp", settings.client_id) != settings.client_id:
        raise SsoFailed("provider", f"the ID token was issued for {claims['azp']!r} (azp)")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise SsoFailed("provider", "the ID token names no subject")


def user_of(claims: Mapping[str, Any], settings: SsoSettings) -> str:
    """The name that the console shows. The brokers decide by themselves which principal a token is."""
    for name in [settings.user_claim] if settings.user_claim else _USER_CLAIMS:
        found = claims.get(name)
        if isinstance(found, str) and found:
            return found[:_USER_MAX]
    raise SsoFailed("provider", f"the ID token has no claim {settings.user_claim!r}")


def logout_url(settings: SsoSettings, metadata: Metadata, id_token: str, state: str) -> str | None:
    """Where the browser ends the session at the provider; None if that has no such place."""
    if metadata.end_session_endpoint is None:
        return None
    query = {
        "id_token_hint": id_token,
        "client_id": settings.client_id,
        "post_logout_redirect_uri": settings.console_url + "/",
        "state": state,
    }
    return _with_query(metadata.end_session_endpoint, query)


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}"
