"""A checksum of the cluster image, by which nodes notice that their images differ.

The checksum is the sum, modulo 2**64, of a hash of every record that a snapshot of the image would have. It
does not depend on the order of the records. Two nodes that have applied the metadata log up to the same
offset must have the same checksum, whether they replayed records or loaded a snapshot.

Versions of the software may write records with other fields. So a checksum carries a number that stands for
the layout of the records, and checksums of different layouts are not compared.

Owned by: `ImageCheck` in the broker computes the checksum, the active controller compares (`Checksums`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from zlib import crc32

from penstock.metadata.image import ClusterImage
from penstock.metadata.snapshot import snapshot_records
from penstock.wire.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    encode_metadata_record,
)
from penstock.wire.schema import Field, Struct
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)

__all__ = ["Checksums", "ImageChecksum", "checksum_steps", "image_checksum", "layout", "signed"]

_SUMMED: Final[tuple[type[Struct], ...]] = (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
    DelegationTokenRecord,
)
_MODULUS: Final = 1 << 64
_HASH_BYTES: Final = 8
#: checksums needed for a comparison
_COMPARED_MIN: Final = 2
#: heartbeats with the same checksum before the controller decides without a majority
_REPORTS_MIN: Final = 5


class ImageChecksum(NamedTuple):
    """The checksum of an image that holds everything below `end_offset` of the metadata log."""

    end_offset: int
    checksum: int
    layout: int


def checksum_steps(image: ClusterImage) -> Iterator[int]:
    """The sum so far, after each record: a caller may pause, as long as the image does not change."""
    total = 0
    for record in snapshot_records(image):
        digest = blake2b(encode_metadata_record(record), digest_size=_HASH_BYTES).digest()
        total = (total + int.from_bytes(digest, "big")) % _MODULUS
        yield total


def image_checksum(image: ClusterImage, end_offset: int) -> ImageChecksum:
    *_, total = [0, *checksum_steps(image)]
    return ImageChecksum(end_offset, signed(total), layout())


def signed(total: int) -> int:
    """As the wire has it: 64 bits with a sign."""
    return total - _MODULUS if total >= _MODULUS // 2 else total


@cache
def layout() -> int:
    """A number that changes with the fields of the records."""
    described = repr([(record.__name__, _described(record)) for record in _SUMMED])
    return crc32(described.encode()) & 0x7FFFFFFF


def _described(struct: Any) -> list[tuple[object, ...]]:
    return [_described_field(field) for field in struct.fields]


def _described_field(field: Field) -> tuple[object, ...]:
    of = field.of
    if of is not None:
        of = _described_field(of) if isinstance(of, Field) else _described(of)
    return (field.name, field.kind, field.versions, field.nullable, field.tag, of)


class Checksums:
    """The latest checksum of every node, in the active controller's memory."""

    __slots__ = ("_known", "_times", "_votes")

    def __init__(self) -> None:
        self._known: dict[int, ImageChecksum] = {}
        #: how often each node has reported the same
        self._times: Counter[int] = Counter()
        #: by offset and layout: how many nodes have each checksum, so that no heartbeat has to count all
        self._votes: dict[tuple[int, int], Counter[int]] = {}

    def heard(self, node: int, found: ImageChecksum) -> None:
        before = self._known.get(node)
        self._times[node] = self._times[node] + 1 if before == found else 1
        if before == found:
            return
        if before is not None:
            votes = self._votes[before.end_offset, before.layout]
            votes[before.checksum] -= 1
            if not votes.total():
                del self._votes[before.end_offset, before.layout]
        self._votes.setdefault((found.end_offset, found.layout), Counter())[found.checksum] += 1
        self._known[node] = found

    def expected(self, node: int, controller: int, registered: Iterable[int]) -> ImageChecksum | None:
        """The expected checksum of `node` at its offset; None if there is nothing to compare with.

        The majority of the nodes at that offset decides. Where there is none, the controller decides, but not
        before other nodes had the time to report.
        """
        found = self._known[node]
        where = found.end_offset, found.layout
        same = Counter(self._votes[where])
        for stranger in self._known.keys() - registered - {controller}:
            known = self._known[stranger]
            if (known.end_offset, known.layout) == where:
                same[known.checksum] -= 1
        if same.total() < _COMPARED_MIN:
            return None
        value, votes = same.most_common(1)[0]
        if 2 * votes > same.total():
            return found._replace(checksum=value)
        own = self._known.get(controller)
        is_there = own is not None and (own.end_offset, own.layout) == where
        return own if is_there and self._times[node] >= _REPORTS_MIN else None
