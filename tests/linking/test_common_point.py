"""The last point that two logs have in common, by leader epochs and checksums."""

from __future__ import annotations

from random import Random

import pytest

from penstock.linking.common_point import CommonPoint, Range
from penstock.linking.mirror import LastBatch
from tests.amounts import amount


def batch(base: int, last: int, crc: int) -> LastBatch:
    return LastBatch(base, last, crc, 7, 0, base)


def log(*crcs: int, start: int = 0, size: int = 10) -> list[LastBatch]:
    return [batch(start + n * size, start + n * size + size - 1, crc) for n, crc in enumerate(crcs)]


def bounds(batches: list[LastBatch], start: int | None = None) -> Range:
    if not batches:
        return Range(0, 0)
    return Range(batches[0].base_offset if start is None else start, batches[-1].last_offset + 1)


def compare(
    own: list[LastBatch],
    source: list[LastBatch],
    epochs: tuple[int, ...] = (0,),
    mirrored: int | None = None,
    at_once: int = 2,
) -> tuple[int, int]:
    """The common point, and the number of comparisons."""
    point, asked = CommonPoint(bounds(own), bounds(source), epochs, mirrored), 0
    while (probe := point.next) is not None:
        asked += 1
        assert asked < 100, "the comparison does not end"
        mine = [each for each in own if each.last_offset >= probe.offset][:at_once]
        theirs = [each for each in source if each.last_offset >= probe.offset][:at_once]
        point.compared(mine, theirs)
    return point.offset, asked


def test_the_tail_behind_the_mirrored_end_is_compared_batch_by_batch() -> None:
    """A batch that both have by chance, behind others that differ, is not in common."""
    own, source = log(1, 2, 3, 4, 5), log(1, 2, 8, 9, 5)
    assert compare(own, source, mirrored=20)[0] == 20
    assert compare(log(1, 2, 3, 4), log(1, 2, 3, 9), mirrored=20)[0] == 30


def test_the_mirrored_part_takes_two_comparisons_for_each_leader_epoch() -> None:
    own, source = log(*range(50), 777), log(*range(50), 888, 889)
    assert compare(own, source, epochs=(0, 200), mirrored=500) == (500, 4)
    # Without a word of the source about what it mirrored, every batch is compared.
    assert compare(own, source, epochs=(0, 200)) == (500, 26)


def test_records_that_the_log_itself_has_lost_end_the_common_part() -> None:
    """An unclean election: from the start of that leader epoch on, the log has others than the mirror."""
    own, source = log(1, 2, 70, 80, 5), log(1, 2, 3, 4, 5)
    assert compare(own, source, epochs=(0, 20), mirrored=50)[0] == 20


@pytest.mark.parametrize(
    ("own", "source", "common"),
    [
        ([], [], 0),
        ([], log(1), 0),
        (log(1), [], 0),
        (log(1), log(1, 2), 10),
        (log(1, 2), log(1), 10),
        (log(1), log(2), 0),
        # The source begins where the log ends: nothing can be compared.
        (log(1, 2), log(3, start=20), 0),
        (log(2, 3, start=10), log(1, 2, 4), 20),
        (log(1, 2, 3), log(2, 3, start=10), 30),
        (log(1, 2, 3), log(9, 3, start=10), 0),
        # A gap of compaction on one side.
        ([batch(0, 9, 1), batch(20, 29, 3)], log(1, 2, 3), 10),
        (log(1, 2, 3), [batch(0, 9, 1), batch(20, 29, 3)], 10),
    ],
)
def test_logs_of_other_ranges_are_compared_where_both_have_records(
    own: list[LastBatch], source: list[LastBatch], common: int
) -> None:
    assert compare(own, source, mirrored=own[0].base_offset + 10 if own else 0)[0] == common


def test_equal_batches_behind_the_mirrored_part_need_all_that_is_before_them() -> None:
    """Retention has removed what was different: the rest may be the same by chance."""
    own, source = log(3, 4, start=20), log(1, 9, 3, 4)
    assert compare(own, source, mirrored=10)[0] == 0
    assert compare(own, source, mirrored=20)[0] == 40


def test_a_log_that_has_nothing_in_common_begins_where_the_source_does() -> None:
    assert compare(log(7, start=50), log(1, 2))[0] == 0
    assert CommonPoint(Range(50, 50), Range(10, 30), (), None).offset == 10


def test_no_point_is_common_that_is_not() -> None:
    """Against an oracle: everything before the point is the same, whatever the histories are."""
    for seed in range(amount(500)):
        random = Random(seed)
        shared = [random.randrange(2) for _ in range(random.randrange(8))]
        mirrored = 10 * random.randrange(len(shared) + 1)
        own_tail = [random.randrange(2) for _ in range(random.randrange(5))]
        source_tail = [random.randrange(2) for _ in range(random.randrange(5))]
        own, source = log(*shared, *own_tail), log(*shared, *source_tail)
        epochs = {0, *(10 * random.randrange(10) for _ in range(3))}
        known = random.choice([None, mirrored])
        found, _ = compare(own, source, tuple(sorted(epochs)), known, random.randrange(1, 4))
        same = 0
        for mine, other in zip(own, source, strict=False):
            if mine != other:
                break
            same = mine.last_offset + 1
        assert found == same, f"seed {seed}"
