"""Encrypted objects: what is read is what was written at this place, or an error (ADR 89)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.archive.errors import ArchiveDamaged, ArchiveError, ArchiveRefused
from penstock.archive.names import ROOT
from penstock.archive.objects import open_archive, read_root
from penstock.archive.verifying import verify_partition
from penstock.archive.writing import PartitionWriter
from penstock.encryption.keys import Key, KeyRing
from penstock.objectstore.encrypted_store import BLOCK_BYTES, HEAD_BYTES, EncryptedStore
from penstock.testing.simulation.object_store import SimulatedStore
from penstock.testing.simulation.ports import SimRng
from tests.archive.logs import OWNER, chain, in_loop, log_of, new_store

_RING = KeyRing([Key("k1", bytes(range(32)))])
_OTHER = KeyRing([Key("k1", bytes(32))])
_ROTATED = KeyRing([Key("k2", bytes(range(32, 64))), Key("k1", bytes(range(32)))])


async def _archive(ring: KeyRing = _RING) -> tuple[SimulatedStore, EncryptedStore]:
    inner = new_store()
    store = EncryptedStore(inner, ring)
    await open_archive(store, SimRng(Random(1)), 0)
    return inner, store


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 7])
def test_objects_and_ranges_come_back(size: int) -> None:
    async def run() -> None:
        inner, store = await _archive()
        content = Random(size).randbytes(size)
        await store.put_new("x", content)
        assert await store.get("x") == content
        assert [each.size for each in await store.listing("x")] == [size]
        for start in (0, 1, size // 2, BLOCK_BYTES - 1, BLOCK_BYTES, size):
            for end in (start, start + 1, start + 100, start + BLOCK_BYTES, size, size + 10):
                assert await store.get_range("x", start, end) == content[start:end], (start, end)
        if size > 100:
            assert content[:50] not in inner.objects["x"][0]

    asyncio.run(run())


@in_loop
async def test_the_same_content_is_never_encrypted_twice_in_the_same_way() -> None:
    inner, store = await _archive()
    for name in ("a", "b"):
        await store.put_new(name, b"content")
    assert inner.objects["a"][0][HEAD_BYTES:] != inner.objects["b"][0][HEAD_BYTES:]


@in_loop
async def test_each_flipped_bit_is_found() -> None:
    inner, store = await _archive()
    await store.put_new("a", Random(1).randbytes(BLOCK_BYTES + 100))
    sound = inner.objects["a"][0]
    rng = Random(2)
    places = [*range(HEAD_BYTES), *rng.choices(range(HEAD_BYTES, len(sound)), k=200)]
    for at in places:
        data = bytearray(sound)
        data[at] ^= 1 << rng.randrange(8)
        inner.objects["a"] = (bytes(data), 0)
        with pytest.raises(ArchiveError):
            await EncryptedStore(inner, _RING).get("a")


@in_loop
async def test_an_object_in_another_place_is_refused() -> None:
    inner, store = await _archive()
    await store.put_new("a", b"first")
    await store.put_new("b", b"second")
    inner.objects["a"], inner.objects["b"] = inner.objects["b"], inner.objects["a"]
    for read in (store.get("a"), EncryptedStore(inner, _RING).get_range("b", 0, 3)):
        with pytest.raises(ArchiveDamaged, match="is another object than its name says"):
            await read


@in_loop
async def test_an_object_of_another_archive_is_refused() -> None:
    inner, store = await _archive()
    await store.put_new("a", b"first")
    other = EncryptedStore(new_store(), _RING)
    await open_archive(other, SimRng(Random(9)), 0)
    other._store.objects["a"] = inner.objects["a"]  # type: ignore[attr-defined]
    with pytest.raises(ArchiveDamaged, match="is another object than its name says"):
        await other.get("a")


@in_loop
async def test_blocks_that_are_cut_off_swapped_or_repeated_are_refused() -> None:
    inner, store = await _archive()
    await store.put_new("a", Random(1).randbytes(3 * BLOCK_BYTES))
    sound, sealed = inner.objects["a"][0], BLOCK_BYTES + 16
    head, blocks = sound[:HEAD_BYTES], [sound[HEAD_BYTES + n * sealed :][:sealed] for n in range(3)]
    for damaged in (blocks[:2], [blocks[1], blocks[0], blocks[2]], [blocks[0]] * 3, []):
        inner.objects["a"] = (head + b"".join(damaged), 0)
        with pytest.raises(ArchiveDamaged, match="is not authentic"):
            await EncryptedStore(inner, _RING).get("a")


@in_loop
async def test_keys_are_named_rotated_and_compared() -> None:
    inner, store = await _archive()
    await store.put_new("a", b"old")
    with pytest.raises(ArchiveDamaged, match="damaged, or is another object"):
        await read_root(EncryptedStore(inner, _OTHER))
    with pytest.raises(ArchiveRefused, match="is encrypted with the key k1, which is not among"):
        await read_root(EncryptedStore(inner, KeyRing([Key("new", bytes(32))])))
    rotated = EncryptedStore(inner, _ROTATED)
    await rotated.put_new("b", b"new")
    assert (await rotated.get("a"), await rotated.get("b")) == (b"old", b"new")
    with pytest.raises(ArchiveRefused, match="the key k2"):
        await store.get("b")


@in_loop
async def test_an_archive_is_encrypted_as_a_whole_or_not_at_all() -> None:
    encrypted, store = await _archive()
    with pytest.raises(ArchiveRefused, match="the archive is encrypted: name the file with its keys"):
        await read_root(encrypted)
    with pytest.raises(ArchiveRefused, match="the archive is encrypted"):
        await open_archive(encrypted, SimRng(Random(1)), 0)
    plain = new_store()
    await open_archive(plain, SimRng(Random(1)), 0)
    with pytest.raises(ArchiveRefused, match="the archive is not encrypted, and there are keys"):
        await open_archive(EncryptedStore(plain, _RING), SimRng(Random(1)), 0)
    encrypted.objects["a"] = (b"in plain text", 0)
    with pytest.raises(ArchiveDamaged, match="a is not encrypted, as its archive is"):
        await store.get("a")


@in_loop
async def test_a_newer_version_is_refused() -> None:
    inner, store = await _archive()
    data, written_ms = inner.objects[ROOT]
    inner.objects[ROOT] = (data[:7] + bytes([9]) + data[8:], written_ms)
    with pytest.raises(ArchiveRefused, match="version 9 of the encryption"):
        await read_root(store)


@in_loop
async def test_an_encrypted_partition_is_continued_and_verified() -> None:
    inner, store = await _archive()
    for start, count in ((0, 20), (0, 40)):
        writer = PartitionWriter(
            store,
            chain(store),
            SimRng(Random(start)),
            leader_epoch=0,
            segment_bytes=700,
        )
        end = await writer.open(0, compacted=False)
        await writer.append([each for each in log_of(0, count) if int.from_bytes(each[:8], "big") >= end])
        manifest = await writer.commit(0, 0)
    assert (await verify_partition(store, manifest)).segments > 1
    assert not any(OWNER.topic.encode() in data for data, _ in inner.objects.values())
    name = next(name for name in inner.objects if name.endswith(".segment"))
    inner.rot(name)
    with pytest.raises(ArchiveDamaged):
        await verify_partition(EncryptedStore(inner, _RING), manifest)
