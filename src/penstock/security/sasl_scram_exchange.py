"""SASL SCRAM (RFC 5802) without channel binding: both sides prove that they know a password."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from functools import partial
from typing import Final

from penstock.security.delegation_tokens import TokenLogin
from penstock.security.mechanism import Login, Mechanism, Scram
from penstock.security.sasl import (
    GS2,
    Identity,
    SaslFailure,
    ServerSide,
    Step,
    TokenRefused,
    Verification,
    from_base64,
    unescaped,
)
from penstock.security.sasl_client import LoginFailed, SaltedPasswords
from penstock.security.sasl_scram import (
    DEFAULT_SHAPE,
    ITERATIONS_MIN,
    ScramCredential,
    client_key_of,
    client_proof,
    derived_salt,
    fake_credential,
    new_credential,
    server_signature,
    stored_key_of,
)

__all__ = ["MESSAGE_MAX", "SCRAM_SHA_256", "SCRAM_SHA_512"]

#: Bytes of a message. An exchange keeps the first one, and hashes its user name several times. This is
#: enough for a name of 255 bytes in which each is escaped, and 250 bytes of nonce.
MESSAGE_MAX: Final = 1024
#: more would keep the client busy for seconds
_ITERATIONS_MAX: Final = 1 << 20
#: without `m=`: an extension that is mandatory must fail (RFC 5802, section 5.1)
_CLIENT_FIRST: Final = re.compile(rb"n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?P<rest>(?:,.*)?)", re.DOTALL)
#: how a client says that its user is the id of a delegation token
_TOKEN_AUTH: Final = ",tokenauth=true"
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,.*?)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]+)(?:,.*)?"
)


class _Server:
    message_max: Final = MESSAGE_MAX

    def __init__(self, mechanism: str, hash_name: str, side: ServerSide) -> None:
        self._mechanism = mechanism
        self._hash = hash_name
        self._users = side.users
        self._nonce = side.nonce().encode()
        self._secret = side.secret
        self._tokens = side.tokens
        #: the delegation token of the user; None of a user with a password
        self._token: TokenLogin | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._user = ""
        self._first = b""
        self._header = b""

    def step(self, token: bytes) -> Step | Verification:
        if len(token) > MESSAGE_MAX:
            raise SaslFailure(f"a SCRAM message of {len(token)} bytes, limit {MESSAGE_MAX}")
        return self._begin(token) if self._credential is None else self._finish(token)

    @property
    def claimed(self) -> str:
        return self._user

    def _begin(self, token: bytes) -> Step | Verification:
        header = GS2.match(token)
        first = None if header is None else _CLIENT_FIRST.fullmatch(token, header.end())
        if header is None or first is None or header["flag"].startswith(b"p"):
            raise SaslFailure("malformed first SCRAM message")
        user = self._user = unescaped(first["user"])
        if header["authzid"] is not None and unescaped(header["authzid"]) != user:
            raise SaslFailure("the authorization id is not the user")
        self._nonce = first["nonce"] + self._nonce
        self._header = token[: header.end()]
        self._first = token[header.end() :]
        if _is_token(first["rest"]):
            return self._begin_with_token(user)
        known = self._users.scram(self._mechanism, user)
        self._is_known = known is not None
        # Computed for existing users, too: otherwise the time would show which users exist.
        fake = fake_credential(self._hash, self._secret, user, self._users.shapes(self._mechanism))
        return self._challenge(known or fake)

    def _begin_with_token(self, token_id: str) -> Step | Verification:
        """The user is the id of a delegation token, as long as the token exists."""
        if self._tokens is None:
            raise SaslFailure("delegation tokens are disabled")
        token = self._token = self._tokens.find(token_id)
        if token is None:
            # Ids are random: a client cannot find one by the time that this takes.
            return self._challenge(fake_credential(self._hash, self._secret, token_id, {}))
        salt = derived_salt(self._secret, self._hash, token_id, DEFAULT_SHAPE.salt_bytes)
        work = partial(new_credential, self._hash, token.password, salt, DEFAULT_SHAPE.iterations)
        return Verification(work, self._challenge_of_token)

    def _challenge_of_token(self, credential: ScramCredential | TokenRefused) -> Step:
        assert isinstance(credential, ScramCredential)
        self._is_known = True
        return self._challenge(credential)

    def _challenge(self, credential: ScramCredential) -> Step:
        self._credential = credential
        reply = b"r=%s,s=%s,i=%d" % (self._nonce, b64encode(credential.salt), credential.iterations)
        self._first += b"," + reply
        return Step(reply)

    def _finish(self, token: bytes) -> Step:
        credential = self._credential
        assert credential is not None
        final = _CLIENT_FINAL.fullmatch(token)
        if final is None:
            raise SaslFailure("malformed last SCRAM message")
        if not hmac.compare_digest(final["nonce"], self._nonce):
            raise SaslFailure("another nonce than in the exchange")
        if from_base64(final["binding"]) != self._header:
            raise SaslFailure("another channel binding than in the exchange")
        message = self._first + b"," + final["bare"]
        client_key = client_key_of(self._hash, credential, message, from_base64(final["proof"]))
        right = hmac.compare_digest(stored_key_of(self._hash, client_key), credential.stored_key)
        identity = self._identity(credential)
        if not right or identity is None:
            raise SaslFailure("unknown user or wrong password")
        signature = server_signature(self._hash, credential, message)
        return Step(b"v=" + b64encode(signature), identity)

    def _identity(self, credential: ScramCredential) -> Identity | None:
        """Looked up again: the user or the token may have been removed since the first message."""
        if not self._is_known:
            return None
        if self._token is None:
            is_same = self._users.scram(self._mechanism, self._user) == credential
            return Identity(self._user) if is_same else None
        assert self._tokens is not None
        token = self._tokens.find(self._user)
        return None if token is None else Identity(token.owner, token.expires_at_s, token_id=self._user)


def _is_token(extensions: bytes) -> bool:
    return any(each.lower() == _TOKEN_AUTH[1:].encode() for each in extensions.split(b","))


class _Client:
    def __init__(self, hash_name: str, login: Login) -> None:
        nonce = login.nonce()
        self._hash = hash_name
        self._keys = login.keys or SaltedPasswords()
        self._password = login.secret().encode()
        self._nonce = nonce.encode()
        name = login.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{_TOKEN_AUTH if login.is_delegated else ''}".encode()
        self._signature: bytes | None = None
        self._is_done = False

    def start(self) -> bytes:
        return b"n,," + self._bare

    def step(self, challenge: bytes) -> bytes | None:
        if self._is_done:
            return None
        return self._prove(challenge) if self._signature is None else self._verify(challenge)

    def _prove(self, challenge: bytes) -> bytes:
        match = _SERVER_FIRST.fullmatch(challenge)
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise LoginFailed("the server's first SCRAM message is malformed or has another nonce")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise LoginFailed(f"the server requires {iterations} SCRAM iterations")
        final = b"c=biws,r=" + match["nonce"]
        salted = self._keys.get(self._hash, self._password, b64decode(match["salt"]), iterations)
        message = self._bare + b"," + challenge + b"," + final
        proof, self._signature = client_proof(self._hash, salted, message)
        return final + b",p=" + b64encode(proof)

    def _verify(self, challenge: bytes) -> bytes | None:
        assert self._signature is not None
        if not hmac.compare_digest(challenge, b"v=" + b64encode(self._signature)):
            raise LoginFailed("the server has not proved that it knows the password")
        self._is_done = True
        return None


def _scram(name: str, number: int, hash_name: str) -> Mechanism:
    return Mechanism(
        name=name,
        server=partial(_Server, name, hash_name),
        client=partial(_Client, hash_name),
        scram=Scram(number, hash_name),
    )


SCRAM_SHA_256: Final = _scram("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512: Final = _scram("SCRAM-SHA-512", 2, "sha512")
