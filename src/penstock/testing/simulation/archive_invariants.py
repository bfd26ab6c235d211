"""Named invariants of an archive, checked whenever its store changes.

Invariants: a manifest, or a cut, that is written names only objects that are there with their checksums.
Nothing is deleted that a cut, or the newest manifest of a writer, names. Along a chain the leader epoch never
falls. All objects of a partition have the same batch at an offset. No group offset of a cut lies behind its
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.archive.batches import split_batches
from penstock.archive.cuts import Cut
from penstock.archive.documents import Manifest, Page, SegmentEntry, decode, digest
from penstock.archive.errors import ArchiveError
from penstock.archive.manifests import check_manifest
from penstock.archive.names import BACKUP, CUTS, TOPICS, ArchivedPartition, manifest_number
from penstock.archive.segment_object import parse_table
from penstock.model.ids import parse_topic_id
from penstock.records.batch import HEADER, BatchHeader
from penstock.records.record import iter_records
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.object_store import SimulatedStore

__all__ = ["StoreInvariants"]


class _Lost(Violation):
    """The store has lost an object; no writer is at fault."""


class StoreInvariants:
    """Observes a store; `violated` gets the first violation."""

    def __init__(self, store: SimulatedStore, violated: Callable[[Violation], None]) -> None:
        self._store = store
        self._violated = violated
        #: segments that were compared with their entry
        self._checked: dict[str, SegmentEntry] = {}
        #: partition -> base offset -> batch
        self._batches: dict[ArchivedPartition, dict[int, bytes]] = {}
        #: objects that a rollback of the store has taken away
        self.lost: set[str] = set()
        store.on_put, store.on_delete = self._put, self._deleted

    def newest(self, owner: ArchivedPartition, writer: str) -> Manifest | None:
        """The manifest with the highest number, whatever a listing shows."""
        names = [each for each in self._store.objects if each.startswith(owner.manifests(writer))]
        return self._manifest(max(names)) if names else None

    def owners(self) -> list[ArchivedPartition]:
        """The partitions of which a manifest has named a segment."""
        return list(self._batches)

    def archived(self, owner: ArchivedPartition) -> Iterator[tuple[int, bytes]]:
        """Offsets and values of all records that a manifest has named so far, in any order."""
        for batch in self._batches.get(owner, {}).values():
            if not BatchHeader._make(HEADER.unpack_from(batch)).is_control:
                for record in iter_records(batch):
                    yield record.offset, record.value or b""

    # -- events of the store

    def _put(self, name: str) -> None:
        self._observe(self._check_put, name)

    def _deleted(self, name: str) -> None:
        self._observe(self._check_deleted, name)

    def _observe(self, check: Callable[[str], None], name: str) -> None:
        try:
            check(name)
        except _Lost:
            return
        except Violation as e:
            self._violated(e)
        except ArchiveError as e:
            self._violated(Violation("archive damaged", f"{name}: {e}"))

    def _check_put(self, name: str) -> None:
        number = manifest_number(name) if name.startswith(TOPICS) else None
        if number is not None:
            manifest = self._manifest(name)
            newest = self.newest(manifest.owner, manifest.writer)
            # A writer that was asleep may create an old number again: readers never look at it.
            if newest == manifest:
                self._check_manifest(manifest, name)
        elif name.startswith(CUTS):
            self._check_cut(decode(self._content(name, "a cut"), Cut, name), name)

    def _check_manifest(self, manifest: Manifest, name: str) -> None:
        check_manifest(manifest, name)
        previous = manifest.owner.manifest(manifest.writer, manifest.number - 1)
        if previous in self._store.objects and self._manifest(previous).leader_epoch > manifest.leader_epoch:
            raise Violation("leader epoch fell", f"{name} has {manifest.leader_epoch}")
        for entry in self._entries(manifest):
            self._check_segment(manifest.owner, entry, name)

    def _check_segment(self, owner: ArchivedPartition, entry: SegmentEntry, named_by: str) -> None:
        name = owner.object(entry.name)
        data = self._content(name, named_by)
        if self._checked.get(name) == entry:
            return
        if digest(data) != entry.sha256:
            raise Violation("named object differs", f"{named_by} names {name}, which has another SHA-256")
        known = self._batches.setdefault(owner, {})
        for each in split_batches(memoryview(data)[: parse_table(data, len(data), name).log_size], name):
            batch = bytes(each)
            base = BatchHeader._make(HEADER.unpack_from(batch)).base_offset
            if known.setdefault(base, batch) != batch:
                raise Violation("archived batch changed", f"{name} has another batch at offset {base}")
        self._checked[name] = entry

    def _check_cut(self, cut: Cut, name: str) -> None:
        ends: dict[tuple[str, int], int] = {}
        for topic in cut.topics:
            for each in topic.partitions:
                owner = ArchivedPartition(topic.topic, parse_topic_id(topic.topic_id), each.partition)
                manifest = owner.manifest(BACKUP, each.manifest)
                if digest(self._content(manifest, name)) != each.sha256:
                    raise Violation("named object differs", f"{name} names {manifest} with another SHA-256")
                for entry in self._entries(self._manifest(manifest)):
                    self._check_segment(owner, entry, manifest)
                ends[topic.topic, each.partition] = each.end_offset
        for group in cut.groups:
            for committed in group.offsets:
                end = ends.get((committed.topic, committed.partition))
                if end is not None and committed.offset > end:
                    raise Violation(
                        "group offset behind the cut",
                        f"{group.group} has {committed.offset} in {committed.topic}-{committed.partition}, "
                        f"which ends at {end} in {name}",
                    )

    def _check_deleted(self, name: str) -> None:
        if name in self._named():
            raise Violation("named object deleted", name)

    def _named(self) -> set[str]:
        """All objects that a cut, or the newest manifest of a writer, names; these manifests included."""
        kept: dict[str, str] = {}
        for name in self._store.objects:
            if name.startswith(TOPICS) and manifest_number(name) is not None:
                folder = name.rpartition("/")[0]
                kept[folder] = max(kept.get(folder, ""), name)
        names = set(kept.values())
        for name in [each for each in self._store.objects if each.startswith(CUTS)]:
            cut = decode(self._store.objects[name][0], Cut, name)
            for topic in cut.topics:
                for each in topic.partitions:
                    owner = ArchivedPartition(topic.topic, parse_topic_id(topic.topic_id), each.partition)
                    names.add(owner.manifest(BACKUP, each.manifest))
        found = set(names)
        for name in names:
            # What is missing was reported when it was deleted.
            with suppress(Violation):
                manifest = self._manifest(name)
                found.update(manifest.owner.object(page.name) for page in manifest.pages)
                found.update(manifest.owner.object(entry.name) for entry in self._entries(manifest))
        return found

    # -- contents

    def _content(self, name: str, named_by: str) -> bytes:
        if name not in self._store.objects:
            kind = _Lost if name in self.lost else Violation
            raise kind("named object missing", f"{named_by} names {name}")
        return self._store.objects[name][0]

    def _manifest(self, name: str) -> Manifest:
        return decode(self._content(name, "a chain"), Manifest, name)

    def _entries(self, manifest: Manifest) -> Iterator[SegmentEntry]:
        for page in manifest.pages:
            name = manifest.owner.object(page.name)
            yield from decode(self._content(name, "a manifest"), Page, name).segments
        yield from manifest.segments
