"""Merging copies of a metadata log: every record from a copy in which it is intact, or a refusal."""

from __future__ import annotations

from random import Random

import pytest

from penstock.broker.node.metadata_copies import Copy, read_copy
from penstock.broker.node.metadata_merge import CopiesDiverge, merge
from penstock.storage.memory import MemoryFiles
from tests.amounts import amount
from tests.broker.metadata_logs import FOLDER, metadata_log, positions, write


def copy_of(node: int, log: bytes, committed: int = 0) -> Copy:
    copy = read_copy(write(MemoryFiles(), log), node, FOLDER)
    copy.committed = committed
    return copy


def merged(*logs: bytes) -> bytes:
    result = merge([copy_of(node, log) for node, log in enumerate(logs, 1)])
    assert result.missing is None
    return b"".join(piece.data for piece in result.pieces)


def test_three_copies_that_are_damaged_at_different_places_are_one_whole() -> None:
    random = Random(11)
    for _ in range(amount(200)):
        epochs = random.randint(1, 6)
        log = metadata_log(random.randint(6, 20), epochs=epochs)
        starts = [*positions(log), len(log)]
        damaged = []
        for victim in random.sample(range(len(starts) - 1), 3):
            changed = bytearray(log)
            for _ in range(random.randint(1, 3)):
                changed[random.randrange(starts[victim], starts[victim + 1])] ^= 1 << random.randrange(8)
            damaged.append(bytes(changed))
        if log in damaged:
            continue
        assert merged(*damaged) == log


def test_a_hole_in_every_copy_is_named() -> None:
    log = metadata_log(10)
    at = positions(log)[4] + 70
    broken = log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]
    result = merge([copy_of(node, broken) for node in (1, 2, 3)])
    offsets = [piece.offset for piece in copy_of(1, log).pieces.values()]
    assert result.missing == (offsets[4], offsets[5])
    assert result.end_offset == offsets[4] and result.known_end > offsets[5]
    assert result.voter_ids() == {1, 2, 3}


def test_committed_records_that_no_copy_has_are_missing() -> None:
    log = metadata_log(6)
    end = copy_of(1, log).end.offset
    assert merge([copy_of(1, log, committed=end)]).missing is None
    assert merge([copy_of(1, log, committed=end + 3)]).missing == (end, end + 3)


def test_the_log_of_the_later_epoch_decides_and_an_uncommitted_tail_is_dropped() -> None:
    common = metadata_log(4)
    old = metadata_log(9)
    assert old.startswith(common)
    new = metadata_log(6, epochs=2)
    common_end = next(n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    assert common_end > 0
    assert merged(old, new) == new


def test_an_older_tail_fills_no_hole_of_a_later_epoch() -> None:
    """The batch at that offset is another one, which no copy has: taking it would make up metadata."""
    new, old = metadata_log(6, epochs=3), metadata_log(6)
    starts = positions(new)
    # The batch before the last epoch, and its header: nothing tells which one it was.
    broken = new[: starts[3]] + bytes(starts[4] - starts[3]) + new[starts[4] :]
    result = merge([copy_of(1, broken), copy_of(2, old)])
    assert result.missing is not None


def test_committed_offsets_that_differ_are_refused() -> None:
    one, other = metadata_log(6), metadata_log(8, value=b"other", epochs=2)
    end = copy_of(1, one).end.offset
    with pytest.raises(CopiesDiverge, match="is committed in"):
        merge([copy_of(1, one, committed=end), copy_of(2, other)])
