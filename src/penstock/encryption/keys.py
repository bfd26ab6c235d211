"""The keys that encrypt the keys of files, and the operations that need a library for them.

A key has a name, which encrypted files carry in plain text. Keys are kept in a file or in an environment
variable, as `NAME:BASE64`, separated by commas or white space. The first one is for new files, the others are
for files that exist.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final

from penstock.model.errors import InvalidConfig, PenstockError
from penstock.model.installation import pip_install

__all__ = [
    "KEY_BYTES",
    "Key",
    "KeyRing",
    "Keystream",
    "MissingKey",
    "format_key",
    "is_key_name",
    "parse_keys",
]

#: AES-256
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
WRAPPED_BYTES: Final = KEY_BYTES + 16
NAME_BYTES: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,16}")
_BLOCK: Final = 16
#: of keys that encrypt one message
_ZERO_NONCE: Final = bytes(NONCE_BYTES)


def is_key_name(name: str) -> bool:
    """Returns true if a text can be the name of a key."""
    return _NAME.fullmatch(name) is not None


class MissingKey(PenstockError):
    """Data is encrypted, and the key for it is not there. The message has the remedy."""


class Key:
    """One key. Its text has no secrets."""

    __slots__ = ("_secret", "name")

    def __init__(self, name: str, secret: bytes) -> None:
        self.name = name
        self._secret = secret

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and (self.name, self._secret) == (other.name, other._secret)

    def __hash__(self) -> int:
        return hash(self.name)

    def wrap(self, secret: bytes, nonce: bytes) -> bytes:
        """Encrypt the key of a file (AES-GCM)."""
        wrapped: bytes = _gcm()(self._secret).encrypt(nonce, secret, self.name.encode())
        return wrapped

    def unwrap(self, wrapped: bytes, nonce: bytes) -> bytes | None:
        """The key of a file; None if another key has wrapped it, or if it is damaged."""
        from cryptography.exceptions import InvalidTag

        try:
            secret: bytes = _gcm()(self._secret).decrypt(nonce, wrapped, self.name.encode())
        except InvalidTag:
            return None
        return secret

    def wrap_file_key(self, secret: bytes, salt: bytes, place: bytes) -> bytes:
        """Encrypt the key of a file for its place. `salt` is random, and used for this file only."""
        wrapped: bytes = _gcm()(self._derived(salt)).encrypt(_ZERO_NONCE, secret, self._bound(place))
        return wrapped

    def unwrap_file_key(self, wrapped: bytes, salt: bytes, place: bytes) -> bytes | None:
        """The key of a file; None if it was wrapped by another key or for another place, or is damaged."""
        from cryptography.exceptions import InvalidTag

        try:
            secret: bytes = _gcm()(self._derived(salt)).decrypt(_ZERO_NONCE, wrapped, self._bound(place))
        except InvalidTag:
            return None
        return secret

    def _bound(self, place: bytes) -> bytes:
        return self.name.encode().ljust(NAME_BYTES, b"\0") + place

    def _derived(self, salt: bytes) -> bytes:
        return hmac.digest(self._secret, b"penstock file key" + salt, "sha256")

    def text(self) -> str:
        return f"{self.name}:{b64encode(self._secret).decode()}"


class KeyRing:
    """The keys of a broker; the first one encrypts."""

    __slots__ = ("_keys", "current")

    def __init__(self, keys: Sequence[Key]) -> None:
        self.current = keys[0]
        self._keys = {key.name: key for key in keys}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    @property
    def names(self) -> list[str]:
        return list(self._keys)

    def get(self, name: str) -> Key | None:
        return self._keys.get(name)


class Keystream:
    """AES-256 in counter mode with the key of one file.

    A stream is named by a nonce of 8 bytes; the other half of the counter block is the position.
    Invariant: no two contents of one position are encrypted with one nonce.
    """

    __slots__ = ("_algorithm", "_cipher", "_mode")

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._cipher: Any = Cipher
        self._mode: Any = modes.CTR
        self._algorithm = algorithms.AES(secret)

    def apply(self, nonce: bytes, position: int, data: bytes | bytearray | memoryview) -> bytes:
        """Encrypt or decrypt bytes at a position of the file."""
        block, skipped = divmod(position, _BLOCK)
        stream = self._cipher(self._algorithm, self._mode(nonce + block.to_bytes(8, "big"))).encryptor()
        if skipped:
            stream.update(bytes(skipped))
        applied: bytes = stream.update(data)
        return applied


def parse_keys(text: str) -> KeyRing:
    """The keys in `penstock.encryption.keys`; InvalidConfig, without secrets, if one is malformed."""
    keys: list[Key] = []
    for number, element in enumerate(re.split(r"[,\s]+", text.strip()), 1):
        name, _, encoded = element.partition(":")
        try:
            secret = b64decode(encoded, validate=True)
        except ValueError:
            secret = b""
        if _NAME.fullmatch(name) is None or len(secret) != KEY_BYTES:
            raise InvalidConfig(
                f"penstock.encryption.keys: key {number} is not NAME:BASE64 with a name of at most "
                f"{NAME_BYTES} letters, digits, '.', '_' and '-', and {KEY_BYTES} bytes: make one with "
                f"`penstock encryption new-key`"
            )
        if any(key.name == name for key in keys):
            raise InvalidConfig(f"penstock.encryption.keys has two keys with the name {name}")
        keys.append(Key(name, secret))
    check_library()
    return KeyRing(keys)


def format_key(name: str, secret: bytes) -> str:
    """A key as `penstock.encryption.keys` has it; InvalidConfig if the name is malformed."""
    if _NAME.fullmatch(name) is None:
        raise InvalidConfig(
            f"{name!r} is not a name of a key: use at most {NAME_BYTES} letters, digits, '.', '_' and '-'"
        )
    return Key(name, secret).text()


def check_library() -> None:
    """Raise PenstockError if the library for encryption is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise PenstockError(
            f"encryption needs cryptography: install it with `{pip_install('security')}`"
        ) from None


def _gcm() -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM
