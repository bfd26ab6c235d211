"""The chain of manifests of one partition and one writer.

The manifest with the highest number counts. A writer continues the chain by creating the next number with a
conditional put: of two writers that have read the same manifest, one fails. Invariant: along the chain the
leader epoch never falls, so a deposed leader that has read the manifest of its successor does not write.

Why a listing follows each put: the collector deletes old manifests. A writer that slept for longer than the
grace period could create a number again that was there and was deleted. The listing then has a higher number.
"""

from __future__ import annotations

import msgspec

from penstock.archive.documents import Manifest, digest, encode
from penstock.archive.errors import ArchiveDamaged, WriterDeposed
from penstock.archive.manifests import check_manifest, spill
from penstock.archive.names import ArchivedPartition, manifest_number
from penstock.archive.objects import put_certain, read_document
from penstock.model.ids import format_topic_id
from penstock.ports import Clock, ObjectStore, Rng

__all__ = ["ManifestChain", "newest_manifest"]

#: manifests that a listing may lack; more means that something is wrong with the archive
_UNLISTED_MAX = 10_000


async def newest_manifest(
    store: ObjectStore, owner: ArchivedPartition, writer: str
) -> tuple[Manifest, str] | None:
    """The manifest with the highest number and its SHA-256; None if there is none.

    A listing may lack the newest manifests, so the numbers behind the highest listed one are tried.
    """
    names = (each.name for each in await store.listing(owner.manifests(writer)))
    number = max((n for n in map(manifest_number, names) if n is not None), default=-1)
    newest = None if number < 0 else await read_document(store, owner.manifest(writer, number), Manifest)
    for following in range(number + 1, number + 1 + _UNLISTED_MAX):
        try:
            newest = await read_document(store, owner.manifest(writer, following), Manifest)
        except FileNotFoundError:
            break
    if newest is not None:
        found = newest[0]
        check_manifest(found, owner.manifest(writer, found.number))
        # As texts: what is no topic id is damage, too.
        own = (owner.topic, format_topic_id(owner.topic_id), owner.partition, writer)
        if (found.topic, found.topic_id, found.partition, found.writer) != own:
            raise ArchiveDamaged(
                f"the manifest of {owner} is that of {found.topic[:249]!r}-{found.partition} "
                f"with topic id {found.topic_id[:22]!r}"
            )
    return newest


class ManifestChain:
    """Reads and continues the chain of one partition, for one writer."""

    def __init__(
        self,
        store: ObjectStore,
        archive: str,
        owner: ArchivedPartition,
        writer: str,
        rng: Rng,
        clock: Clock,
    ) -> None:
        self._store = store
        self._archive = archive
        self._rng = rng
        self.clock = clock
        self.owner = owner
        self.writer = writer
        #: the newest manifest, and its SHA-256; None before the first one
        self.newest: Manifest | None = None
        self.digest = ""

    async def load(self) -> Manifest | None:
        """Read the newest manifest."""
        found = await newest_manifest(self._store, self.owner, self.writer)
        self.newest, self.digest = (None, "") if found is None else found
        if self.newest is not None and self.newest.archive != self._archive:
            raise ArchiveDamaged(f"the manifest of {self.owner} is of archive {self.newest.archive}")
        return self.newest

    def first(self, log_start_offset: int, leader_epoch: int, compacted: bool) -> Manifest:
        """A manifest without segments, as the first of a chain; it is not written."""
        return Manifest(
            archive=self._archive,
            topic=self.owner.topic,
            topic_id=format_topic_id(self.owner.topic_id),
            partition=self.owner.partition,
            writer=self.writer,
            number=-1,
            previous="",
            id="",
            leader_epoch=leader_epoch,
            written_ms=0,
            log_start_offset=log_start_offset,
            compacted=compacted,
        )

    async def advance(self, edited: Manifest, leader_epoch: int) -> Manifest:
        """Write `edited`, an edit of the newest manifest, as the next one of the chain.

        WriterDeposed if another writer was faster. All objects that it names have been put.
        """
        number, epoch = (-1, -1) if self.newest is None else (self.newest.number, self.newest.leader_epoch)
        if leader_epoch < epoch:
            raise WriterDeposed(
                f"{self.owner} has leader epoch {epoch} in its manifest, this is {leader_epoch}"
            )
        edited = msgspec.structs.replace(edited, leader_epoch=leader_epoch)
        while (spilled := spill(edited, self._rng.token(8))) is not None:
            await put_certain(self._store, self.owner.object(spilled.name), spilled.data)
            edited = spilled.manifest
        manifest = msgspec.structs.replace(
            edited,
            number=number + 1,
            previous=self.digest,
            id=self._rng.token(16).hex(),
            written_ms=self.clock.now_ms(),
        )
        name = self.owner.manifest(self.writer, manifest.number)
        check_manifest(manifest, name)
        data = encode(manifest)
        try:
            await put_certain(self._store, name, data)
        except FileExistsError as e:
            raise WriterDeposed(f"another writer has written {name}") from e
        await self._check_highest(manifest.number)
        self.newest, self.digest = manifest, digest(data)
        return manifest

    async def _check_highest(self, number: int) -> None:
        names = (each.name for each in await self._store.listing(self.owner.manifests(self.writer)))
        highest = max((n for n in map(manifest_number, names) if n is not None), default=number)
        if highest > number:
            raise WriterDeposed(f"{self.owner} has manifest {highest} of another writer, this is {number}")
