"""Delegation tokens (KIP-48): what proves one.

A token is an id and an HMAC of it under the secret that all nodes of the cluster have. The client logs in
with the id as the user and the HMAC, in base64, as the password of SCRAM. The metadata has the id, never the
HMAC.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import NamedTuple, Protocol

__all__ = ["TokenLogin", "TokenLogins", "token_hmac", "token_password"]


class TokenLogin(NamedTuple):
    """What a client that logs in with a token has to prove, and what it gets."""

    #: the name of the user that the client acts as
    owner: str
    password: str
    #: when the token ends, in seconds since the epoch
    expires_at_s: float


class TokenLogins(Protocol):
    """The delegation tokens of a cluster."""

    def find(self, token_id: str) -> TokenLogin | None: ...


def token_hmac(secret: bytes, token_id: str) -> bytes:
    return hmac.digest(secret, token_id.encode(), "sha512")


def token_password(secret: bytes, token_id: str) -> str:
    """The password that belongs to a token."""
    return b64encode(token_hmac(secret, token_id)).decode()
