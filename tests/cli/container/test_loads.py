"""External metrics out of the metrics pages of brokers."""

from __future__ import annotations

from penstock.cli.container.external_metrics import Measured
from penstock.cli.container.loads import LAG, LOAD, SHARE_LAG, Taken, measure, taken

PAGE = """# TYPE penstock_cpu_seconds_total counter
penstock_cpu_seconds_total {cpu}
penstock_start_time_seconds {started}
penstock_connections{{listener="CLIENT"}} 7
penstock_group_lag_records{{group="bill\\"ing",topic="orders"}} 1200
penstock_share_group_lag_records{{group="jobs",topic="work"}} 3
"""


def page(cpu: float, at_s: float, started: int = 1) -> Taken:
    return taken(PAGE.format(cpu=cpu, started=started), at_s)


def test_load_is_the_part_of_a_core_between_two_pages() -> None:
    first, second = page(10, 100.0), page(16, 110.0)
    assert measure({0: first}, {0: second})[LOAD] == [Measured({"broker": "0"}, 0.6)]


def test_a_broker_that_has_started_between_the_pages_has_no_load_yet() -> None:
    first, second = page(90, 100.0), page(2, 110.0, started=2)
    assert measure({0: first}, {0: second, 1: first})[LOAD] == []


def test_a_broker_without_a_page_has_no_load() -> None:
    first = page(90, 100.0)
    assert measure({0: first}, {})[LOAD] == []


def test_lags_are_taken_with_their_labels() -> None:
    found = measure({}, {2: page(1, 5.0)})
    assert found[LAG] == [Measured({"group": 'bill"ing', "topic": "orders"}, 1200.0)]
    assert found[SHARE_LAG] == [Measured({"group": "jobs", "topic": "work"}, 3.0)]
