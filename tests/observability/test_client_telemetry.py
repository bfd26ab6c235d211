"""Metrics that clients push (KIP-714): the rules of `ClientMetricsManager`, and the bounds."""

from __future__ import annotations

import itertools
import re

from penstock.model.errors import ErrorCode
from penstock.observability.client_telemetry import (
    NAMES_MAX,
    ClientAggregates,
    ClientInstances,
    subscriptions_of,
)
from penstock.observability.otlp import ClientMetric

JAVA = {"client_software_name": "apache-kafka-java", "client_id": "app"}
ID = b"\x07" * 16
ALL = {"metrics": "*", "interval.ms": "1000"}


def instances(*configs: dict[str, str], limit: int = 100) -> ClientInstances:
    counter = itertools.count(1)
    found = ClientInstances(lambda size: next(counter).to_bytes(size, "big"), limit)
    found.update(subscriptions_of(configs, re.compile))
    return found


def test_subscriptions_that_match_are_merged() -> None:
    known = instances(
        {"metrics": "a.,b.", "interval.ms": "5000", "match": "client_software_name=apache.*,client_id=app"},
        {"metrics": "b.,c.", "interval.ms": "2000", "match": "client_software_name=.*java"},
        {"metrics": "d.", "interval.ms": "100", "match": "client_id=ap"},
    )
    code, instance = known.get(bytes(16), JAVA, 0)
    assert code is ErrorCode.NONE and instance is not None
    assert (instance.metrics, instance.interval_ms) == (["a.", "b.", "c."], 2000)
    assert instance.id != bytes(16)
    _, other = known.get(bytes(16), {}, 0)
    assert other is not None and (other.metrics, other.interval_ms) == ([], 300_000)


def test_everything_is_one_star() -> None:
    _, instance = instances(ALL, {"metrics": "a."}).get(ID, JAVA, 0)
    assert instance is not None and instance.metrics == ["*"]


def test_a_client_that_comes_too_early_is_throttled() -> None:
    known = instances(ALL)
    _, instance = known.get(ID, JAVA, 0)
    assert instance is not None
    push = instance.subscription_id
    assert known.get(ID, JAVA, 999)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # The first push may come early: clients add jitter.
    assert known.check_push(ID, push, False, JAVA, 500)[0] is ErrorCode.NONE
    assert known.check_push(ID, push, False, JAVA, 1499)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert known.check_push(ID, push, False, JAVA, 1500)[0] is ErrorCode.NONE
    # The last push may come at any time, and is the last.
    assert known.check_push(ID, push, True, JAVA, 1501)[0] is ErrorCode.NONE
    assert known.check_push(ID, push, False, JAVA, 9000)[0] is ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_has_another_id_and_is_fetched_at_once() -> None:
    known = instances(ALL)
    _, instance = known.get(ID, JAVA, 0)
    assert instance is not None
    known.update(subscriptions_of([{"metrics": "a.", "interval.ms": "1000"}], re.compile))
    code, _ = known.check_push(ID, instance.subscription_id, False, JAVA, 1000)
    assert code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    code, changed = known.get(ID, JAVA, 1001)
    assert code is ErrorCode.NONE and changed is not None and changed.metrics == ["a."]


def test_an_invalid_id_is_refused() -> None:
    for reserved in (bytes(16), bytes(15) + b"\x01"):
        assert instances(ALL).check_push(reserved, 0, False, JAVA, 0)[0] is ErrorCode.INVALID_REQUEST


def test_a_client_without_a_subscription_may_not_push() -> None:
    known = instances({**ALL, "match": "client_id=another"})
    _, instance = known.get(ID, JAVA, 0)
    assert instance is not None and not instance.metrics
    code, _ = known.check_push(ID, instance.subscription_id, False, JAVA, 1)
    assert code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_instances_are_bounded_and_expire() -> None:
    known = instances(ALL, limit=10)
    for number in range(1000):
        known.get(number.to_bytes(16, "big"), {"client_id": f"{number}"}, number)
    assert len(known) == 10
    known.get(ID, JAVA, 1_000_000)
    assert len(known) == 1


def test_patterns_see_the_beginning_of_a_long_name() -> None:
    known = instances({**ALL, "match": "client_id=a+"})
    _, instance = known.get(ID, {"client_id": "a" * 255 + "!" * 30_000}, 0)
    assert instance is not None and instance.metrics == ["*"]


def test_a_pattern_that_cannot_be_compiled_matches_nothing() -> None:
    found = subscriptions_of([{"metrics": "a.", "match": "client_id=(?=x)"}], lambda pattern: None)
    assert not found[0].matches(JAVA)


def test_sums_grow_and_gauges_are_of_the_last_windows() -> None:
    found = ClientAggregates(window_ms=1000)
    found.add([ClientMetric("a.total", True, 5, 5), ClientMetric("a.avg", False, 3, 2)], 0)
    found.add([ClientMetric("a.total", True, 2, 2), ClientMetric("a.avg", False, 6, 6)], 500)
    assert found.sums == {"a.total": 7}
    assert list(found.gauges(600)) == [("a.avg", 4.0, 6)]
    found.add([ClientMetric("a.avg", False, 1, 1)], 1500)
    assert list(found.gauges(1600)) == [("a.avg", 4.0, 6)]
    assert list(found.gauges(2600)) == [("a.avg", 1.0, 1)]
    assert list(found.gauges(3700)) == []
    assert found.sums == {"a.total": 7}


def test_names_are_bounded() -> None:
    found = ClientAggregates()
    found.add((ClientMetric(f"m.{number}", number % 2 == 0, 1, 1) for number in range(100_000)), 0)
    assert len(found.sums) + len(list(found.gauges(0))) == NAMES_MAX
    assert found.left_out == 100_000 - NAMES_MAX
    found = ClientAggregates()
    found.add([ClientMetric(name, True, 1, 1) for name in ("", "A", "a b", 'a"', "a" * 300)], 0)
    assert not found.sums
