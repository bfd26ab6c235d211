"""Objects come in order, with the next one under way."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged
from penstock.backup.reading_ahead import objects_of
from penstock.testing.simulation.object_store import SimulatedStore
from tests.archive.logs import OWNER, in_loop, log_of, new_store, writer


class Counting(SimulatedStore):
    """Counts the objects that were asked for."""

    asked: list[str]

    async def get(self, name: str) -> bytes:
        self.asked.append(name)
        return await super().get(name)


async def archived() -> tuple[Counting, Manifest]:
    store = new_store()
    store.__class__ = Counting
    assert isinstance(store, Counting)
    store.asked = []
    made = writer(store)
    await made.open(0, compacted=False)
    await made.append(log_of(0, 60, size=300))
    manifest = await made.commit(0, 0)
    assert len(manifest.segments) > 3, len(manifest.segments)
    store.asked.clear()
    return store, manifest


@in_loop
async def test_objects_are_fetched_in_order_one_ahead() -> None:
    store, manifest = await archived()
    found = []
    async with aclosing(objects_of(store, manifest)) as objects:
        async for entry, data in objects:
            await asyncio.sleep(0)
            found.append(entry)
            assert data == store.objects[OWNER.object(entry.name)][0]
            assert len(store.asked) == min(len(found) + 1, len(manifest.segments))
    assert tuple(found) == manifest.segments


@in_loop
async def test_a_reader_that_stops_leaves_no_task() -> None:
    store, manifest = await archived()
    async with aclosing(objects_of(store, manifest)) as objects:
        await anext(objects)
    assert len(asyncio.all_tasks()) == 1


@in_loop
async def test_a_missing_object_is_damage() -> None:
    store, manifest = await archived()
    store.lose(OWNER.object(manifest.segments[1].name))
    with pytest.raises(ArchiveDamaged, match="is missing"):
        async with aclosing(objects_of(store, manifest)) as objects:
            async for _ in objects:
                pass
    assert len(asyncio.all_tasks()) == 1
