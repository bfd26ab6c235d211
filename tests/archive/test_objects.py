from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.archive.documents import digest
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.objects import get_named, open_archive, put_certain, read_root
from penstock.testing.simulation.object_store import StoreFaults
from penstock.testing.simulation.ports import SimRng
from tests.archive.logs import new_store

RNG = SimRng(Random(1))


def test_an_archive_is_created_once() -> None:
    store = new_store()
    with pytest.raises(ArchiveRefused, match=r"archive\.json is missing"):
        asyncio.run(read_root(store))
    root = asyncio.run(open_archive(store, RNG, 5))
    assert asyncio.run(open_archive(store, RNG, 6)) == root == asyncio.run(read_root(store))
    assert list(store.objects) == ["archive.json"], "the probe is gone"


def test_a_store_without_conditional_put_is_refused() -> None:
    store = new_store(faults=StoreFaults(overwrites=True))
    with pytest.raises(ArchiveRefused, match="no conditional put"):
        asyncio.run(open_archive(store, RNG, 5))
    assert store.objects == {}


def test_a_put_whose_answer_was_lost_has_happened() -> None:
    store = new_store(faults=StoreFaults(lost_answer=1.0))
    asyncio.run(put_certain(store, "a", b"x"))
    asyncio.run(put_certain(store, "a", b"x"))
    with pytest.raises(FileExistsError, match="another writer"):
        asyncio.run(put_certain(store, "a", b"y"))
    assert store.objects["a"][0] == b"x"


def test_a_put_that_failed_has_not_happened() -> None:
    store = new_store()
    store.is_down = True
    with pytest.raises(OSError, match="failed with a"):
        asyncio.run(put_certain(store, "a", b"x"))
    assert store.objects == {}


def test_named_objects_are_compared_with_their_names() -> None:
    store = new_store()
    asyncio.run(put_certain(store, "a", b"xyz"))
    assert asyncio.run(get_named(store, "a", 3, digest(b"xyz"))) == b"xyz"
    store.rot("a")
    with pytest.raises(ArchiveDamaged, match="do not match the SHA-256"):
        asyncio.run(get_named(store, "a", 3, digest(b"xyz")))
    store.lose("a")
    with pytest.raises(ArchiveDamaged, match="a is missing"):
        asyncio.run(get_named(store, "a", 3, digest(b"xyz")))
