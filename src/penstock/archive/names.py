"""The names of an archive's objects, relative to the archive's address.

    archive.json                                                    the archive's id and version
    topics/TOPIC/TOPIC_ID/PARTITION/OFFSET-EPOCH-RANDOM.segment     a sealed segment
    topics/TOPIC/TOPIC_ID/PARTITION/OFFSET-EPOCH-RANDOM.page        a list of older segments
    topics/TOPIC/TOPIC_ID/PARTITION/WRITER/NUMBER.manifest          a manifest; the highest number counts
    cuts/TIME-RANDOM.cut                                            a moment that can be restored
    collections/TIME-RANDOM.candidates                              objects that no document named

Segments and pages have the leader epoch of their writer and 16 random characters in their names: two writers
never choose the same one. Names are made of letters, digits, '.', '_' and '-', so all stores accept them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.model.ids import TopicId, format_topic_id, parse_topic_id

__all__ = [
    "BACKUP",
    "COLLECTIONS",
    "CUTS",
    "ROOT",
    "TIER",
    "TOPICS",
    "ArchivedPartition",
    "base_offset_of",
    "candidates_name",
    "candidates_time_ms",
    "cut_name",
    "cut_time_ms",
    "manifest_number",
    "object_name",
    "parse_partition",
]

ROOT: Final = "archive.json"
TOPICS: Final = "topics/"
CUTS: Final = "cuts/"
COLLECTIONS: Final = "collections/"

#: the writers of manifests: leaders of partitions, and `penstock backup`
TIER: Final = "tier"
BACKUP: Final = "backup"
WRITERS: Final = frozenset({TIER, BACKUP})

SEGMENT: Final = "segment"
PAGE: Final = "page"
_MANIFEST: Final = ".manifest"
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CUT: Final = re.compile(r"(\d{8}T\d{6}\.\d{3})Z-[0-9a-f]{16}\.cut")
_CANDIDATES: Final = re.compile(r"(\d{8}T\d{6}\.\d{3})Z-[0-9a-f]{16}\.candidates")


class ArchivedPartition(NamedTuple):
    """A partition of an archive: the folder of its objects."""

    topic: str
    topic_id: TopicId
    partition: int

    @property
    def folder(self) -> str:
        return f"{TOPICS}{self.topic}/{format_topic_id(self.topic_id)}/{self.partition}/"

    def manifests(self, writer: str) -> str:
        """The prefix of the manifests of a writer."""
        assert writer in WRITERS
        return f"{self.folder}{writer}/"

    def manifest(self, writer: str, number: int) -> str:
        return f"{self.manifests(writer)}{number:020d}{_MANIFEST}"

    def object(self, name: str) -> str:
        """The full name of a segment or a page, whose name in documents is relative to the folder."""
        return f"{self.folder}{name}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def object_name(base_offset: int, leader_epoch: int, random: bytes, kind: str) -> str:
    """The name of a new segment or page in the folder of its partition; `random` has 8 bytes."""
    assert len(random) == 8 and kind in (SEGMENT, PAGE)
    return f"{base_offset:020d}-{leader_epoch}-{random.hex()}.{kind}"


def base_offset_of(name: str, kind: str = SEGMENT) -> int | None:
    """The base offset in the name of a segment or page, relative to its folder; None for another object."""
    digits = name.partition("-")[0]
    is_kind = name.endswith(f".{kind}") and len(digits) == 20 and digits.isdigit()
    return int(digits) if is_kind else None


def parse_partition(name: str) -> tuple[ArchivedPartition, str] | None:
    """The partition of a full name, and the rest of the name; None if it is in no partition's folder."""
    parts = name.split("/", 4)
    if len(parts) != 5 or parts[0] + "/" != TOPICS or not _TOPIC.fullmatch(parts[1]):
        return None
    try:
        topic_id, partition = parse_topic_id(parts[2]), int(parts[3])
    except ValueError:
        return None
    return ArchivedPartition(parts[1], topic_id, partition), parts[4]


def manifest_number(name: str) -> int | None:
    """The number of a manifest from its name; None for another object."""
    last = name.rpartition("/")[2]
    digits = last.removesuffix(_MANIFEST)
    return int(digits) if last.endswith(_MANIFEST) and len(digits) == 20 and digits.isdigit() else None


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{time_ms % 1000:03d}Z"


def cut_name(time_ms: int, random: bytes) -> str:
    """The name of a cut; names sort by time."""
    assert len(random) == 8
    return f"{CUTS}{_time(time_ms)}-{random.hex()}.cut"


def cut_time_ms(name: str) -> int | None:
    """The time in the name of a cut; None for another object."""
    match = _CUT.fullmatch(name.removeprefix(CUTS))
    return None if match is None else _moment_ms(match[1])


def _moment_ms(text: str) -> int | None:
    try:
        moment = datetime.strptime(text, "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def candidates_name(time_ms: int, random: bytes) -> str:
    assert len(random) == 8
    return f"{COLLECTIONS}{_time(time_ms)}-{random.hex()}.candidates"


def candidates_time_ms(name: str) -> int | None:
    """The time in the name of a list of candidates; None for another object."""
    match = _CANDIDATES.fullmatch(name.removeprefix(COLLECTIONS))
    return None if match is None else _moment_ms(match[1])
