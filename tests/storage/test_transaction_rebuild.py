"""Producers and transaction indexes after damaged batches were replaced, and after a lost index."""

from __future__ import annotations

import pytest

from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.index_proofs import prove_indexes
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import scan
from penstock.storage.scrub import repair_target, repaired
from penstock.storage.segment_files import LOG, SNAPSHOT, TRANSACTION_INDEX, file_name
from penstock.storage.transaction_rebuild import (
    TransactionRebuild,
    has_lost_batches,
    producer_ends,
)
from tests.storage.logs import PATH, append_marker, batch, flush, idempotent, marker, open_log

SEGMENT = f"{PATH}/{file_name(0)}{LOG}"
INDEX = f"{PATH}/{file_name(0)}{TRANSACTION_INDEX}"
#: producers 1 and 2 in two segments; each entry is a batch: a producer and what it does
HISTORY = [
    *[(1, "write"), (2, "write"), (1, "write"), (1, "abort"), (1, "write"), (2, "commit"), (1, "commit")],
    (1, "roll"),
    *[(2, "write"), (2, "abort"), (1, "write")],
]
SEALED_BATCHES = 7


def written(files: MemoryFiles) -> Log:
    log = open_log(files)
    sequences = {1: 0, 2: 0}
    for producer_id, action in HISTORY:
        if action == "write":
            sent = idempotent(sequences[producer_id], producer_id=producer_id, transactional=True)
            log.append(sent, 0, guard=NO_VERIFICATION)
            sequences[producer_id] += 1
        elif action == "roll":
            log.roll()
        else:
            append_marker(log, marker(action == "commit", producer_id=producer_id))
    log.advance_high_watermark(log.end_offset)
    return log


def seen(log: Log) -> tuple[object, ...]:
    """Everything that readers and producers notice of transactions."""
    aborted = [log.aborted_transactions(0, upper) for upper in range(1, log.end_offset + 1)]
    states = {p: (s.epoch, s.transaction_start, s.batches) for p, s in sorted(log.producers.items())}
    return aborted, log.last_stable_offset, states, log.producers.ongoing


def crashed_with_damage(files: MemoryFiles, nth: int, *, keep_index: bool) -> tuple[Log, bytes]:
    """The log after a crash and the damage of one sealed batch, and the bytes that the file should have."""
    log = written(files)
    flush(log)
    log.close(clean=False)
    file = files.open(SEGMENT)
    healthy = file.pread(file.size(), 0)
    position, _ = list(scan(file, 0, file.size()))[nth]
    file.pwrite(bytes([healthy[position + 30] ^ 8]), position + 30)
    if not keep_index:
        files.remove(INDEX)
    # The segment is walked from its start: its end was the recovery point.
    opened = open_log(files, recovery_point=SEALED_BATCHES)
    opened.advance_high_watermark(opened.end_offset)
    return opened, healthy


def repair(files: MemoryFiles, log: Log, healthy: bytes) -> None:
    (damage,) = log.recovery.corruption
    file = repair_target(log, damage)
    assert file is not None
    end = damage.position + damage.size
    file.pwrite(healthy[damage.position : end], damage.position)
    assert has_lost_batches(files, damage.path, damage.position, end, producer_ends(log))
    rebuild = TransactionRebuild(log, files, damage.first_offset, damage)
    rebuild.replay(rebuild.remaining(log), rebuild.before(log))
    assert rebuild.is_current(log)
    assert rebuild.is_close(log)
    rebuild.install(log)
    repaired(log, damage)


@pytest.mark.parametrize("keep_index", [True, False], ids=["index", "no-index"])
@pytest.mark.parametrize("nth", range(SEALED_BATCHES))
def test_transactions_are_as_before_the_damage(nth: int, keep_index: bool) -> None:
    expected = seen(written(MemoryFiles()))
    files = MemoryFiles()
    log, healthy = crashed_with_damage(files, nth, keep_index=keep_index)
    repair(files, log, healthy)
    assert seen(log) == expected
    # The next start reads the same from the disk.
    log.close()
    again = open_log(files, clean=True)
    again.restore_high_watermark(again.end_offset)
    assert seen(again) == expected


def test_a_crash_after_the_repair_keeps_its_result() -> None:
    expected = seen(written(MemoryFiles()))
    files = MemoryFiles()
    log, healthy = crashed_with_damage(files, 3, keep_index=False)
    repair(files, log, healthy)
    log.close(clean=False)
    again = open_log(files, recovery_point=log.end_offset)
    again.advance_high_watermark(again.end_offset)
    assert seen(again) == expected


@pytest.mark.parametrize("nth", [0, 3, 6])
def test_recovery_keeps_the_entries_of_transactions_that_damage_hides(nth: int) -> None:
    """Readers of committed records read no aborted record while the range waits for its repair."""
    log, _ = crashed_with_damage(MemoryFiles(), nth, keep_index=True)
    assert log.aborted_transactions(0, 2) == [(1, 0)]
    assert (1, 4) not in log.aborted_transactions(4, 7)


def test_a_truncation_during_the_replay_is_noticed_and_leaves_no_files() -> None:
    files = MemoryFiles()
    log, _ = crashed_with_damage(files, 3, keep_index=False)
    (damage,) = log.recovery.corruption
    rebuild = TransactionRebuild(log, files, damage.first_offset, damage)
    rebuild.replay(rebuild.remaining(log), rebuild.before(log))
    log.truncate_to(log.end_offset - 1)
    assert not rebuild.is_current(log)
    rebuild.abandon()
    assert not [name for name in files.listdir(PATH) if name.endswith(".tmp")]


def test_appends_during_the_replay_are_replayed_before_the_end() -> None:
    files = MemoryFiles()
    log, healthy = crashed_with_damage(files, 3, keep_index=False)
    (damage,) = log.recovery.corruption
    file = repair_target(log, damage)
    assert file is not None
    file.pwrite(healthy[damage.position : damage.position + damage.size], damage.position)
    rebuild = TransactionRebuild(log, files, damage.first_offset, damage)
    rebuild.replay(rebuild.remaining(log), rebuild.before(log))
    append_marker(log, marker(False, producer_id=1))
    log.roll()
    log.append(batch(), 0)
    log.append(idempotent(0, producer_id=3), 0)
    log.advance_high_watermark(log.end_offset)
    rebuild.install(log)
    repaired(log, damage)
    assert log.aborted_transactions(0, log.end_offset) == [(1, 0), (2, 7), (1, 9)]
    assert log.last_stable_offset == log.end_offset
    assert log.producers.states[3].last_sequence == 0
    # The snapshot of the roll was written without the repaired batches.
    log.close(clean=False)
    files.open(f"{PATH}/{file_name(11)}{SNAPSHOT}")
    again = open_log(files, recovery_point=log.end_offset)
    assert not again.producers.ongoing


@pytest.mark.parametrize("size", [None, 0, 20])
def test_an_index_that_was_lost_before_a_clean_start_is_rebuilt(size: int | None) -> None:
    expected = seen(written(MemoryFiles()))
    files = MemoryFiles()
    log = written(files)
    log.close()
    if size is None:
        files.remove(INDEX)
    else:
        files.open(INDEX).truncate(size)
    again = open_log(files, clean=True)
    again.restore_high_watermark(again.end_offset)
    prove_indexes(again, files, [0, 1, 7, 1])
    assert seen(again) == expected
    assert again.recovery.transactions_rebuilt_from == 0
    assert files.size(INDEX) == 34


def test_an_index_that_is_complete_is_left_alone() -> None:
    files = MemoryFiles()
    log = written(files)
    log.close()
    again = open_log(files, clean=True)
    prove_indexes(again, files, [0, 1, 7, 1])
    assert again.recovery.transactions_rebuilt_from == -1
