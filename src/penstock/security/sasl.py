"""The server's side of SASL: an exchange of tokens, its outcome, and what it needs.

An exchange takes the client's tokens one by one and returns challenges, until it yields an identity or raises
`SaslFailure`. It does no I/O: users come from `Users`, tokens are verified by a function. `mechanisms` has
the table of mechanisms.

Invariant: an unknown user and a wrong password have the same answer, after the same number of rounds. What an
exchange keeps between two tokens is bounded: the client is not authenticated.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from penstock.security.delegation_tokens import TokenLogins
from penstock.security.sasl_scram import ScramCredential, ScramShape

__all__ = [
    "GS2",
    "TOKEN_MAX",
    "Exchange",
    "Identity",
    "SaslFailure",
    "ServerSide",
    "Step",
    "TokenRefused",
    "Users",
    "Verification",
    "from_base64",
    "unescaped",
]

#: bytes of a bearer token, if no other limit is set
TOKEN_MAX: Final = 64 << 10
#: the header of the first message of SCRAM and OAUTHBEARER (RFC 5801)
GS2: Final = re.compile(rb"(?P<flag>[ny]|p=[A-Za-z0-9.\-]+),(?:a=(?P<authzid>[^,]+))?,")


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
    #: the delegation token that was the proof
    token_id: str | None = None


class Step(NamedTuple):
    """The answer to a token; with an identity, the exchange is complete."""

    reply: bytes
    identity: Identity | None = None


class Verification(NamedTuple):
    """A step whose work takes long. `work` may run in another thread, `finish` runs in the loop's."""

    #: returns what `finish` needs, for example the identity in a token, or raises TokenRefused
    work: Callable[[], Any]
    #: makes the step of the outcome of `work`; SaslFailure ends the exchange
    finish: Callable[[Any], Step]


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
    @property
    def claimed(self) -> str:
        """The user that the client claims to be, without any proof; empty if it has named none."""
        ...

    @property
    def message_max(self) -> int:
        """The most bytes of a message. The caller drops a larger one without looking at it."""
        ...

    def step(self, token: bytes) -> Step | Verification:
        """Answer the client's next token; SaslFailure ends the exchange."""
        ...


class ServerSide(NamedTuple):
    """What the exchanges of a mechanism of a listener need."""

    users: Users
    #: returns printable text that was never used
    nonce: Callable[[], str]
    #: makes the salts of unknown users, so it stays the same
    secret: bytes
    #: checks a bearer token, or raises TokenRefused; it may run in another thread
    verify: Callable[[str], Identity] | None = None
    #: the most bytes of a bearer token
    token_max: int = TOKEN_MAX
    #: the delegation tokens that SCRAM accepts; None if they are disabled
    tokens: TokenLogins | None = None


def unescaped(name: bytes) -> str:
    """A SASL name: `=2C` and `=3D` stand for comma and equals sign."""
    if re.search(rb"=(?!2C|3D)", name):
        raise SaslFailure("malformed user name")
    try:
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    except UnicodeDecodeError:
        raise SaslFailure("the user name is not UTF-8") from None


def from_base64(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except BadBase64:
        raise SaslFailure("malformed base64") from None
