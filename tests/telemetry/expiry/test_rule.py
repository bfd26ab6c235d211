"""Which days of samples may go."""

from __future__ import annotations

import pytest

from penstock.telemetry.expiry.rule import KEEP_MIN_MS, Proof, cutoff_day, day_after, expired, span_of_day
from penstock.telemetry.message import parse_timestamp
from penstock.telemetry.queries.spans import DAY_MS

NOON = parse_timestamp("2026-11-19T12:00:00Z")


@pytest.mark.parametrize(
    ("watermark_ms", "clock_ms", "cutoff"),
    [
        # Days before the 20th are wholly older than 30 days; of the 20th only a half is.
        (NOON, NOON, "2026-10-20"),
        # A clock in the next year removes nothing that the samples have not outlived.
        (NOON, NOON + 365 * DAY_MS, "2026-10-20"),
        (NOON + 365 * DAY_MS, NOON, "2026-10-20"),
        # At midnight the day of 30 days ago has just begun.
        (NOON + DAY_MS // 2, NOON + DAY_MS, "2026-10-21"),
        # Before the first window has closed.
        (0, NOON, "1970-01-01"),
    ],
)
def test_the_cutoff_follows_the_earlier_of_watermark_and_clock(
    watermark_ms: int, clock_ms: int, cutoff: str
) -> None:
    assert cutoff_day(watermark_ms, clock_ms, 30 * DAY_MS) == cutoff


def test_less_than_queries_read_is_never_kept() -> None:
    with pytest.raises(AssertionError, match="less than the samples that queries need"):
        cutoff_day(NOON, NOON, KEEP_MIN_MS - 1)


def test_days_before_the_cutoff_expire_in_order() -> None:
    days = ["2026-11-19", "2026-10-19", "2026-10-20", "2026-09-30", "2026-10-19"]
    assert expired(days, "2026-10-20") == ["2026-09-30", "2026-10-19"]


def test_the_span_of_a_day_is_half_open() -> None:
    span = span_of_day("2026-11-19")
    assert span.start <= NOON < span.end == span_of_day(day_after("2026-11-19")).start
    assert span.width == DAY_MS


HOUR = NOON // 3_600_000


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        ({(HOUR, 150): 360, (HOUR, 203): 360}, None),
        (
            {(HOUR, 150): 360, (HOUR, 203): 359},
            "360 samples of field 203 in the hour of 2026-11-19 12:00, rollups_1m counts 359",
        ),
        ({(HOUR, 150): 360}, "360 samples of field 203 in the hour of 2026-11-19 12:00, rollups_1m counts 0"),
        # As many in all, but not of the same hours.
        (
            {(HOUR, 150): 720},
            "360 samples of field 150 in the hour of 2026-11-19 12:00, rollups_1m counts 720",
        ),
    ],
)
def test_a_proof_compares_each_hour_and_field(counted: dict[tuple[int, int], int], words: str | None) -> None:
    samples = {(HOUR, 150): 360, (HOUR, 203): 360}
    proof = Proof.of("2026-11-19", samples, {"rollups_1h": samples, "rollups_1m": counted})
    assert proof == ("2026-11-19", 720, words)
