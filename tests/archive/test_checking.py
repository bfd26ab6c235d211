from __future__ import annotations

import msgspec
import pytest

from penstock.archive import segment_object
from penstock.archive.checking import check_segment, sections_of
from penstock.archive.documents import digest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.segment_object import assemble, parse_table
from penstock.storage.index import OffsetIndex
from tests.archive.logs import OWNER, batch, log_of, sealed


def test_a_segment_of_another_partition_is_refused() -> None:
    entry, data = sealed(log_of(0, 3), owner=OWNER._replace(partition=4))
    with pytest.raises(ArchiveDamaged, match="partition 4 of topic orders"):
        check_segment(data, entry, OWNER, None)


@pytest.mark.parametrize("field", ["base_offset", "next_offset", "missing", "max_timestamp", "leader_epoch"])
def test_a_manifest_with_other_contents_is_refused(field: str) -> None:
    entry, data = sealed(log_of(0, 3))
    other = msgspec.structs.replace(entry, **{field: getattr(entry, field) + 1})
    with pytest.raises(ArchiveDamaged, match=field):
        check_segment(data, other, OWNER, None)


def test_a_wrong_index_with_right_checksums_is_found() -> None:
    """A writer with a defect: all checksums match, the index does not fit the batches."""
    entry, data = sealed(log_of(0, 30, size=1000))
    table = parse_table(data, len(data), "it")
    sections = sections_of(memoryview(data), table, "it")
    del sections[segment_object.BLOCKS]
    sections[segment_object.INDEX] = OffsetIndex().encode()
    wrong = assemble(bytearray(data[: entry.log_size]), sections, table)
    other = msgspec.structs.replace(entry, size=len(wrong), sha256=digest(wrong))
    with pytest.raises(ArchiveDamaged, match="another index"):
        check_segment(wrong, other, OWNER, None)


def test_a_segment_that_does_not_follow_is_found() -> None:
    first, first_data = sealed(log_of(0, 3))
    state = check_segment(first_data, first, OWNER, None).state
    entry, data = sealed([batch(100)], 100)
    with pytest.raises(ArchiveDamaged, match="starts at 100"):
        check_segment(data, entry, OWNER, state)
