"""SASL OAUTHBEARER (RFC 7628, KIP-255): bearer tokens instead of passwords.

The audit event of a login that failed has the subject that its token claims, without any proof.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from functools import partial
from typing import Final

from penstock.security.mechanism import Login, Mechanism
from penstock.security.sasl import (
    GS2,
    Identity,
    SaslFailure,
    ServerSide,
    Step,
    TokenRefused,
    Verification,
    unescaped,
)
from penstock.security.sasl_client import KeyNeeded, LoginFailed

__all__ = ["OAUTHBEARER", "claimed_subject"]

#: bytes of a message beside its token: authorization id and extensions
_BESIDE_TOKEN_MAX: Final = 4 << 10
_BEARER: Final = re.compile(rb"auth=bearer +(?P<token>[A-Za-z0-9\-._~+/=]+)", re.I)


class _Server:
    def __init__(self, side: ServerSide) -> None:
        assert side.verify is not None, "a listener with OAUTHBEARER verifies tokens"
        self._verify = side.verify
        self._token_max = side.token_max
        self._authzid: bytes | None = None
        self._refused: str | None = None
        self._claim = b""

    @property
    def claimed(self) -> str:
        return claimed_subject(self._claim)

    @property
    def message_max(self) -> int:
        return self._token_max + _BESIDE_TOKEN_MAX

    def step(self, token: bytes) -> Step | Verification:
        if self._refused is not None:
            # Any message at this point acknowledges that the token was refused.
            raise SaslFailure(self._refused)
        if len(token) > self.message_max:
            raise SaslFailure(f"an OAUTHBEARER message of {len(token)} bytes, limit {self.message_max}")
        header = GS2.match(token)
        bearer = None if header is None else _bearer(token[header.end() :])
        self._claim = b"" if bearer is None else bearer["token"]
        if header is None or bearer is None or header["flag"].startswith(b"p"):
            raise SaslFailure("malformed OAUTHBEARER message")
        size = bearer.end("token") - bearer.start("token")
        if size > self._token_max:
            raise SaslFailure(f"a token of {size} bytes, limit {self._token_max}")
        self._authzid = header["authzid"]
        return Verification(partial(self._verify, bearer["token"].decode()), self._finish)

    def _finish(self, outcome: Identity | TokenRefused) -> Step:
        if isinstance(outcome, TokenRefused):
            self._refused = str(outcome)
            return Step(b'{"status":"invalid_token"}')
        if self._authzid is not None and unescaped(self._authzid) != outcome.name:
            raise SaslFailure("the authorization id is not the subject of the token")
        return Step(b"", outcome)


def _bearer(pairs: bytes) -> re.Match[bytes] | None:
    """The token in the key-value pairs of a message, each of which ends with 0x01 (RFC 7628).

    Why: a client that is not authenticated chooses the bytes, so the time is linear in their number.
    """
    if not (pairs.startswith(b"\x01") and pairs.endswith(b"\x01\x01")):
        return None
    found = [pair for pair in pairs[1:-2].split(b"\x01") if pair[:5].lower() == b"auth="]
    return _BEARER.fullmatch(found[0]) if len(found) == 1 else None


class _Client:
    """With `deferred` keys, `start` raises KeyNeeded if a new token is due."""

    def __init__(self, login: Login) -> None:
        assert login.tokens is not None, "a login with OAUTHBEARER has a source of tokens"
        self._tokens = login.tokens
        self._deferred = login.keys is not None and login.keys.deferred
        self._fetched: str | None = None
        self._failure: LoginFailed | None = None

    def start(self) -> bytes:
        token = self._fetched or self._tokens.current()
        if token is None and self._failure is None:
            if self._deferred:
                raise KeyNeeded(self._fetch)
            self._fetch()
            token = self._fetched
        if token is None:
            assert self._failure is not None
            raise self._failure
        pairs = ("auth", f"Bearer {token}"), *self._tokens.extensions
        return ("n,," + "".join(f"\x01{name}={value}" for name, value in pairs) + "\x01\x01").encode()

    def _fetch(self) -> None:
        try:
            self._fetched = self._tokens.fetch()
        except LoginFailed as e:
            self._failure = e

    def step(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        # A challenge is the reason for a refusal, which the client has to acknowledge.
        self._tokens.discard()
        return b"\x01"


OAUTHBEARER: Final = Mechanism(name="OAUTHBEARER", server=_Server, client=_Client, uses_tokens=True)


#: bytes of the claims that are looked at: parsing more would cost the event loop time
_CLAIMS_MAX: Final = 8 << 10


def claimed_subject(token: bytes) -> str:
    """The claim `sub` of a token; empty if there is none, or if the token is no JWT."""
    parts = token.split(b".", 3)
    if len(parts) != 3 or len(parts[1]) > _CLAIMS_MAX:
        return ""
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return ""
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return subject if isinstance(subject, str) else ""
