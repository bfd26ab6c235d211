"""The keys of data directories that a key provider wraps: a file in plain text beside the data.

`encryption-keys.json` of each data directory has all keys of the broker, the current one first, each wrapped
by a key of the provider that does not leave it. It is on the disk before the first file that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from penstock.encryption import KEYS
from penstock.encryption.keys import KEY_BYTES, Key, KeyRing, check_library, is_key_name
from penstock.model.errors import PenstockError
from penstock.ports import Files

__all__ = ["KeyProvider", "WrappedKey", "add_key", "keep_newest", "open_ring", "read_keys"]

_VERSION: Final = 1


class KeyProvider(Protocol):
    """Encrypts keys with a key that it does not give out. Errors are PenstockErrors without secrets."""

    name: str

    def wrap(self, secret: bytes) -> str: ...

    def unwrap(self, wrapped: str) -> bytes: ...


class WrappedKey(NamedTuple):
    name: str
    wrapped: str


def read_keys(files: Files, directory: str, provider: str) -> list[WrappedKey]:
    """The wrapped keys of a directory; none if it has no file of them."""
    path = f"{directory}/{KEYS}"
    if not files.exists(path):
        return []
    try:
        document: dict[str, Any] = json.loads(files.read(path))
        version, made_by = document["version"], document["provider"]
        found = [WrappedKey(str(each["name"]), str(each["wrapped"])) for each in document["keys"]]
        if not all(is_key_name(key.name) for key in found):
            raise ValueError("a name is malformed")
    except (ValueError, KeyError, TypeError) as e:
        raise PenstockError(f"{path} is damaged ({e}): restore it from another directory or a backup") from e
    if version != _VERSION:
        raise PenstockError(f"{path} has version {version}, this Penstock knows {_VERSION}: upgrade it")
    if made_by != provider:
        raise PenstockError(
            f"{path} was written by the key provider {made_by}, and penstock.encryption.key.provider is "
            f"{provider}: set it to {made_by}"
        )
    return found


def open_ring(
    files: Files, directories: Iterable[str], provider: KeyProvider, token: Callable[[int], bytes]
) -> KeyRing:
    """The keys of all directories, unwrapped. New directories get the current key, or the first one."""
    check_library()
    paths = list(directories)
    known = {directory: read_keys(files, directory, provider.name) for directory in paths}
    wrapped = {key.name: key for keys in known.values() for key in keys}
    if not wrapped:
        key = _new_key(provider, token)
        wrapped = {key.name: key}
    ring = KeyRing([Key(key.name, _unwrapped(provider, key)) for key in wrapped.values()])
    for directory in paths:
        if {key.name for key in known[directory]} != set(wrapped):
            files.makedirs(directory)
            _write(files, directory, provider.name, wrapped.values())
    return ring


def add_key(files: Files, directory: str, provider: KeyProvider, token: Callable[[int], bytes]) -> WrappedKey:
    """Make a new key the current one of a directory; the others stay."""
    key = _new_key(provider, token)
    _write(files, directory, provider.name, [key, *read_keys(files, directory, provider.name)])
    return key


def keep_newest(files: Files, directory: str, provider: KeyProvider) -> None:
    """Forget all keys of a directory but the current one, which no file needs any more."""
    _write(files, directory, provider.name, read_keys(files, directory, provider.name)[:1])


def _new_key(provider: KeyProvider, token: Callable[[int], bytes]) -> WrappedKey:
    return WrappedKey(f"k-{token(6).hex()}", provider.wrap(token(KEY_BYTES)))


def _unwrapped(provider: KeyProvider, key: WrappedKey) -> bytes:
    secret = provider.unwrap(key.wrapped)
    if len(secret) != KEY_BYTES:
        raise PenstockError(f"the key provider {provider.name} has not returned the key {key.name}")
    return secret


def _write(files: Files, directory: str, provider: str, keys: Iterable[WrappedKey]) -> None:
    document = {
        "version": _VERSION,
        "provider": provider,
        "keys": [{"name": key.name, "wrapped": key.wrapped} for key in keys],
    }
    files.write_atomic(f"{directory}/{KEYS}", json.dumps(document, indent=2).encode() + b"\n")
