"""Whether topics keep what collectors send."""

from __future__ import annotations

import pytest

from penstock.telemetry.keeping import TOPIC_CONFIGS, KeepingWatch, why_not_kept

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
WEEK = {"retention.ms": str(7 * DAY_MS), "cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize(
    ("changes", "age_ms", "reason"),
    [
        ({}, 0, None),
        ({}, 7 * DAY_MS, None),
        ({}, 7 * DAY_MS + 1, "keeps records for 168 h by their own time, and samples of 2027-01-08"),
        ({"retention.ms": "-1"}, 999 * DAY_MS, None),
        (TOPIC_CONFIGS, 999 * DAY_MS, None),
        ({"cleanup.policy": "compact"}, 0, "it will keep one sample of each GPU"),
        ({"cleanup.policy": "compact,delete"}, 0, "it will keep one sample of each GPU"),
    ],
)
def test_a_topic_whose_retention_is_too_short_is_refused(
    changes: dict[str, str], age_ms: int, reason: str | None
) -> None:
    said = why_not_kept("t", {**WEEK, **changes}, NOW_MS - age_ms, NOW_MS)
    assert said is None if reason is None else reason in (said or "")


def test_a_warning_is_given_once() -> None:
    warnings: list[str] = []
    watch = KeepingWatch("t", WEEK, warnings.append, clock=lambda: NOW_MS / 1000)
    for age_days in (1, 8, 9):
        watch(NOW_MS - age_days * DAY_MS)
    assert warnings == [watch.warning]
