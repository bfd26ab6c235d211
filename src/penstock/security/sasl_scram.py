"""Keys of SCRAM (RFC 5802): what is stored for a user, and what both sides compute from it."""

from __future__ import annotations

import hmac
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from typing import Final, NamedTuple

__all__ = [
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "SCRAM_HASHES",
    "ScramCredential",
    "client_key_of",
    "client_proof",
    "fake_credential",
    "new_credential",
    "server_signature",
    "stored_key_of",
]

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384


class ScramCredential(NamedTuple):
    """What is stored for a user: no password, and nothing to log in with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def new_credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password. It takes milliseconds by intent: never on the event loop."""
    kind = SCRAM_HASHES[mechanism]
    salted = pbkdf2_hmac(kind, password.encode(), salt, iterations)
    stored_key = new_hash(kind, hmac.digest(salted, b"Client Key", kind)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", kind), iterations)


def fake_credential(kind: str, secret: bytes, user: str) -> ScramCredential:
    """A credential that no password fits, the same for a user every time, for users that do not exist."""
    seed = hmac.digest(secret, b"salt:" + user.encode(), kind)
    return ScramCredential(
        seed[:18], hmac.digest(secret, b"key:" + user.encode(), kind), seed, ITERATIONS_MIN
    )


def client_key_of(kind: str, credential: ScramCredential, message: bytes, proof: bytes) -> bytes:
    """The client key that a proof claims."""
    signature = hmac.digest(credential.stored_key, message, kind)
    if len(proof) != len(signature):
        return b""
    return bytes(a ^ b for a, b in zip(proof, signature, strict=True))


def stored_key_of(kind: str, client_key: bytes) -> bytes:
    return new_hash(kind, client_key).digest()


def server_signature(kind: str, credential: ScramCredential, message: bytes) -> bytes:
    return hmac.digest(credential.server_key, message, kind)


def client_proof(kind: str, salted_password: bytes, message: bytes) -> tuple[bytes, bytes]:
    """The proof of a client, and the signature that it expects from the server."""
    client_key = hmac.digest(salted_password, b"Client Key", kind)
    signature = hmac.digest(new_hash(kind, client_key).digest(), message, kind)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return proof, hmac.digest(hmac.digest(salted_password, b"Server Key", kind), message, kind)
