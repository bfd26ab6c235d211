"""SASL PLAIN (RFC 4616): the password itself, so only over TLS."""

from __future__ import annotations

import hmac
from typing import Final

from penstock.security.mechanism import Login, Mechanism
from penstock.security.sasl import Identity, SaslFailure, ServerSide, Step

__all__ = ["MESSAGE_MAX", "PLAIN"]

#: bytes of a message, whose parts are hashed: long passwords of machines fit
MESSAGE_MAX: Final = 8 << 10


class _Server:
    message_max: Final = MESSAGE_MAX

    def __init__(self, side: ServerSide) -> None:
        self._users = side.users
        self._secret = side.secret
        self.claimed = ""

    def step(self, token: bytes) -> Step:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise SaslFailure("the token does not have three parts")
        try:
            authzid, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslFailure("the token is not UTF-8") from None
        self.claimed = user
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


class _Client:
    def __init__(self, login: Login) -> None:
        self._token = f"\0{login.user}\0{login.secret()}".encode()

    def start(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        return None


PLAIN: Final = Mechanism(name="PLAIN", server=_Server, client=_Client)
