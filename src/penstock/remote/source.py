"""What a broker reads of an archive for one partition: its manifest, and maps of its segments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from penstock.archive import segment_object
from penstock.archive.building import LogState, owner_of
from penstock.archive.checking import check_table
from penstock.archive.documents import Manifest, Page, PageEntry, SegmentEntry, decode
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.manifests import check_page
from penstock.archive.names import ArchivedPartition
from penstock.archive.objects import get_named
from penstock.archive.segment_object import FOOTER_BYTES, SegmentTable, parse_footer, parse_table
from penstock.ports import Buffer, BufferStore, ObjectStore, Workers
from penstock.records.checksum import crc32c
from penstock.remote.chunks import CHUNK_BYTES, OpenTransaction, SegmentMap
from penstock.storage.snapshot import SnapshotDamaged, decode_snapshot
from penstock.storage.transactions import ABORTED_ENTRY, AbortedTransaction

__all__ = [
    "ArchiveSource",
    "RemoteSource",
    "Tail",
    "Transactions",
    "log_state",
    "read_buffer",
    "read_range",
    "read_tail",
]

#: what is read of a segment's end at first: footer, table and, mostly, all sections
_TAIL_BYTES = 64 << 10


class Transactions(NamedTuple):
    """The transactions of a segment that readers of committed records have to know."""

    #: their marker is in the segment
    aborted: tuple[AbortedTransaction, ...]
    #: without a marker at the end of the segment
    still_open: tuple[OpenTransaction, ...]


class RemoteSource(Protocol):
    """The archived part of one log. Errors are ArchiveError, or OSError of the store."""

    @property
    def store(self) -> ObjectStore: ...

    async def manifest(self) -> Manifest: ...

    async def page(self, manifest: Manifest, entry: PageEntry) -> Page: ...

    async def map_of(self, manifest: Manifest, entry: SegmentEntry) -> SegmentMap: ...

    async def times(self, manifest: Manifest, entry: SegmentEntry) -> bytes:
        """The time index of a segment."""
        ...

    def rewritten(self, batches: Buffer, name: str) -> Buffer:
        """Whole batches as this broker serves them, of the same sizes; runs in a worker thread."""
        ...


class Tail:
    """The end of a segment object, behind its batches, with verified sections."""

    def __init__(self, data: bytes, start: int, table: SegmentTable, name: str) -> None:
        self._data, self._start = data, start
        self._name = name
        self.table = table

    def section(self, name: str) -> bytes:
        found = segment_object.section_of(self.table, name)
        content = self._data[found.position - self._start : found.position - self._start + found.size]
        if crc32c(content) != found.crc32c:
            raise ArchiveDamaged(f"{self._name} has a damaged section {name}")
        return content


async def read_tail(store: ObjectStore, entry: SegmentEntry, owner: ArchivedPartition) -> Tail:
    """The table and the sections of a segment, by one read or two."""
    name = owner.object(entry.name)
    start = max(0, entry.size - _TAIL_BYTES)
    data = await read_range(store, name, start, entry.size)
    table_size, _ = parse_footer(data, name)
    if table_size + FOOTER_BYTES > len(data):
        raise ArchiveDamaged(f"{name} has a table that is longer than the object")
    table = parse_table(data, entry.size, name)
    check_table(table, entry, owner)
    if start > table.log_size:
        data = await read_range(store, name, table.log_size, start) + data
        start = table.log_size
    return Tail(data, start, table, name)


def log_state(tail: Tail, entry: SegmentEntry, owner: ArchivedPartition) -> LogState:
    """Leader epochs, producers and open transactions at the end of a segment."""
    return LogState.decode(
        entry.next_offset,
        tail.section(segment_object.EPOCHS),
        tail.section(segment_object.PRODUCERS),
        owner_of(owner),
    )


async def read_buffer(store: ObjectStore, name: str, start: int, end: int) -> Buffer:
    """As `read_range`, without a copy if the store can do that: for much data."""
    if not isinstance(store, BufferStore):
        return await read_range(store, name, start, end)
    try:
        data = await store.get_buffer(name, start, end)
    except FileNotFoundError as e:
        raise ArchiveDamaged(f"{name} is missing") from e
    if len(data) != end - start:
        raise ArchiveDamaged(f"{name} has {len(data)} bytes where {end - start} were read")
    return data


async def read_range(store: ObjectStore, name: str, start: int, end: int) -> bytes:
    """A range of an object that a manifest names; ArchiveDamaged if the object is missing or shorter."""
    try:
        data = await store.get_range(name, start, end)
    except FileNotFoundError as e:
        raise ArchiveDamaged(f"{name} is missing") from e
    if len(data) != end - start:
        raise ArchiveDamaged(f"{name} has {len(data)} bytes where {end - start} were read")
    return data


class ArchiveSource:
    """A partition of an archive as it was written."""

    def __init__(
        self,
        store: ObjectStore,
        read_manifest: Callable[[], Awaitable[Manifest]],
        workers: Workers,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """`workers` decode indexes and producers: a segment may have many."""
        self.store = store
        self.workers = workers
        self._chunk_bytes = chunk_bytes
        self._read_manifest = read_manifest

    async def manifest(self) -> Manifest:
        return await self._read_manifest()

    async def page(self, manifest: Manifest, entry: PageEntry) -> Page:
        name = manifest.owner.object(entry.name)
        page = decode(await get_named(self.store, name, entry.size, entry.sha256), Page, name)
        check_page(page, entry, manifest)
        return page

    async def map_of(self, manifest: Manifest, entry: SegmentEntry) -> SegmentMap:
        tail = await read_tail(self.store, entry, manifest.owner)
        transactions = await self.transactions(manifest, entry, tail)
        return await self.workers.in_thread(_map, entry, tail, transactions, self._chunk_bytes)

    async def transactions(self, manifest: Manifest, entry: SegmentEntry, tail: Tail) -> Transactions:
        """The transactions whose abort marker is in a segment, and those that are open at its end."""
        return await self.workers.in_thread(_transactions, manifest.owner, entry, tail)

    async def times(self, manifest: Manifest, entry: SegmentEntry) -> bytes:
        return (await read_tail(self.store, entry, manifest.owner)).section(segment_object.TIME_INDEX)

    def rewritten(self, batches: Buffer, name: str) -> Buffer:
        return batches


def _map(entry: SegmentEntry, tail: Tail, transactions: Transactions, chunk_bytes: int) -> SegmentMap:
    index, blocks = tail.section(segment_object.INDEX), tail.section(segment_object.BLOCKS)
    return SegmentMap(entry, index, blocks, tail.table.block_size, *transactions, chunk_bytes)


def _transactions(owner: ArchivedPartition, entry: SegmentEntry, tail: Tail) -> Transactions:
    content = tail.section(segment_object.TRANSACTION_INDEX)
    if len(content) % ABORTED_ENTRY.size:
        raise ArchiveDamaged(f"{entry.name} has a transaction index of {len(content)} bytes")
    aborted = tuple(AbortedTransaction(*each[1:]) for each in ABORTED_ENTRY.iter_unpack(content))
    try:
        states = decode_snapshot(tail.section(segment_object.PRODUCERS), owner_of(owner), entry.next_offset)
    except SnapshotDamaged as e:
        raise ArchiveDamaged(f"{entry.name} has a damaged producer snapshot: {e}") from e
    return Transactions(
        aborted,
        tuple(
            OpenTransaction(each.producer_id, each.transaction_start)
            for each in states
            if each.transaction_start is not None
        ),
    )
