"""The judgement of health reports and counters."""

from __future__ import annotations

from chaos.nemesis import Fault
from chaos.watching import Report, fallen_counters, false_reports

KILL = Fault(10.0, 20.0, "kill", (1, 2))


def test_a_broker_that_is_away_must_show_in_the_reports_of_others() -> None:
    def judged(at_s: float, node: int, cluster: str, fault: Fault = KILL) -> list[str]:
        return false_reports([Report(100 + at_s, node, cluster, cluster)], [fault], 100)

    assert len(judged(16, 2, "Healthy")) == 1
    assert judged(16, 2, "Degraded") == []
    # Not detected yet, over, or of the broker itself.
    assert judged(14, 2, "Healthy") == judged(21, 2, "Healthy") == judged(16, 1, "Healthy") == []
    assert judged(16, 2, "Healthy", Fault(10.0, 20.0, "disk-full", (1, 2))) == []
    assert judged(16, 2, "Healthy", Fault(10.0, 20.0, "kill-two", (1, 2))) == []
    assert len(judged(16, 3, "Healthy", Fault(10.0, 20.0, "kill-two", (1, 2)))) == 1


def page(started: float, count: int) -> str:
    return (
        f"penstock_start_time_seconds {started}\n"
        f'penstock_requests_total{{api="Fetch",listener="client"}} {count}\npenstock_leaders 5\n'
    )


def test_a_counter_may_fall_with_its_process_only() -> None:
    assert fallen_counters(page(1, 5), page(1, 4)) == [
        'penstock_requests_total{api="Fetch",listener="client"} fell from 5 to 4'
    ]
    assert fallen_counters(page(1, 5), page(2, 0)) == []
    assert fallen_counters(page(1, 5), page(1, 6)) == fallen_counters("", page(1, 6)) == []
