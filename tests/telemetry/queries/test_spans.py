"""Spans, and the windows that answer for them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.queries.spans import (
    HOUR_MS,
    MINUTE_MS,
    ROLLUPS,
    Level,
    Piece,
    Span,
    cover,
    instant,
    milliseconds,
)

HOURS, MINUTES, TENS = ROLLUPS
times = st.integers(0, 30 * HOUR_MS)


@given(start=times, width=times, ready=st.tuples(times, times))
def test_pieces_are_the_span_without_gaps(start: int, width: int, ready: tuple[int, int]) -> None:
    span = Span(start, start + width)
    pieces = cover(span, ROLLUPS, {HOURS.table: ready[0], MINUTES.table: ready[1]})
    assert sum(piece.span.width for piece in pieces) == width
    assert all(one.span.end == next.span.start for one, next in itertools.pairwise(pieces))
    if pieces:
        assert (pieces[0].span.start, pieces[-1].span.end) == span
    for level, until in zip((HOURS, MINUTES), ready, strict=True):
        for piece in pieces:
            if piece.level is level:
                assert piece.span.start % level.width_ms == piece.span.end % level.width_ms == 0
                assert piece.span.end <= until
    # No narrow window lies within a wider one.
    whole_hours = min(span.end, ready[0]) // HOUR_MS - -(-span.start // HOUR_MS)
    reported = sum(piece.span.width for piece in pieces if piece.level is HOURS)
    assert reported == max(0, whole_hours) * HOUR_MS


def test_the_newest_part_has_narrow_windows() -> None:
    ready = {HOURS.table: 2 * HOUR_MS, MINUTES.table: 2 * HOUR_MS + 5 * MINUTE_MS}
    span = Span(HOUR_MS - MINUTE_MS - 1, 2 * HOUR_MS + 6 * MINUTE_MS)
    assert cover(span, ROLLUPS, ready) == [
        Piece(TENS, Span(HOUR_MS - MINUTE_MS - 1, HOUR_MS - MINUTE_MS)),
        Piece(MINUTES, Span(HOUR_MS - MINUTE_MS, HOUR_MS)),
        Piece(HOURS, Span(HOUR_MS, 2 * HOUR_MS)),
        Piece(MINUTES, Span(2 * HOUR_MS, 2 * HOUR_MS + 5 * MINUTE_MS)),
        Piece(TENS, Span(2 * HOUR_MS + 5 * MINUTE_MS, 2 * HOUR_MS + 6 * MINUTE_MS)),
    ]


def test_narrow_windows_answer_where_samples_begin_within_a_wide_one() -> None:
    """The minute and the hour of the first sample are partly empty: they would count whole."""
    ready = dict.fromkeys((HOURS.table, MINUTES.table), 3 * HOUR_MS)
    since = HOUR_MS + 58 * MINUTE_MS + 40_000
    first_minute, first_hour = HOUR_MS + 59 * MINUTE_MS, 2 * HOUR_MS
    assert cover(Span(0, 3 * HOUR_MS), ROLLUPS, ready, since) == [
        Piece(TENS, Span(0, first_minute)),
        Piece(MINUTES, Span(first_minute, first_hour)),
        Piece(HOURS, Span(first_hour, 3 * HOUR_MS)),
    ]


def test_an_empty_span_has_no_pieces() -> None:
    assert cover(Span(7, 7), ROLLUPS, {}) == []
    assert cover(Span(7, 7), [Level("samples", 1)], {}) == []


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [((0, 9), (3, 5), (3, 5)), ((0, 4), (3, 5), (3, 4)), ((0, 2), (3, 5), (3, 3)), ((6, 9), (3, 5), (6, 6))],
)
def test_the_intersection_of_spans(one: Span, other: Span, common: Span) -> None:
    assert Span(*one).within(Span(*other)) == Span(*common)


def test_times_are_milliseconds() -> None:
    moment = datetime(2025, 7, 18, 20, 42, 34, 500_000, tzinfo=UTC)
    assert instant(milliseconds(moment)) == moment
    later = moment + timedelta(microseconds=1)
    assert milliseconds(later) == milliseconds(moment)
    assert milliseconds(later, round_up=True) == milliseconds(moment) + 1
    assert milliseconds(moment, round_up=True) == milliseconds(moment)
