"""SASL mechanisms of the server: PLAIN, SCRAM and OAUTHBEARER, as exchanges of tokens.

An exchange takes the client's tokens one by one and returns challenges, until it yields an identity or raises
`SaslFailure`. It does no I/O: users come from `Users`, tokens are verified by a function.

Invariant: an unknown user and a wrong password have the same answer, after the same number of rounds. What an
exchange keeps between two tokens is bounded: the client is not authenticated.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from penstock.security.sasl_scram import (
    ScramCredential,
    ScramShape,
    client_key_of,
    fake_credential,
    server_signature,
)
from penstock.security.sasl_scram import stored_key_of as _stored_key_of

__all__ = [
    "MECHANISMS",
    "OAUTHBEARER",
    "PLAIN",
    "SCRAM_MESSAGE_MAX",
    "Exchange",
    "Identity",
    "SaslFailure",
    "Step",
    "TokenRefused",
    "Users",
    "new_exchange",
]

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *_HASHES, OAUTHBEARER)
#: Bytes of a SCRAM message. An exchange keeps the first one, and hashes its user name several times. This is
#: enough for a name of 255 bytes in which each is escaped, and 250 bytes of nonce.
SCRAM_MESSAGE_MAX: Final = 1024
#: the answer of a client to the JSON that refuses its token
_ACKNOWLEDGED: Final = b"\x01"
_GS2: Final = re.compile(rb"(?P<flag>[ny]|p=[A-Za-z0-9.\-]+),(?:a=(?P<authzid>[^,]+))?,")
#: without `m=`: an extension that is mandatory must fail (RFC 5802, section 5.1)
_SCRAM_FIRST: Final = re.compile(rb"n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?P<rest>(?:,.*)?)", re.DOTALL)
_SCRAM_FINAL: Final = re.compile(
    rb"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,.*?)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
_BEARER: Final = re.compile(rb"auth=bearer +(?P<token>[A-Za-z0-9\-._~+/=]+)", re.I)


class SaslFailure(Exception):
    """The authentication has failed. The text is for the broker's log; the client gets a general one."""


class TokenRefused(Exception):
    """A bearer token is not valid."""


class Identity(NamedTuple):
    """The outcome of an exchange."""

    name: str
    #: when the proof of identity ends, in seconds since the epoch; None if it does not
    expires_at_s: float | None = None
    groups: tuple[str, ...] = ()


class Step(NamedTuple):
    """The answer to a token; with an identity, the exchange is complete."""

    reply: bytes
    identity: Identity | None = None


class Users(Protocol):
    """The users of a listener."""

    def password(self, user: str) -> str | None:
        """The password of a user for PLAIN."""
        ...

    def scram(self, mechanism: str, user: str) -> ScramCredential | None: ...

    def shapes(self, mechanism: str) -> Mapping[ScramShape, int]:
        """How many SCRAM users have credentials of each shape."""
        ...


class Exchange(Protocol):
    def step(self, token: bytes) -> Step:
        """Answer the client's next token; SaslFailure ends the exchange."""
        ...


def new_exchange(
    mechanism: str,
    users: Users,
    *,
    nonce: Callable[[], str],
    secret: bytes,
    verify: Callable[[str], Identity] | None = None,
) -> Exchange:
    """The exchange of a mechanism.

    `nonce` returns printable text that was never used. `secret` makes the salts of unknown users, so it stays
    the same. `verify` checks a bearer token, or raises TokenRefused.
    """
    if mechanism == PLAIN:
        return _Plain(users, secret)
    if mechanism in _HASHES:
        return _Scram(mechanism, users, nonce(), secret)
    assert mechanism == OAUTHBEARER and verify is not None, mechanism
    return _Bearer(verify)


class _Plain:
    """PLAIN (RFC 4616)."""

    def __init__(self, users: Users, secret: bytes) -> None:
        self._users = users
        self._secret = secret

    def step(self, token: bytes) -> Step:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise SaslFailure("the token does not have three parts")
        try:
            authzid, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslFailure("the token is not UTF-8") from None
        if not user or not password:
            raise SaslFailure("user or password is empty")
        known = self._users.password(user)
        # Digests have one length, so the time does not depend on the password, or on whether there is one.
        given = hmac.digest(self._secret, parts[2], "sha256")
        right = hmac.digest(self._secret, (known or "").encode(), "sha256")
        if not hmac.compare_digest(given, right) or known is None:
            raise SaslFailure("unknown user or wrong password")
        if authzid not in ("", user):
            raise SaslFailure("the authorization id is not the user")
        return Step(b"", Identity(user))


class _Scram:
    """SCRAM (RFC 5802) without channel binding."""

    def __init__(self, mechanism: str, users: Users, nonce: str, secret: bytes) -> None:
        self._mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._users = users
        self._nonce = nonce.encode()
        self._secret = secret
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._user = ""
        self._first = b""
        self._header = b""

    def step(self, token: bytes) -> Step:
        if len(token) > SCRAM_MESSAGE_MAX:
            raise SaslFailure(f"a SCRAM message of {len(token)} bytes, limit {SCRAM_MESSAGE_MAX}")
        return self._begin(token) if self._credential is None else self._finish(token)

    def _begin(self, token: bytes) -> Step:
        header = _GS2.match(token)
        first = None if header is None else _SCRAM_FIRST.fullmatch(token, header.end())
        if header is None or first is None or header["flag"].startswith(b"p"):
            raise SaslFailure("malformed first SCRAM message")
        user = _unescaped(first["user"])
        if header["authzid"] is not None and _unescaped(header["authzid"]) != user:
            raise SaslFailure("the authorization id is not the user")
        if b"tokenauth=true" in first["rest"]:
            raise SaslFailure("delegation tokens are not supported")
        known = self._users.scram(self._mechanism, user)
        self._is_known = known is not None
        # Computed for existing users, too: otherwise the time would show which users exist.
        fake = fake_credential(self._hash, self._secret, user, self._users.shapes(self._mechanism))
        self._credential = known or fake
        self._user = user
        self._nonce = first["nonce"] + self._nonce
        salt = b64encode(self._credential.salt)
        reply = b"r=%s,s=%s,i=%d" % (self._nonce, salt, self._credential.iterations)
        self._header = token[: header.end()]
        self._first = token[header.end() :] + b"," + reply
        return Step(reply)

    def _finish(self, token: bytes) -> Step:
        credential = self._credential
        assert credential is not None
        final = _SCRAM_FINAL.fullmatch(token)
        if final is None:
            raise SaslFailure("malformed last SCRAM message")
        if not hmac.compare_digest(final["nonce"], self._nonce):
            raise SaslFailure("another nonce than in the exchange")
        if _base64(final["binding"]) != self._header:
            raise SaslFailure("another channel binding than in the exchange")
        message = self._first + b"," + final["bare"]
        client_key = client_key_of(self._hash, credential, message, _base64(final["proof"]))
        right = hmac.compare_digest(_stored_key_of(self._hash, client_key), credential.stored_key)
        if not right or not self._is_known:
            raise SaslFailure("unknown user or wrong password")
        signature = server_signature(self._hash, credential, message)
        return Step(b"v=" + b64encode(signature), Identity(self._user))


class _Bearer:
    """OAUTHBEARER (RFC 7628, KIP-255)."""

    def __init__(self, verify: Callable[[str], Identity]) -> None:
        self._verify = verify
        self._refused: str | None = None

    def step(self, token: bytes) -> Step:
        if self._refused is not None:
            # Any message at this point acknowledges that the token was refused.
            raise SaslFailure(self._refused)
        header = _GS2.match(token)
        bearer = None if header is None else _bearer(token[header.end() :])
        if header is None or bearer is None or header["flag"].startswith(b"p"):
            raise SaslFailure("malformed OAUTHBEARER message")
        try:
            identity = self._verify(bearer["token"].decode())
        except TokenRefused as e:
            self._refused = str(e)
            return Step(b'{"status":"invalid_token"}')
        authzid = header["authzid"]
        if authzid is not None and _unescaped(authzid) != identity.name:
            raise SaslFailure("the authorization id is not the subject of the token")
        return Step(b"", identity)


def _bearer(pairs: bytes) -> re.Match[bytes] | None:
    """The token in the key-value pairs of a message, each of which ends with 0x01 (RFC 7628).

    Why: a client that is not authenticated chooses the bytes, so the time is linear in their number.
    """
    if not (pairs.startswith(b"\x01") and pairs.endswith(b"\x01\x01")):
        return None
    found = [pair for pair in pairs[1:-2].split(b"\x01") if pair[:5].lower() == b"auth="]
    return _BEARER.fullmatch(found[0]) if len(found) == 1 else None


def _unescaped(name: bytes) -> str:
    """A SASL name: `=2C` and `=3D` stand for comma and equals sign."""
    if re.search(rb"=(?!2C|3D)", name):
        raise SaslFailure("malformed user name")
    try:
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    except UnicodeDecodeError:
        raise SaslFailure("the user name is not UTF-8") from None


def _base64(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except BadBase64:
        raise SaslFailure("malformed base64") from None
