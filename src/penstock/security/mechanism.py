"""What a SASL mechanism consists of. `mechanisms` has the table of those that exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.security.sasl import Exchange, ServerSide
from penstock.security.sasl_client import BearerTokens, SaltedPasswords, SaslClient

__all__ = ["Login", "Mechanism", "Scram"]


class Scram(NamedTuple):
    """The number of a SCRAM mechanism in requests and metadata records, and its hash function."""

    number: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A SASL mechanism: both sides of its exchange, and what it proves an identity with."""

    name: str
    #: a new exchange of a server
    server: Callable[[ServerSide], Exchange]
    #: a new exchange of a client
    client: Callable[[Login], SaslClient]
    #: whether a client has bearer tokens; otherwise it has a user and a password
    uses_tokens: bool = False
    #: for mechanisms whose users are in the metadata
    scram: Scram | None = None


class Login(NamedTuple):
    """How a client authenticates. `secret` returns the password; OAUTHBEARER has `tokens` instead."""

    mechanism: Mechanism
    user: str
    secret: Callable[[], str]
    nonce: Callable[[], str]
    #: keys of earlier authentications
    keys: SaltedPasswords | None = None
    tokens: BearerTokens | None = None
    #: whether the user is the id of a delegation token, and the password its HMAC
    is_delegated: bool = False

    def begin(self) -> SaslClient:
        return self.mechanism.client(self)

    def __repr__(self) -> str:
        return f"Login({self.mechanism.name}, {self.user!r})"
