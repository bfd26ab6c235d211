"""The lag ring: one point a minute, bounded, of one cluster; bytes that are no ring are refused."""

from __future__ import annotations

import math

import msgspec
import pytest

from penstock.console.views.lag_ring import (
    GROUPS_MAX,
    POINTS_MAX,
    LagRing,
    UnreadableRing,
    decoded,
    encoded,
    joined,
)


def test_one_point_a_minute_is_kept_for_hours() -> None:
    ring = LagRing()
    changes = [ring.add("c", 10.0 * n, {"g": n + 1}, n) for n in range(POINTS_MAX * 6 + 60)]
    assert changes[:7] == [True, *[False] * 5, True]
    points = ring.points("g")
    assert len(points) == len(ring.total()) == POINTS_MAX
    assert points[0] == (600.0, 61.0)
    assert points[-1][0] - points[0][0] == 60.0 * (POINTS_MAX - 1)


def test_a_ring_comes_back_from_its_bytes() -> None:
    ring, again = LagRing(), LagRing()
    ring.add("c", 5.0, {"g": 7, "idle": 0}, 7)
    again.load(decoded(encoded(ring.state())))
    assert (again.points("g"), again.total(), again.points("idle")) == ([(5.0, 7.0)], [(5.0, 7.0)], [])
    again.add("c", 65.0, {"g": 0}, None)
    assert again.points("g") == [(5.0, 7.0), (65.0, 0.0)]


def test_points_of_another_cluster_are_forgotten() -> None:
    ring = LagRing()
    ring.add("c", 5.0, {"g": 7}, 7)
    ring.add("other", 70.0, {"h": 1}, None)
    assert (ring.points("g"), ring.total(), ring.points("h")) == ([], [], [(70.0, 1.0)])


def test_groups_are_bounded_and_those_that_ended_make_room() -> None:
    ring = LagRing()
    ring.add("c", 0.0, {f"g{n}": 1 for n in range(GROUPS_MAX + 5)}, None)
    assert ring.points(f"g{GROUPS_MAX}") == []
    ring.add("c", 300.0, {"g1": 1, "new": 1}, None)
    assert (ring.points("g0"), ring.points("new")) == ([], [(300.0, 1.0)])
    assert len(ring.state().groups) == GROUPS_MAX


def test_a_clock_that_is_set_back_does_not_stop_the_ring() -> None:
    ring = LagRing()
    for time_s in (100.0, 90_000.0, 200.0):
        ring.add("c", time_s, {"g": 1}, None)
    assert [point[0] for point in ring.points("g")] == [100.0, 200.0]


def test_recent_points_take_the_place_of_those_of_the_ring() -> None:
    recent = [(30.0, 5.0), (33.0, 6.0)]
    assert joined([(0.0, 1.0), (60.0, 2.0)], recent) == [(0.0, 1.0), *recent]
    assert joined([(0.0, 1.0)], []) == [(0.0, 1.0)]


def damaged() -> list[bytes]:
    ring = LagRing()
    ring.add("c", 5.0, {"g": 7}, 7)
    whole = encoded(ring.state())
    fields = msgspec.msgpack.decode(whole)
    return [
        b"",
        whole[:-1],
        whole + b"x",
        msgspec.msgpack.encode({**fields, "version": 2}),
        msgspec.msgpack.encode({**fields, "groups": {"g": [[math.nan, 1.0]]}}),
        msgspec.msgpack.encode({**fields, "groups": {"g": []}}),
        msgspec.msgpack.encode({**fields, "groups": {"g": [[1.0, 1.0]] * (POINTS_MAX + 1)}}),
        msgspec.msgpack.encode({**fields, "groups": {"g": "points"}}),
    ]


@pytest.mark.parametrize("data", damaged())
def test_bytes_that_are_no_ring_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableRing):
        decoded(data)
