"""Puts and gets of whole objects: their bytes are compared with what was written or is expected."""

from __future__ import annotations

from typing import Final, TypeVar

from penstock.archive.documents import Document, Root, decode, digest, encode
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.names import ROOT
from penstock.model.ids import format_topic_id
from penstock.ports import ObjectStore, Rng

__all__ = [
    "PROBES",
    "check_conditional_put",
    "get_named",
    "get_unverified",
    "open_archive",
    "put_certain",
    "put_verified",
    "read_document",
    "read_root",
]

DocumentT = TypeVar("DocumentT", bound=Document)
#: objects that try the store, and are deleted again
PROBES: Final = "probes/"
#: of one read when an object is verified: the loop has to copy and compare it
_VERIFIED_BYTES: Final = 2 << 20


async def put_certain(store: ObjectStore, name: str, data: bytes | bytearray) -> None:
    """Put a new object. An error counts only if the object is not there with these bytes.

    Why: a store may write an object and answer with an error, and its client may try again and find the
    object of its first attempt. FileExistsError means that the object of another writer is there.
    """
    try:
        await store.put_new(name, data)
    except OSError as e:
        try:
            found = await store.get(name)
        except FileNotFoundError:
            raise e from None
        if found != data:
            raise FileExistsError(f"{name} was written by another writer") from e


async def put_verified(store: ObjectStore, name: str, data: bytes | bytearray) -> None:
    """As `put_certain`, and read the object back; ArchiveDamaged if the store has other bytes."""
    await put_certain(store, name, data)
    for start in range(0, len(data), _VERIFIED_BYTES):
        end = min(start + _VERIFIED_BYTES, len(data))
        found = await store.get_range(name, start, end)
        if len(found) != end - start or not data.startswith(found, start):
            raise ArchiveDamaged(f"{name} was put, and the store returns other bytes")


async def get_unverified(store: ObjectStore, name: str) -> bytes:
    """An object that a document names; ArchiveDamaged if it is missing. The caller compares its SHA-256."""
    try:
        return await store.get(name)
    except FileNotFoundError as e:
        raise ArchiveDamaged(f"{name} is missing") from e


async def get_named(store: ObjectStore, name: str, size: int, sha256: str) -> bytes:
    """An object that a document names; ArchiveDamaged if it is missing, or has other bytes."""
    data = await get_unverified(store, name)
    if len(data) != size or digest(data) != sha256:
        raise ArchiveDamaged(f"{name} has {len(data)} bytes that do not match the SHA-256 of what names it")
    return data


async def read_document(store: ObjectStore, name: str, kind: type[DocumentT]) -> tuple[DocumentT, str]:
    """A document and its SHA-256; FileNotFoundError if it is missing."""
    data = await store.get(name)
    return decode(data, kind, name), digest(data)


async def read_root(store: ObjectStore) -> Root:
    """The root of an archive; ArchiveRefused if there is none."""
    try:
        return (await read_document(store, ROOT, Root))[0]
    except FileNotFoundError as e:
        raise ArchiveRefused(f"there is no archive: {ROOT} is missing; check the address") from e


async def open_archive(store: ObjectStore, rng: Rng, now_ms: int) -> Root:
    """The root of an archive that is to be written; a new one if there is none.

    The store has to support conditional puts, which is tried: ArchiveRefused otherwise.
    """
    try:
        return (await read_document(store, ROOT, Root))[0]
    except FileNotFoundError:
        await check_conditional_put(store, rng)
    root = Root(id=format_topic_id(rng.token(16)), created_ms=now_ms)
    try:
        await put_certain(store, ROOT, encode(root))
    except FileExistsError:
        return (await read_document(store, ROOT, Root))[0]
    return root


async def check_conditional_put(store: ObjectStore, rng: Rng) -> None:
    """ArchiveRefused if a second conditional put of the same name succeeds."""
    name = f"{PROBES}{rng.token(8).hex()}"
    first, second = rng.token(16), rng.token(16)
    await put_certain(store, name, first)
    try:
        await store.put_new(name, second)
    except FileExistsError:
        if await store.get(name) == first:
            await store.delete(name)
            return
    await store.delete(name)
    raise ArchiveRefused(
        "the store has no conditional put (create-if-absent): two writers could overwrite each other's "
        "manifests; use a store that supports it"
    )
