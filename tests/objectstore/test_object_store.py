"""The adapter of obstore: the same behaviour in memory, in a folder, and on an S3 server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.archive.batches import split_batches
from penstock.archive.chain import ManifestChain
from penstock.archive.errors import ArchiveRefused
from penstock.archive.names import BACKUP
from penstock.archive.objects import open_archive, read_root
from penstock.archive.reading import PartitionReader
from penstock.archive.verifying import verify_partition
from penstock.archive.writing import PartitionWriter
from penstock.broker.base.system_ports import SystemClock, SystemRng
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import LibraryStore, open_store
from tests.archive.logs import OWNER, in_loop, log_of
from tests.backup.stores import S3_ENVIRONMENT, s3_here

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_here(tmp_path_factory.mktemp("s3")) as environment:
        yield environment


def check_contract(store: LibraryStore) -> None:
    async def check() -> None:
        with pytest.raises(FileNotFoundError, match=r"^a/b is not there$"):
            await store.get("a/b")
        await store.put_new("a/b", b"0123456789")
        with pytest.raises(FileExistsError, match=r"^a/b is there already$"):
            await store.put_new("a/b", b"other")
        assert await store.get("a/b") == b"0123456789"
        assert await store.get_range("a/b", 2, 5) == b"234"
        await store.put_new("a/c", bytearray(b"x"))
        await store.put_new("ab", memoryview(b"y"))
        listed = await store.listing("a/")
        assert [(each.name, each.size) for each in listed] == [("a/b", 10), ("a/c", 1)]
        assert abs(listed[0].modified_ms - SystemClock().now_ms()) < 600_000
        assert [each.name for each in await store.listing("a")] == ["a/b", "a/c", "ab"]
        assert [each.name for each in await store.listing("a/c")] == ["a/c"]
        assert await store.listing("none/") == []
        await store.delete("a/b")
        await store.delete("a/b")
        assert [each.name for each in await store.listing("")] == ["a/c", "ab"]

    asyncio.run(check())


def check_archive(store: LibraryStore) -> None:
    async def check() -> None:
        root = await open_archive(store, SystemRng(), 5)
        assert await read_root(store) == root
        chain = ManifestChain(store, root.id, OWNER, BACKUP, SystemRng(), SystemClock())
        writer = PartitionWriter(store, chain, SystemRng(), leader_epoch=0, segment_bytes=2000)
        await writer.open(0, compacted=False)
        batches = log_of(0, 50)
        await writer.append(batches)
        manifest = await writer.commit(0, 0)
        assert (await verify_partition(store, manifest)).log_bytes == sum(map(len, batches))
        data = await PartitionReader(store, manifest).read(40, 1000)
        assert bytes(next(iter(split_batches(data, "it")))) in batches

    asyncio.run(check())


def test_memory() -> None:
    check_contract(open_store(parse_address("memory:///")))
    check_archive(open_store(parse_address("memory:///")))


def test_a_folder(tmp_path: Path) -> None:
    address = parse_address(str(tmp_path / "new" / "archive"))
    with pytest.raises(ArchiveRefused, match="is no folder"):
        open_store(address)
    check_contract(open_store(address, create=True))
    check_archive(open_store(address))


def test_other_users_cannot_read_a_new_folder(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "shared").mkdir(mode=0o755)
        for name, mode in (("new", 0o700), ("shared", 0o755)):
            open_store(parse_address(str(tmp_path / name)), create=True)
            assert (tmp_path / name).stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@pytest.mark.process
@pytest.mark.slow
def test_s3(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    check_contract(open_store(parse_address("s3://archive/contract")))
    check_archive(open_store(parse_address("s3://archive/whole")))


@pytest.mark.process
@pytest.mark.slow
def test_s3_with_options_of_a_file(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in S3_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    options = {name.lower(): value for name, value in s3.items()}
    check_contract(open_store(parse_address("s3://archive/file"), options))


@pytest.mark.process
@pytest.mark.slow
def test_a_missing_bucket_is_named(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    store = open_store(parse_address("s3://another/x"))
    with pytest.raises(ArchiveRefused, match="no such bucket"):
        asyncio.run(open_archive(store, SystemRng(), 5))


@in_loop
async def test_errors_are_one_line_without_secrets() -> None:
    options = {
        "aws_endpoint_url": "http://127.0.0.1:9",
        "aws_access_key_id": "an-id",
        "aws_secret_access_key": "sec-ret",
        "aws_region": "x",
        "aws_allow_http": "true",
    }
    store = open_store(parse_address("s3://bucket/x"), options, max_retries=0)
    with pytest.raises(OSError, match=r"^the store has failed with a: ") as failed:
        await store.get("a")
    assert "sec-ret" not in str(failed.value) and "\n" not in str(failed.value)
    assert failed.value.__cause__ is None and failed.value.__suppress_context__


def test_options_that_the_library_refuses() -> None:
    with pytest.raises(ArchiveRefused, match=r"^s3://bucket/x cannot be used: "):
        open_store(parse_address("s3://bucket/x"), {"no_such_option": "sec-ret"})


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ArchiveRefused, match=r"pip install 'penstock-mq\[archive\]'"):
        open_store(parse_address("memory:///"))


def test_a_put_into_a_folder_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and every name on the way to it are synced."""
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    asyncio.run(open_store(parse_address(str(tmp_path))).put_new("a/b", b"x"))
    assert synced == [str(tmp_path / "a/b"), str(tmp_path / "a"), str(tmp_path)]
