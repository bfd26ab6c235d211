"""The mirror of one partition: comparisons with the source, gaps, divergence, the end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.linking.mirror import Answer, Hold, LastBatch, PartitionMirror, Phase, Take
from penstock.model.errors import ErrorCode
from penstock.replication.follower import FetchPosition

EPOCH = 4


@dataclass
class Log:
    end_offset: int = 0
    log_start_offset: int = 0
    open_transactions: int = 0


def batch(base: int, last: int, crc: int = 1) -> LastBatch:
    return LastBatch(base, last, crc, 7, 0, base)


def position(mirror: PartitionMirror, now_ms: int = 0) -> FetchPosition:
    found = mirror.next_fetch(now_ms)
    assert found is not None
    return found


def mirror_of(log: Log, last: LastBatch | None, *, compacted: bool = False) -> PartitionMirror:
    return PartitionMirror(log, last, EPOCH, compacted=compacted)


def verified(end: int = 10) -> tuple[Log, PartitionMirror]:
    """A mirror of 10 records whose last batch was compared."""
    log = Log(end)
    mirror = mirror_of(log, batch(end - 2, end - 1))
    mirror.answered(position(mirror), Answer(high_watermark=end, first=batch(end - 2, end - 1)), 0)
    mirror.progressed(0)
    return log, mirror


def test_an_empty_mirror_takes_the_first_response() -> None:
    log = Log()
    mirror = mirror_of(log, None)
    sent = position(mirror)
    assert sent == FetchPosition(0, -1, EPOCH, -1)
    assert mirror.answered(sent, Answer(high_watermark=5, first=batch(0, 4)), 0) == Take(0)
    log.end_offset = 5
    mirror.appended(batch(0, 4), EPOCH)
    mirror.progressed(3)
    assert (mirror.phase, mirror.caught_up_ms) == (Phase.MIRRORING, 3)
    assert position(mirror, 3) == FetchPosition(5, EPOCH, EPOCH, -1)


def test_the_last_batch_is_compared_before_anything_is_taken() -> None:
    log = Log(10)
    mirror = mirror_of(log, batch(8, 9))
    sent = position(mirror)
    assert sent.fetch_offset == 8
    assert mirror.answered(sent, Answer(high_watermark=12, first=batch(8, 9)), 0) == Take(10)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_response_that_other_partitions_have_filled_compares_nothing(compacted: bool) -> None:
    """It looked like a divergence, and like a batch that compaction has removed."""
    mirror = mirror_of(Log(10), batch(8, 9), compacted=compacted)
    sent = position(mirror)
    assert mirror.answered(sent, Answer(high_watermark=12, is_crowded=True), 0) is Hold.NOTHING
    assert (mirror.phase, mirror.errors) == (Phase.VERIFYING, 0)
    # It is asked for again at once, and compared.
    assert position(mirror) == sent
    other = Answer(high_watermark=12, first=batch(8, 9, crc=2)._replace(producer_id=8), is_crowded=True)
    assert mirror.answered(sent, other, 0) is Hold.NOTHING
    assert mirror.phase is Phase.DIVERGED


def test_another_batch_in_place_of_the_last_one_is_a_divergence() -> None:
    log = Log(10)
    mirror = mirror_of(log, batch(8, 9))
    answer = Answer(high_watermark=12, first=batch(8, 9, crc=2))
    assert mirror.answered(position(mirror), answer, 0) is Hold.NOTHING
    assert mirror.phase is Phase.DIVERGED
    assert "a batch of offsets 8 to 9 in place of the mirrored batch of offsets 8 to 9" in mirror.reason
    assert mirror.next_fetch(1) is None
    # It compares again from time to time, and goes on once the source has the batch again.
    sent = position(mirror, 5000)
    assert sent.fetch_offset == 8
    assert mirror.answered(sent, Answer(high_watermark=12, first=batch(8, 9)), 5000) == Take(10)


def test_compaction_at_the_source_is_no_divergence() -> None:
    """The cleaner rewrites a batch with another checksum, or removes it."""
    for found in (batch(8, 9, crc=2), batch(11, 11), None):
        mirror = mirror_of(Log(10), batch(8, 9), compacted=True)
        mirror.answered(position(mirror), Answer(high_watermark=12, first=found), 0)
        assert mirror.phase is not Phase.DIVERGED, found
    mirror = mirror_of(Log(10), batch(8, 9), compacted=True)
    other = batch(8, 9, crc=2)._replace(base_sequence=77)
    mirror.answered(position(mirror), Answer(high_watermark=12, first=other), 0)
    assert mirror.phase is Phase.DIVERGED


def test_a_deleted_batch_cannot_be_compared() -> None:
    mirror = mirror_of(Log(10), batch(8, 9))
    answer = Answer(high_watermark=12, log_start_offset=10, first=batch(10, 11))
    assert mirror.answered(position(mirror), answer, 0) == Take(10)


def test_a_batch_in_which_the_source_begins_is_compared() -> None:
    """What retention has left of a batch that was replaced begins within the mirrored one."""
    for found, phase in ((batch(6, 9), Phase.VERIFYING), (batch(8, 9), Phase.DIVERGED)):
        mirror = mirror_of(Log(10), batch(6, 9))
        sent = position(mirror)
        assert mirror.answered(sent, Answer(error=ErrorCode.OFFSET_OUT_OF_RANGE), 0) is Hold.LIST_OFFSETS
        mirror.listed(sent, 8, 12, 0)
        sent = position(mirror)
        assert sent.fetch_offset == 8
        mirror.answered(sent, Answer(high_watermark=12, log_start_offset=8, first=found), 0)
        assert mirror.phase is phase


def test_a_shorter_source_is_waited_for() -> None:
    """A new leader learns the high watermark late; one of an unclean election never does."""
    _, mirror = verified()
    sent = position(mirror)
    assert mirror.answered(sent, Answer(high_watermark=7), 0) is Hold.NOTHING
    assert (mirror.phase, mirror.reason) == (
        Phase.RETRYING,
        "the source ends at 7, before the mirrored end 10",
    )
    sent = position(mirror, 5000)
    assert sent.fetch_offset == 8
    mirror.answered(sent, Answer(high_watermark=12, first=batch(8, 9, crc=2)), 5000)
    assert mirror.phase is Phase.DIVERGED


def test_a_source_that_ends_before_the_mirror_is_a_divergence() -> None:
    _, mirror = verified()
    sent = position(mirror)
    assert mirror.answered(sent, Answer(error=ErrorCode.OFFSET_OUT_OF_RANGE), 0) is Hold.LIST_OFFSETS
    mirror.listed(sent, 0, 6, 0)
    assert mirror.phase is Phase.DIVERGED


def test_a_divergence_by_epoch_is_compared_by_checksum() -> None:
    _, mirror = verified()
    mirror.answered(position(mirror), Answer(high_watermark=12, diverges=True), 0)
    assert position(mirror).fetch_offset == 8


def test_a_change_of_the_leader_is_followed_by_a_comparison() -> None:
    _, mirror = verified()
    assert position(mirror).fetch_offset == 10
    mirror.moved(EPOCH)
    assert position(mirror).fetch_offset == 10
    mirror.moved(EPOCH + 3)
    assert position(mirror) == FetchPosition(8, -1, EPOCH + 3, -1)


def test_offsets_that_retention_has_removed_are_counted() -> None:
    log, mirror = verified()
    sent = position(mirror)
    mirror.answered(sent, Answer(error=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    mirror.listed(sent, 25, 40, 0)
    assert mirror.missed == 15
    sent = position(mirror)
    assert sent.fetch_offset == 25
    mirror.answered(sent, Answer(error=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    mirror.listed(sent, 30, 40, 0)
    assert mirror.missed == 20
    sent = position(mirror)
    step = mirror.answered(sent, Answer(high_watermark=40, log_start_offset=30, first=batch(30, 39)), 0)
    assert step == Take(30)
    log.end_offset = 40
    mirror.appended(batch(30, 39), EPOCH)
    mirror.progressed(0)
    assert position(mirror).fetch_offset == 40


def test_a_log_that_starts_within_a_batch_has_the_whole_batch() -> None:
    _, mirror = verified()
    mirror.listed(position(mirror), 25, 40, 0)
    sent = position(mirror)
    assert mirror.answered(
        sent, Answer(high_watermark=40, log_start_offset=25, first=batch(20, 29)), 0
    ) == Take(20)
    assert mirror.missed == 10


def test_an_empty_mirror_misses_nothing_below_the_first_start() -> None:
    mirror = mirror_of(Log(), None)
    sent = position(mirror)
    mirror.listed(sent, 25, 40, 0)
    assert (mirror.missed, position(mirror).fetch_offset) == (0, 25)


def test_errors_pause_the_partition_and_the_pauses_grow() -> None:
    _, mirror = verified()
    now_ms, pauses = 0, []
    for _ in range(9):
        step = mirror.answered(
            position(mirror, now_ms), Answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms
        )
        assert step is Hold.REFRESH
        assert mirror.next_fetch(now_ms) is None
        pauses.append(mirror.retry_at_ms - now_ms)
        now_ms = mirror.retry_at_ms
    assert pauses == sorted(pauses) and pauses[0] == 20 and pauses[-1] == 2000
    assert mirror.errors == 9


def test_a_response_to_an_older_request_is_stale() -> None:
    log, mirror = verified()
    sent = position(mirror)
    log.end_offset = 11
    assert mirror.answered(sent, Answer(high_watermark=12, first=batch(10, 11)), 0) is Hold.STALE


def test_a_promoted_mirror_stops_once_it_has_everything() -> None:
    log, mirror = verified()
    mirror.stop_when_complete(True)
    assert mirror.answered(position(mirror), Answer(high_watermark=12, first=batch(10, 11)), 0) == Take(10)
    log.end_offset = 12
    mirror.appended(batch(10, 11), EPOCH)
    # The source had more by then.
    mirror.source_end = 13
    mirror.progressed(0)
    assert str(mirror.phase) == "mirroring"
    assert mirror.answered(position(mirror), Answer(high_watermark=13, first=batch(12, 12)), 0) == Take(12)
    log.end_offset = 13
    mirror.appended(batch(12, 12), EPOCH)
    mirror.progressed(0)
    assert str(mirror.phase) == "stopped"
    assert mirror.next_fetch(0) is None
    mirror.stop_when_complete(False)
    assert position(mirror).fetch_offset == 12


def test_a_stopped_mirror_goes_on_when_the_source_has_another_leader() -> None:
    """After unclean elections that one may have records which the leader before it had lost."""
    _, mirror = verified()
    mirror.stop_when_complete(True)
    mirror.answered(position(mirror), Answer(high_watermark=10), 0)
    mirror.progressed(0)
    assert mirror.phase is Phase.STOPPED
    mirror.moved(EPOCH)
    assert mirror.next_fetch(0) is None
    mirror.moved(EPOCH + 1)
    assert position(mirror) == FetchPosition(8, -1, EPOCH + 1, -1)
    mirror.answered(position(mirror), Answer(high_watermark=10, first=batch(8, 9)), 0)
    mirror.progressed(0)
    assert str(mirror.phase) == "stopped"


def test_a_refused_topic_is_reported_once() -> None:
    _, mirror = verified()
    for _ in range(3):
        mirror.refuse("the source has no topic orders")
    assert (mirror.phase, mirror.errors) == (Phase.DIVERGED, 1)


def test_a_mirror_without_news_has_everything_until_the_last_response() -> None:
    """Responses leave it out while nothing is written: its lag began with the hour before the source died."""
    _, mirror = verified()
    assert mirror.caught_up_ms == 0
    mirror.was_idle(3_600_000)
    mirror.failed("the source is gone", 3_600_500)
    assert mirror.caught_up_ms == 3_600_000
    mirror.was_idle(3_700_000)
    assert mirror.caught_up_ms == 3_600_000


def test_a_mirror_that_lacks_records_is_not_idle() -> None:
    _, mirror = verified()
    mirror.answered(position(mirror), Answer(high_watermark=20, first=batch(10, 19)), 50)
    mirror.was_idle(100)
    assert mirror.caught_up_ms == 0


def test_a_mirror_does_not_stop_while_transactions_are_open() -> None:
    """The source may commit them after its last record: its marker is to be mirrored."""
    log, mirror = verified()
    mirror.stop_when_complete(True, 10)
    log.open_transactions = 1
    mirror.progressed(1)
    assert (mirror.phase, mirror.reason) == (Phase.MIRRORING, "1 transactions are open at the source")
    log.open_transactions = 0
    mirror.progressed(2)
    assert (mirror.phase, mirror.reason) == (Phase.STOPPED, "")
