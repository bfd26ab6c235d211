"""Keys of SCRAM (RFC 5802): what is stored for a user, and what both sides compute from it.

A user that does not exist has a credential, too, so that a client cannot find out which users exist. Its salt
is derived from a secret of the cluster. Size of the salt and number of iterations are those of a user that
exists, chosen by the name.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac, shake_256
from math import log
from typing import Final, NamedTuple

__all__ = [
    "DEFAULT_SHAPE",
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "ScramCredential",
    "ScramShape",
    "client_key_of",
    "client_proof",
    "derived_salt",
    "fake_credential",
    "new_credential",
    "salted_credential",
    "server_signature",
    "stored_key_of",
]

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384


class ScramCredential(NamedTuple):
    """The stored credential of a user. It has no password, and a client cannot authenticate with it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramShape(NamedTuple):
    """The parts of a credential that every client sees."""

    salt_bytes: int
    iterations: int


#: the shape of credentials of the config, and of unknown users if there are no users
DEFAULT_SHAPE: Final = ScramShape(18, ITERATIONS_MIN)


def new_credential(kind: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password. It takes milliseconds by intent: never on the event loop."""
    return salted_credential(kind, pbkdf2_hmac(kind, password.encode(), salt, iterations), salt, iterations)


def salted_credential(kind: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    stored_key = new_hash(kind, hmac.digest(salted, b"Client Key", kind)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", kind), iterations)


def derived_salt(secret: bytes, kind: str, user: str, size: int) -> bytes:
    """A salt that is the same for a user every time, and unpredictable without the secret."""
    return _derived(secret, "salt", kind, user, size)


def fake_credential(kind: str, secret: bytes, user: str, shapes: Mapping[ScramShape, int]) -> ScramCredential:
    """A credential that no password fits, the same for a user every time, for users that do not exist.

    `shapes` has the number of existing users by shape. A change of a count moves few other names to another
    shape (weighted rendezvous hashing).
    """
    shape = max(shapes, key=lambda each: _score(secret, user, each, shapes[each]), default=DEFAULT_SHAPE)
    size = new_hash(kind).digest_size
    return ScramCredential(
        derived_salt(secret, kind, user, shape.salt_bytes),
        _derived(secret, "stored key", kind, user, size),
        _derived(secret, "server key", kind, user, size),
        shape.iterations,
    )


def _score(secret: bytes, user: str, shape: ScramShape, count: int) -> float:
    drawn = int.from_bytes(_derived(secret, "shape", repr(tuple(shape)), user, 8), "big")
    return -count / log((drawn + 1) / (2**64 + 1))


def _derived(secret: bytes, purpose: str, detail: str, user: str, size: int) -> bytes:
    parts = (secret.hex(), purpose, detail, user)
    return shake_256("\0".join(parts).encode()).digest(size)


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
