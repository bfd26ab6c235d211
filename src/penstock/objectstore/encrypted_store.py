"""An object store whose objects are encrypted and authenticated (ADR 89, docs/archive.md).

    0     the head of an encrypted file: magic, version, key of the object wrapped by a key of the ring, place
    512   size of the content, size of a block       8 + 4 bytes, and 4 bytes of zero
    528   blocks: ciphertext and a tag of 16 bytes each, the last one may be shorter

Whatever reads or writes an archive sees the content only. Invariants: each object has a random key, so the
number of a block is its nonce. The place is a digest of the archive's id and the object's name, and it, the
size and the number of the block are associated data: an object that was moved, cut off, or put together from
others is not authentic. An archive is encrypted as a whole: nothing in plain text is read with keys.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from penstock.archive.documents import Root, decode
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.names import ROOT
from penstock.archive.objects import PROBES
from penstock.encryption import PLAIN, VERSION, version_of
from penstock.encryption.head import decode_heads, encode_head, unwrapped, wrapped_slot
from penstock.encryption.keys import KEY_BYTES, KeyRing, MissingKey
from penstock.ports import Buffer, ObjectStore, StoredObject

__all__ = ["BLOCK_BYTES", "HEAD_BYTES", "EncryptedStore", "with_keys"]

BLOCK_BYTES: Final = 64 << 10
_HEAD: Final = 512
_SIZES: Final = struct.Struct(">QI4x")
HEAD_BYTES: Final = _HEAD + _SIZES.size
_TAG_BYTES: Final = 16
_INDEX: Final = struct.Struct(">Q")
#: blocks between which other tasks run
_SLICE: Final = 16
#: heads that are remembered for reads of ranges
_HEADS_MAX: Final = 4096


class _Opened(NamedTuple):
    """The head of an object."""

    cipher: Any
    binding: bytes
    size: int
    block: int

    @property
    def blocks(self) -> int:
        return max(1, -(-self.size // self.block))

    def open(self, number: int, data: Buffer) -> bytes | None:
        """The content of a block; None if it is not authentic."""
        from cryptography.exceptions import InvalidTag

        index = _INDEX.pack(number)
        try:
            content: bytes = self.cipher.decrypt(bytes(4) + index, data, self.binding + index)
        except InvalidTag:
            return None
        return content


class EncryptedStore:
    """`store` with encrypted objects. ArchiveError for what is not authentic, or has another key."""

    def __init__(
        self, store: ObjectStore, ring: KeyRing, token: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._store = store
        self._ring = ring
        self._token = token
        #: `Root.id`; None until the root was read
        self._archive: str | None = None
        self._heads: OrderedDict[str, _Opened] = OrderedDict()

    # -- penstock.ports.ObjectStore

    async def get(self, name: str) -> bytes:
        place = await self._place(name)
        data = await self._store.get(name)
        opened = self._open_head(name, data[:HEAD_BYTES], place)
        content = await self._content(name, opened, memoryview(data)[HEAD_BYTES:], 0, opened.blocks)
        if name == ROOT:
            self._archive = decode(content, Root, name).id
        return content

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        opened = self._heads.get(name)
        if opened is None:
            head = await self._store.get_range(name, 0, HEAD_BYTES)
            opened = self._open_head(name, head, await self._place(name))
            self._heads[name] = opened
            if len(self._heads) > _HEADS_MAX:
                self._heads.popitem(last=False)
        end = min(end, opened.size)
        if start >= end:
            return b""
        first, stop = start // opened.block, -(-end // opened.block)
        sealed = opened.block + _TAG_BYTES
        stored_end = min(HEAD_BYTES + stop * sealed, _stored_size(opened.size, opened.block))
        data = await self._store.get_range(name, HEAD_BYTES + first * sealed, stored_end)
        try:
            content = await self._content(name, opened, memoryview(data), first, stop)
        except ArchiveDamaged:
            # The head may be that of an object that was deleted, and put again.
            del self._heads[name]
            raise
        skipped = start - first * opened.block
        return content[skipped : skipped + end - start]

    async def put_new(self, name: str, data: Buffer) -> None:
        if name == ROOT:
            self._archive = None
        await self._store.put_new(name, await self._sealed(name, memoryview(data).cast("B")))

    async def listing(self, prefix: str) -> list[StoredObject]:
        found = await self._store.listing(prefix)
        return [each._replace(size=_content_size(each.size)) for each in found]

    async def delete(self, name: str) -> None:
        self._heads.pop(name, None)
        await self._store.delete(name)

    # -- encryption

    async def _place(self, name: str) -> bytes:
        """What an object is bound to: the archive and the name. The root names the archive."""
        archive = ""
        if name != ROOT and not name.startswith(PROBES):
            if self._archive is None:
                await self.get(ROOT)
            assert self._archive is not None
            archive = self._archive
        return b"archive/" + sha256(f"{archive}\0{name}".encode()).hexdigest().encode()

    async def _sealed(self, name: str, data: memoryview) -> bytes:
        place, secret = await self._place(name), self._token(KEY_BYTES)
        head = encode_head({0: wrapped_slot(self._ring, secret, place, self._token)}, place)
        cipher, binding = _gcm()(secret), _binding(place, len(data), BLOCK_BYTES)
        parts: list[bytes] = [head, _SIZES.pack(len(data), BLOCK_BYTES)]
        for number in range(max(1, -(-len(data) // BLOCK_BYTES))):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            index = _INDEX.pack(number)
            block = data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
            parts.append(cipher.encrypt(bytes(4) + index, block, binding + index))
        return b"".join(parts)

    def _open_head(self, name: str, head: bytes, place: bytes) -> _Opened:
        version = version_of(head)
        if version == PLAIN:
            if name == ROOT:
                raise ArchiveRefused(
                    "the archive is not encrypted, and there are keys: leave them out, or use another address"
                )
            raise ArchiveDamaged(f"{name} is not encrypted, as its archive is")
        if version > VERSION:
            raise ArchiveRefused(
                f"{name} has version {version} of the encryption, this Penstock knows {VERSION}: upgrade it"
            )
        try:
            heads = decode_heads(head[:_HEAD])
            found = unwrapped(heads, self._ring, name)
        except MissingKey as e:
            raise ArchiveRefused(str(e)) from e
        if found is None or found[1] != place or len(head) < HEAD_BYTES:
            raise ArchiveDamaged(f"{name} is damaged, or is another object than its name says")
        size, block = _SIZES.unpack_from(head, _HEAD)
        if not block or head != encode_head(heads[0].slots, place) + _SIZES.pack(size, block):
            raise ArchiveDamaged(f"{name} is damaged: its head has other bytes than were written")
        return _Opened(_gcm()(found[0]), _binding(place, size, block), size, block)

    async def _content(self, name: str, opened: _Opened, data: memoryview, first: int, stop: int) -> bytes:
        """The content of the blocks [first, stop), which `data` has."""
        sealed, parts = opened.block + _TAG_BYTES, []
        for number in range(first, stop):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            at = (number - first) * sealed
            content = opened.open(number, data[at : at + sealed])
            if content is None:
                raise ArchiveDamaged(f"{name} is damaged: block {number} is not authentic")
            parts.append(content)
        return b"".join(parts)


def with_keys(store: ObjectStore, ring: KeyRing | None) -> ObjectStore:
    """`store`, encrypted if there are keys."""
    return store if ring is None else EncryptedStore(store, ring)


def _binding(place: bytes, size: int, block: int) -> bytes:
    return sha256(place + _SIZES.pack(size, block)).digest()


def _stored_size(size: int, block: int) -> int:
    return HEAD_BYTES + size + _TAG_BYTES * max(1, -(-size // block))


def _content_size(stored: int) -> int:
    """The size of the content of an object, as it is written today."""
    left = max(0, stored - HEAD_BYTES)
    return max(0, left - _TAG_BYTES * -(-left // (BLOCK_BYTES + _TAG_BYTES)))


def _gcm() -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM
