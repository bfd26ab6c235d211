"""What the summary says: which alerts a fault explains, and whether all messages are accounted for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.telemetry.demo.outcome import Outcome, Score, score
from penstock.telemetry.message import format_timestamp

START_MS = 1_800_000_000_000
LONG_AFTER_MS = START_MS + 3_600_000


def fault(
    kind: str = "xid", gpu: str | None = "GPU-1", start_s: int = 20, end_s: int = 60, noise: bool = False
) -> dict[str, Any]:
    times = {
        "start": format_timestamp(START_MS + start_s * 1000),
        "end": format_timestamp(START_MS + end_s * 1000),
    }
    return {"fault": kind, "gpu_id": gpu, "hostname": "host-1", "within_noise": noise, **times}


def alert(rule: str = "xid", subject: str = "GPU-1", at_s: int = 40, state: str = "open") -> dict[str, Any]:
    at = datetime.fromtimestamp(START_MS / 1000 + at_s, UTC)
    return {"rule": rule, "subject": subject, "at": at, "state": state}


def test_an_alert_counts_only_with_the_rule_gpu_and_time_of_a_fault() -> None:
    assert score([fault()], [alert()], LONG_AFTER_MS) == {"xid": Score(1, 1, 1, 1)}
    wrong = [alert(subject="GPU-2"), alert(at_s=10), alert(at_s=95)]
    assert score([fault()], wrong, LONG_AFTER_MS) == {"xid": Score(0, 1, 0, 3)}
    other = score([fault()], [alert(rule="hot")], LONG_AFTER_MS)
    assert other == {"hot": Score(0, 0, 0, 1), "xid": Score(0, 1, 0, 0)}


def test_a_host_is_found_by_its_name() -> None:
    lemon = fault("lemon_node", gpu=None)
    assert score([lemon], [alert("lemon_node", "host-1")], LONG_AFTER_MS) == {"lemon_node": Score(1, 1, 1, 1)}


def test_only_openings_count() -> None:
    assert score([fault()], [alert(state="resolved")], LONG_AFTER_MS) == {"xid": Score(0, 1, 0, 0)}


def test_undetectable_anomalies_are_not_missed_but_may_be_found() -> None:
    too_late, too_short = START_MS + 30_000, fault(start_s=20, end_s=35)
    for faults, until_ms in (
        ([fault(noise=True)], LONG_AFTER_MS),
        ([fault()], too_late),
        ([too_short], LONG_AFTER_MS),
    ):
        assert score(faults, [], until_ms) == {"xid": Score(0, 0, 0, 0)}
        assert score(faults, [alert()], until_ms) == {"xid": Score(0, 0, 1, 1)}


def test_shares_of_nothing_are_none() -> None:
    assert (Score().recall, Score().precision) == (None, None)
    assert (Score(1, 2, 3, 4).recall, Score(1, 2, 3, 4).precision) == (0.5, 0.75)


def test_all_that_was_produced_must_be_somewhere() -> None:
    rows = {"valid": 90, "dead_lettered": 5, "duplicates": 3, "late": 2}
    assert Outcome(100, rows, 90, {}).is_complete
    assert not Outcome(101, rows, 90, {}).is_complete
    assert Outcome(101, rows, 90, {}).unread == 1
    assert not Outcome(100, rows, 91, {}).is_complete
