"""What a throttle changes and remembers, and what is left when it ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.reassignment.throttle import (
    MEMORY,
    RATES,
    REPLICAS,
    Changes,
    end_limit,
    limit_broker,
    limit_topic,
)

LEADER, FOLLOWER = RATES


def applied(own: Mapping[str, str], changes: Changes) -> dict[str, str]:
    kept = {name: value for name, value in own.items() if name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}


def limited(own: Mapping[str, str], rate: int) -> dict[str, str]:
    return applied(own, limit_broker(own, own, rate))


def ended(own: Mapping[str, str]) -> dict[str, str]:
    return applied(own, end_limit(own))


@pytest.mark.parametrize(
    "before",
    [{}, {LEADER: "900"}, {LEADER: "10", FOLLOWER: "900"}, {"num.io.threads": "3", FOLLOWER: "50"}],
)
def test_a_throttle_leaves_a_broker_as_it_was(before: dict[str, str]) -> None:
    during = limited(before, 50)
    assert all(int(during[name]) <= 50 for name in RATES)
    assert ended(during) == before


def test_a_throttle_never_raises_a_limit() -> None:
    during = limited({LEADER: "10"}, 50)
    assert (during[LEADER], during[FOLLOWER]) == ("10", "50")
    by_default = limit_broker({}, {LEADER: "10"}, 50)
    assert (by_default[LEADER], by_default[FOLLOWER]) == ("10", "50")
    assert ended(applied({}, by_default)) == {}


def test_a_second_rate_keeps_the_memory_of_the_first_value() -> None:
    before = {LEADER: "900"}
    during = limited(limited(before, 50), 70)
    assert (during[LEADER], during[FOLLOWER]) == ("70", "70")
    assert ended(during) == before
    # The client has ended between the change of one broker and the next: the older rate is known, too.
    assert ended({**during, LEADER: "50"}) == before


def test_a_value_of_an_operator_stays() -> None:
    during = limited({LEADER: "900"}, 50)
    assert ended({**during, LEADER: "600"}) == {LEADER: "600"}
    without = {name: value for name, value in during.items() if name != FOLLOWER}
    assert ended(without) == {LEADER: "900"}


@pytest.mark.parametrize("before", [{}, {REPLICAS[0]: "0:1,0:2"}, dict.fromkeys(REPLICAS, "*"), {"a": "b"}])
def test_a_throttle_leaves_a_topic_as_it_was(before: dict[str, str]) -> None:
    during = applied(before, limit_topic(before))
    assert [during[name] for name in REPLICAS] == ["*", "*"]
    again = applied(during, limit_topic(during))
    assert ended(during) == ended(again) == before


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"set":["50"],"previous":[]}', '{"set":1}'])
def test_a_damaged_memory_removes_itself_only(damaged: str) -> None:
    assert ended({LEADER: "50", MEMORY: damaged}) == {LEADER: "50"}


def test_the_throttle_of_an_operator_is_no_throttle_of_a_move() -> None:
    assert end_limit({LEADER: "50"}) == {}
