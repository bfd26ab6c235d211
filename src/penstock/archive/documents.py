"""The JSON documents of an archive: its root, manifests, and pages of manifests.

A document is two lines: a JSON object, and `{"sha256":"…"}` of the first line with its newline. So a reader
that knows only the name of a document can tell that it is whole. Every document has the fields `format`,
`version` and `kind`. A version above `VERSION` is refused with one line. Within a version, readers ignore
fields that they do not know. Documents are immutable: a manifest is replaced by the manifest with the next
number.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.names import ArchivedPartition
from penstock.encryption import PLAIN, version_of
from penstock.model.ids import parse_topic_id
from penstock.ports import Buffer

__all__ = [
    "FORMAT",
    "VERSION",
    "Document",
    "Manifest",
    "Page",
    "PageEntry",
    "Root",
    "SegmentEntry",
    "check_version",
    "decode",
    "digest",
    "encode",
]

FORMAT: Final = "penstock-archive"
VERSION: Final = 1


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of all documents."""

    KIND: ClassVar[str] = ""

    format: str = FORMAT
    version: int = VERSION
    kind: str


class Root(Document, frozen=True, kw_only=True):
    """`archive.json`: written once, with a conditional put."""

    KIND = "archive"

    kind: str = "archive"
    #: random: copies of an archive have the same one
    id: str
    created_ms: int


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A segment: the object, and the offsets and timestamps of its batches."""

    #: relative to the folder of the partition
    name: str
    #: of the object
    size: int
    sha256: str
    #: bytes of batches, from the start of the object on
    log_size: int
    base_offset: int
    #: the offset behind the segment; the next segment starts there
    next_offset: int
    #: the smallest and the largest timestamp of the batches; -1 if there is none
    min_timestamp: int
    max_timestamp: int
    #: of the last batch
    leader_epoch: int
    #: offsets in [base_offset, next_offset) that are in no batch: 0 unless the log is compacted
    missing: int = 0
    #: the id of the key that encrypts the object; none is written by version 1
    key_id: str | None = None


class PageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A page: an object with the entries of older segments."""

    name: str
    size: int
    sha256: str
    base_offset: int
    next_offset: int
    max_timestamp: int
    #: number of segments, and bytes of their batches
    segments: int
    log_size: int


class Page(Document, frozen=True, kw_only=True):
    """The segments of a page, in the order of their offsets."""

    KIND = "page"

    kind: str = "page"
    topic: str
    topic_id: str
    partition: int
    segments: tuple[SegmentEntry, ...]


class Manifest(Document, frozen=True, kw_only=True):
    """All segments of one partition at one moment: those of the pages, then `segments`."""

    KIND = "manifest"

    kind: str = "manifest"
    #: `Root.id`
    archive: str
    topic: str
    topic_id: str
    partition: int
    #: "tier" or "backup"
    writer: str
    number: int
    #: the SHA-256 of the manifest before this one; "" for number 0
    previous: str
    #: random: two writers never write the same bytes
    id: str
    #: of the writer; never falls along the chain
    leader_epoch: int
    written_ms: int
    #: the first offset that readers see: the first segment may start below it
    log_start_offset: int
    #: whether compaction may have removed offsets
    compacted: bool = False
    #: of a backup: whether leaders copy the partition to the same archive, so that it has manifests of `tier`
    tiered: bool = False
    pages: tuple[PageEntry, ...] = ()
    segments: tuple[SegmentEntry, ...] = ()

    @property
    def owner(self) -> ArchivedPartition:
        return ArchivedPartition(self.topic, parse_topic_id(self.topic_id), self.partition)

    @property
    def base_offset(self) -> int:
        """The first offset of the first segment; the log start without segments."""
        first = self.pages[0] if self.pages else self.segments[0] if self.segments else None
        return self.log_start_offset if first is None else first.base_offset

    @property
    def next_offset(self) -> int:
        """The offset behind the last segment; the log start without segments."""
        if self.segments:
            return self.segments[-1].next_offset
        return self.pages[-1].next_offset if self.pages else self.log_start_offset

    @property
    def log_size(self) -> int:
        return sum(page.log_size for page in self.pages) + sum(entry.log_size for entry in self.segments)


DocumentT = TypeVar("DocumentT", bound=Document)
_DECODERS: dict[type[Document], msgspec.json.Decoder[Any]] = {}


def encode(document: Document) -> bytes:
    line = msgspec.json.encode(document) + b"\n"
    return line + _seal(line)


def _seal(line: bytes) -> bytes:
    return b'{"sha256":"%s"}\n' % digest(line).encode()


def digest(data: Buffer) -> str:
    """The SHA-256 of an object, as documents have it."""
    return sha256(data).hexdigest()


def decode(data: bytes, kind: type[DocumentT], name: str) -> DocumentT:
    """The document in an object; `name` is for errors."""
    if version_of(data) != PLAIN:
        raise ArchiveRefused(
            "the archive is encrypted: name the file with its keys with --encryption-keys, or the config "
            "file of a broker with --encryption-config; a broker needs penstock.encryption.keys"
        )
    line = data[: data.find(b"\n") + 1]
    check_version(line, name)
    if data[len(line) :] != _seal(line):
        raise ArchiveDamaged(f"{name} is damaged: its second line is not the SHA-256 of its first")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        document: DocumentT = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ArchiveDamaged(f"{name} is damaged: {e}") from e
    if document.kind != kind.KIND:
        raise ArchiveDamaged(f"{name} has the kind {document.kind!r}, not {kind.KIND!r}")
    return document


class _Version(msgspec.Struct, frozen=True):
    format: str
    version: int


_VERSION: Final = msgspec.json.Decoder(_Version)


def check_version(line: bytes, name: str) -> None:
    """Refuse a document of another format, or of a newer version."""
    try:
        found = _VERSION.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ArchiveDamaged(f"{name} is no document of an archive: {e}") from e
    if found.format != FORMAT:
        raise ArchiveDamaged(f"{name} has the format {found.format!r}, not {FORMAT!r}")
    if found.version > VERSION:
        raise ArchiveRefused(
            f"{name} has version {found.version} of the archive format, "
            f"this Penstock reads {VERSION}: upgrade it"
        )
    if found.version < 1:
        raise ArchiveDamaged(f"{name} has version {found.version}")
