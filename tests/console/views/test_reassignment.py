"""The balance of brokers, what a plan moves, and the rates that are set."""

from __future__ import annotations

from penstock.console.views.knowledge import REFUSED, UNKNOWN, Gap
from penstock.console.views.reassignment import (
    MOVES_MAX,
    Plan,
    balance_view,
    changed_since,
    make_plan,
    plan_view,
    planned_move,
    throttle_view,
)
from penstock.reassignment.requests import BrokerLimits
from penstock.reassignment.throttle import MEMORY, RATES
from tests.console.samples import a_sample, log_dirs


def test_uneven_brokers_are_seen_at_a_glance() -> None:
    shown = balance_view(a_sample(topics=("a", "b"), brokers=(1, 2, 3), leader=2))
    assert [(b["id"], b["replicas"], b["leads"], b["preferred"]) for b in shown["brokers"]] == [
        (1, 2, 0, 2),
        (2, 2, 2, 0),
        (3, 0, 0, 0),
    ]
    assert (shown["spread"]["replicas"], shown["spread"]["leads"]) == (0.5, 2.0)
    assert shown["not_preferred"] == 2


def test_a_spread_of_unknown_sizes_is_unknown() -> None:
    shown = balance_view(a_sample(log_dirs={1: log_dirs({"t": [10]}), 2: None}))
    assert shown["spread"]["size"] is None
    assert shown["spread"]["replicas"] == 0.0
    assert balance_view(a_sample(topics=()))["spread"]["replicas"] is None


def test_a_plan_has_the_bytes_that_it_copies() -> None:
    sample = a_sample(topics=("a", "b", "c"), brokers=(1, 2, 3))
    plan = make_plan(sample, [("a", 0, [1, 3]), ("b", 0, [2, 1]), ("c", 0, [3, 2])], (), "")
    shown = plan_view(sample, plan)
    assert shown["moves"] == [
        ["a", 0, [1, 2], [1, 3], 10],
        ["c", 0, [1, 2], [3, 2], 10],
        ["b", 0, [1, 2], [2, 1], 0],
    ]
    assert (shown["total"], shown["copying"], shown["bytes"], shown["bytes_gap"]) == (3, 2, 20, None)
    assert [(b["id"], b["replicas"], b["leaders"], b["received"]) for b in shown["brokers"]] == [
        (1, [3, 2], [3, 1], 0),
        (2, [3, 2], [0, 1], 0),
        (3, [0, 2], [0, 1], 20),
    ]


def test_bytes_that_are_not_known_are_not_zero() -> None:
    sample = a_sample(brokers=(1, 2, 3), log_dirs={})
    shown = plan_view(sample, make_plan(sample, [("t", 0, [1, 3])], (), ""))
    assert shown["moves"][0][4] is None
    assert shown["bytes_gap"]["state"] == UNKNOWN
    order = plan_view(sample, make_plan(sample, [("t", 0, [2, 1])], (), ""))
    assert (order["moves"][0][4], order["bytes_gap"]) == (0, None)


def test_a_plan_has_the_wanted_topics_and_names_partitions_that_cannot_leave() -> None:
    sample = a_sample(topics=("orders", "users", "old-orders"), brokers=(1, 2, 3))
    plan = make_plan(sample, [("orders", 0, [1, 3]), ("users", 0, [1, 3])], (2,), "ORDERS")
    assert [move.topic for move in plan.moves] == ["orders"]
    assert plan.stuck == [("old-orders", 0)]
    shown = plan_view(sample, plan)
    assert (shown["stuck"], shown["stuck_example"], shown["leaving"]) == (1, "old-orders-0", [2])


def test_a_large_plan_is_shown_in_part_and_summed_as_a_whole() -> None:
    sample = a_sample(topics=tuple(f"t{n}" for n in range(MOVES_MAX + 1)), brokers=(1, 2, 3))
    shown = plan_view(sample, make_plan(sample, [(key[0], 0, [1, 3]) for key in sample.partitions], (), ""))
    assert (len(shown["moves"]), shown["total"], shown["bytes"]) == (
        MOVES_MAX,
        MOVES_MAX + 1,
        10 * (MOVES_MAX + 1),
    )


def test_replicas_that_have_changed_since_are_found() -> None:
    plan = Plan([planned_move(a_sample(), ("t", 0), [1, 3])])
    assert changed_since(plan, {("t", 0): (1, 2)}) == []
    assert changed_since(plan, {("t", 0): (2, 1)}) == [("t", 0)]
    assert changed_since(plan, {}) == [("t", 0)]


def test_throttle_rates_name_their_owner() -> None:
    ours = BrokerLimits({MEMORY: "{}", RATES[0]: "5"}, {RATES[0]: 5}, True)
    operators = BrokerLimits({RATES[1]: "7"}, {RATES[1]: 7}, True)
    shown = throttle_view({1: ours, 2: operators, 3: BrokerLimits({}, {}, True)})
    assert shown == {
        "rates": [
            {"broker": 1, "leader": 5, "follower": None, "by_move": True},
            {"broker": 2, "leader": None, "follower": 7, "by_move": False},
        ],
        "by_move": True,
        "ends_itself": True,
        "gap": None,
    }


def test_refused_unknown_and_no_rates_are_three_states() -> None:
    refused = throttle_view({1: Gap(REFUSED, "no right"), 2: Gap(REFUSED, "no right")})
    assert (refused["rates"], refused["gap"]["state"]) == (None, REFUSED)
    in_part = throttle_view({1: BrokerLimits({}, {}, False), 2: Gap(UNKNOWN, "no response")})
    assert (in_part["rates"], in_part["gap"]["state"], in_part["ends_itself"]) == ([], UNKNOWN, False)
    assert throttle_view({1: BrokerLimits({}, {}, True)})["gap"] is None
