"""The keys of directories that a provider wraps."""

from __future__ import annotations

import json
import secrets
from base64 import b64decode, b64encode

import pytest

from penstock.encryption import KEYS
from penstock.encryption.directory_keys import add_key, keep_newest, open_ring, read_keys
from penstock.encryption.keys import Key
from penstock.model.errors import PenstockError
from penstock.storage.memory import MemoryFiles


class Local:
    """A provider with a key in memory."""

    name = "local"

    def __init__(self) -> None:
        self._key = Key("provider", secrets.token_bytes(32))
        self.asked = 0

    def wrap(self, secret: bytes) -> str:
        nonce = secrets.token_bytes(12)
        return b64encode(nonce + self._key.wrap(secret, nonce)).decode()

    def unwrap(self, wrapped: str) -> bytes:
        self.asked += 1
        blob = b64decode(wrapped)
        secret = self._key.unwrap(blob[12:], blob[:12])
        if secret is None:
            raise PenstockError("refused")
        return secret


def test_the_first_start_makes_a_key_and_others_find_it() -> None:
    files, provider = MemoryFiles(), Local()
    ring = open_ring(files, ["/a", "/b"], provider, secrets.token_bytes)
    again = open_ring(files, ["/a", "/b"], provider, secrets.token_bytes)
    assert again.names == ring.names and again.current == ring.current
    assert read_keys(files, "/a", "local") == read_keys(files, "/b", "local")
    stored = files.read(f"/a/{KEYS}")
    assert b64encode(ring.current._secret) not in stored and ring.current._secret not in stored
    assert open_ring(files, ["/b", "/c"], provider, secrets.token_bytes).current == ring.current
    assert read_keys(files, "/c", "local") == read_keys(files, "/b", "local"), "a new directory has the key"


def test_a_rotation_adds_a_key_and_forgets_the_others() -> None:
    files, provider = MemoryFiles(), Local()
    old = open_ring(files, ["/a"], provider, secrets.token_bytes).current
    added = add_key(files, "/a", provider, secrets.token_bytes)
    ring = open_ring(files, ["/a"], provider, secrets.token_bytes)
    assert ring.names == [added.name, old.name] and ring.current.name == added.name
    keep_newest(files, "/a", provider)
    assert open_ring(files, ["/a"], provider, secrets.token_bytes).names == [added.name]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is damaged"),
        (b"{}", "is damaged"),
        (b'{"version": 1, "provider": "local", "keys": [{"name": "a b", "wrapped": "x"}]}', "is damaged"),
        (b'{"version": 2, "provider": "local", "keys": []}', "has version 2, this Penstock knows 1: upgrade"),
        (b'{"version": 1, "provider": "other", "keys": []}', "was written by the key provider other"),
    ],
)
def test_other_files_are_refused_with_one_line(content: bytes, reason: str) -> None:
    files = MemoryFiles()
    files.makedirs("/a")
    files.write_atomic(f"/a/{KEYS}", content)
    with pytest.raises(PenstockError, match=reason) as refused:
        open_ring(files, ["/a"], Local(), secrets.token_bytes)
    assert "\n" not in str(refused.value)


def test_a_key_of_the_wrong_size_is_refused() -> None:
    files, provider = MemoryFiles(), Local()
    files.makedirs("/a")
    document = {
        "version": 1,
        "provider": "local",
        "keys": [{"name": "k", "wrapped": provider.wrap(b"short")}],
    }
    files.write_atomic(f"/a/{KEYS}", json.dumps(document).encode())
    with pytest.raises(PenstockError, match="has not returned the key k"):
        open_ring(files, ["/a"], provider, secrets.token_bytes)
    with pytest.raises(PenstockError, match="refused"):
        Local().unwrap(provider.wrap(bytes(32)))
