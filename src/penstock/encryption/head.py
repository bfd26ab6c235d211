"""The header of an encrypted file: its wrapped key, its place, and the last truncation.

    0     magic and version                                    8 bytes
    8     two slots: name of a key, salt, wrapped key of the file      16 + 32 + 48 bytes each
    200   place: length and text                               2 + 296 bytes
    512   a truncation: generation, content and file size, code       4 + 8 + 8 + 32 bytes
    1024  another one: the two places are written in turn
    2048  a copy of the first 512 bytes

The key of a file is wrapped by a key that is derived from a key of the ring and the salt, which is random, so
no key is used for two files. The name of the key and the place are associated data.

A slot of zeros is free. A new key goes into the free slot before the other one is freed, so a crash between
the two leaves a file that both keys open. The two copies are never written at the same time.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.encryption import MAGIC, VERSION, version_of
from penstock.encryption.frames import FrameKeys
from penstock.encryption.keys import KEY_BYTES, NAME_BYTES, WRAPPED_BYTES, KeyRing, MissingKey, is_key_name
from penstock.encryption.places import PLACE_BYTES_MAX
from penstock.model.errors import PenstockError

__all__ = [
    "COPIES_AT",
    "HEADER_BYTES",
    "Cut",
    "Head",
    "NewerVersion",
    "Slot",
    "cut_position",
    "decode_heads",
    "encode_cut",
    "encode_head",
    "new_header",
    "read_cut",
    "renewed_header",
    "unwrapped",
    "version_in",
    "wrapped_slot",
]

HEADER_BYTES: Final = 4096
#: where the copies of the head are
COPIES_AT: Final = (0, 2048)
_SALT_BYTES: Final = 32
_SLOT: Final = struct.Struct(f">{NAME_BYTES}s{_SALT_BYTES}s{WRAPPED_BYTES}s")
_PLACE_AT: Final = 8 + 2 * _SLOT.size
_LENGTH: Final = struct.Struct(">H")
_HEAD_BYTES: Final = 512
_CUTS_AT: Final = (512, 1024)
_CUT: Final = struct.Struct(">IQQ")
_CODE_BYTES: Final = 32
_HEADING: Final = MAGIC + bytes([VERSION])


class NewerVersion(PenstockError):
    """A file was written by a later release."""


class Slot(NamedTuple):
    """The key of a file, wrapped by the key `name` of the ring."""

    name: str
    salt: bytes
    wrapped: bytes


class Head(NamedTuple):
    """A copy of the head: the slots that are in use by their numbers, and the place."""

    slots: dict[int, Slot]
    place: bytes


class Cut(NamedTuple):
    """A truncation: from the position `tail` of the file on, frames belong to `generation` or later ones."""

    generation: int
    end: int
    tail: int


_NO_CUT: Final = Cut(0, 0, 0)


def version_in(page: bytes, path: str) -> int:
    """The version of a file by its first page, PLAIN if it is not encrypted; NewerVersion if not known.

    A flipped bit in one of the two copies is not a later version.
    """
    stated = [version_of(page[start:]) for start in COPIES_AT]
    version = VERSION if VERSION in stated else stated[0] or stated[1]
    if version > VERSION:
        raise NewerVersion(
            f"{path} has version {version} of the encryption, this Penstock knows {VERSION}: upgrade it"
        )
    return version


def new_header(ring: KeyRing, place: bytes, token: Callable[[int], bytes]) -> tuple[FrameKeys, bytes]:
    """The keys and the header of a new file."""
    secret = token(KEY_BYTES)
    slot = wrapped_slot(ring, secret, place, token)
    head = encode_head({0: slot}, place)
    page = head.ljust(COPIES_AT[1], b"\0") + head
    return FrameKeys(secret, place, token), page.ljust(HEADER_BYTES, b"\0")


def renewed_header(ring: KeyRing, keys: FrameKeys, cut: Cut, token: Callable[[int], bytes]) -> bytes:
    """The header of a file that has lost it."""
    head = encode_head({0: wrapped_slot(ring, keys.secret, keys.place, token)}, keys.place)
    page = bytearray(head.ljust(COPIES_AT[1], b"\0") + head.ljust(HEADER_BYTES - COPIES_AT[1], b"\0"))
    encoded, at = encode_cut(keys, cut), cut_position(cut.generation)
    if cut.generation:
        page[at : at + len(encoded)] = encoded
    return bytes(page)


def wrapped_slot(ring: KeyRing, secret: bytes, place: bytes, token: Callable[[int], bytes]) -> Slot:
    """A slot in which the current key of the ring wraps the key of a file."""
    salt, key = token(_SALT_BYTES), ring.current
    return Slot(key.name, salt, key.wrap_file_key(secret, salt, place))


def encode_head(slots: dict[int, Slot], place: bytes) -> bytes:
    parts = [_HEADING]
    for number in range(2):
        slot = slots.get(number)
        encoded = None if slot is None else _SLOT.pack(slot.name.encode(), slot.salt, slot.wrapped)
        parts.append(encoded or bytes(_SLOT.size))
    parts += [_LENGTH.pack(len(place)), place]
    return b"".join(parts).ljust(_HEAD_BYTES, b"\0")


def decode_heads(page: bytes) -> list[Head]:
    """The copies of the head in the first page of a file that look like one."""
    found = []
    for start in COPIES_AT:
        if page[start : start + len(_HEADING)] != _HEADING or len(page) < start + _HEAD_BYTES:
            continue
        (length,) = _LENGTH.unpack_from(page, start + _PLACE_AT)
        slots = {}
        for number in range(2):
            name, salt, wrapped = _SLOT.unpack_from(page, start + 8 + number * _SLOT.size)
            text = name.rstrip(b"\0").decode("ascii", "replace")
            if is_key_name(text):
                slots[number] = Slot(text, salt, wrapped)
        place_at = start + _PLACE_AT + _LENGTH.size
        if slots and length <= PLACE_BYTES_MAX:
            found.append(Head(slots, page[place_at : place_at + length]))
    return found


def unwrapped(heads: Sequence[Head], ring: KeyRing, path: str) -> tuple[bytes, bytes] | None:
    """The key of a file and the place that it is bound to; None if no head is authentic.

    MissingKey if no key of the ring is named in a head.
    """
    names = []
    is_known = False
    for head in heads:
        for slot in head.slots.values():
            key = ring.get(slot.name)
            names.append(slot.name)
            if key is None:
                continue
            is_known = True
            secret = key.unwrap_file_key(slot.wrapped, slot.salt, head.place)
            if secret is not None:
                return secret, head.place
    if names and not is_known:
        raise MissingKey(f"{path} is encrypted with the key {names[0]}, which is not among the given keys")
    return None


def cut_position(generation: int) -> int:
    """Where the header of a file has the truncation that begins `generation`."""
    return _CUTS_AT[generation % 2]


def encode_cut(keys: FrameKeys, cut: Cut) -> bytes:
    data = _CUT.pack(*cut)
    return data + keys.sign(b"cut", data)


def read_cut(keys: FrameKeys, page: bytes) -> Cut:
    """The last truncation in a header. One that a crash has torn does not count."""
    return max(_cuts(keys, page), default=_NO_CUT)


def _cuts(keys: FrameKeys, page: bytes) -> Iterable[Cut]:
    for start in _CUTS_AT:
        data, code = page[start : start + _CUT.size], page[start + _CUT.size :][:_CODE_BYTES]
        if any(data) and hmac.compare_digest(keys.sign(b"cut", data), code):
            yield Cut(*_CUT.unpack(data))
