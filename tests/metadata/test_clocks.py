"""The controller's comparison of wall clocks: a majority decides, and of two clocks neither is right."""

from __future__ import annotations

from statistics import median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.brokers import heartbeat
from penstock.metadata.clocks import CLOCK_UNKNOWN, CLOCKS_DISAGREE, Clocks, ReportedClock
from penstock.metadata.election import balance_leaders
from penstock.metadata.image import ClusterImage
from penstock.metadata.policy import Policy
from penstock.model.steps import at_once
from penstock.timekeeping.trust import Standing
from penstock.wire.apis.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.schema import Struct
from tests.metadata.stage import NO_OFFSET, Stage

LIMIT_MS = 300_000
SESSION_MS = 9_000
TIME_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class Heard:
    """A controller, node 1, that hears heartbeats; `ahead` is how far each node's clock is ahead."""

    def __init__(self, image: ClusterImage, **ahead: int) -> None:
        self.clocks = Clocks(1)
        self.image = image
        self.now_ms = 5_000.0
        self.ahead = {int(name.removeprefix("node")): ms for name, ms in ahead.items()}
        #: of nodes that report one
        self.standings: dict[int, Standing] = {}
        self.vouched = False

    def _clock(self, node: int, time_ms: float) -> ReportedClock:
        standing = self.standings.get(node, Standing.UNKNOWN)
        return ReportedClock(round(time_ms + self.ahead[node]), standing)

    def beat(self, node: int) -> int:
        """How far the reference in the answer to the node's heartbeat is ahead of the time, or why not."""
        self.now_ms += 10
        time_ms = TIME_MS + self.now_ms
        reference = self.clocks.heard(
            self.image,
            node,
            self._clock(node, time_ms),
            own=self._clock(1, time_ms),
            now_ms=self.now_ms,
            session_ms=SESSION_MS,
            limit_ms=LIMIT_MS,
        )
        self.vouched = reference.vouched
        return reference.clock_ms if reference.clock_ms < 0 else round(reference.clock_ms - time_ms)

    def beat_all(self) -> list[int]:
        return [self.beat(node) for node in self.ahead]


def test_a_majority_of_the_clocks_is_the_reference() -> None:
    heard = Heard(Stage(3).image, node1=0, node2=40, node3=2 * DAY_MS)
    heard.beat_all()

    assert heard.beat_all() == [40, 40, 40]
    assert heard.clocks.off == {3: 2 * DAY_MS - 40}


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, -2 * DAY_MS])
def test_the_controllers_own_clock_may_be_the_wrong_one(ahead_ms: int) -> None:
    heard = Heard(Stage(3).image, node1=ahead_ms, node2=0, node3=0)
    for _ in range(2):
        heard.beat_all()

    assert heard.beat_all() == [0, 0, 0]
    assert heard.clocks.off == {1: ahead_ms}


def test_of_two_clocks_that_differ_neither_is_known_to_be_right() -> None:
    heard = Heard(Stage(2).image, node1=0, node2=DAY_MS)
    heard.beat_all()

    assert heard.beat_all() == [CLOCKS_DISAGREE] * 2
    assert heard.clocks.off == {}


@pytest.mark.parametrize("right", [1, 2, 3])
def test_a_clock_that_has_watched_the_time_outweighs_a_majority_that_has_not(right: int) -> None:
    heard = Heard(Stage(3).image, node1=2 * DAY_MS, node2=2 * DAY_MS, node3=2 * DAY_MS)
    heard.ahead[right] = 0
    heard.standings = dict.fromkeys((1, 2, 3), Standing.HELD) | {right: Standing.BELIEVED}
    for _ in range(3):
        heard.beat_all()

    assert heard.beat_all() == [0, 0, 0]
    assert heard.vouched
    assert heard.clocks.off == {node: 2 * DAY_MS for node in (1, 2, 3) if node != right}


@pytest.mark.parametrize(
    ("standings", "vouched"),
    [
        pytest.param((Standing.NEW, Standing.NEW), True, id="a new cluster"),
        pytest.param((Standing.UNKNOWN, Standing.UNKNOWN), True, id="earlier releases"),
        pytest.param((Standing.HELD, Standing.HELD), False, id="all were set together"),
        pytest.param((Standing.HELD, Standing.NEW), False, id="a new broker is no witness"),
        pytest.param((Standing.HELD, Standing.UNKNOWN), False, id="nor is one of an earlier release"),
        pytest.param((Standing.HELD, Standing.BELIEVED), True, id="one has watched the time"),
    ],
)
def test_clocks_that_were_set_together_do_not_confirm_each_other(
    standings: tuple[Standing, Standing], vouched: bool
) -> None:
    heard = Heard(Stage(2).image, node1=0, node2=0)
    heard.standings = dict(enumerate(standings, 1))
    heard.beat_all()

    assert heard.beat_all() == [0, 0]
    assert heard.vouched is vouched


def test_a_standing_of_a_later_release_is_unknown() -> None:
    assert ReportedClock.received(5, 77) == (5, Standing.UNKNOWN)
    assert ReportedClock.received(5, 2) == (5, Standing.HELD)


def test_one_clock_of_several_is_no_evidence() -> None:
    heard = Heard(Stage(3).image, node1=2 * DAY_MS, node2=0, node3=0)

    assert heard.beat(1) == CLOCK_UNKNOWN
    assert heard.beat(2) == CLOCKS_DISAGREE
    assert heard.beat(3) == 0


def test_the_only_broker_agrees_with_itself() -> None:
    heard = Heard(Stage(1).image, node1=DAY_MS)

    assert heard.beat(1) == DAY_MS


def test_a_small_difference_is_no_reason_to_do_anything() -> None:
    heard = Heard(Stage(3).image, node1=0, node2=LIMIT_MS, node3=-LIMIT_MS)

    for _ in range(3):
        heard.beat_all()

    assert heard.clocks.off == {}


def test_one_heartbeat_does_not_move_leaderships_and_a_clock_has_to_be_clearly_back() -> None:
    heard = Heard(Stage(3).image, node1=0, node2=0, node3=0)
    heard.beat_all()
    heard.ahead[3] = -LIMIT_MS - 1
    heard.beat(3)
    assert heard.clocks.off == {}
    heard.beat(3)
    assert heard.clocks.off == {3: -LIMIT_MS - 1}

    heard.ahead[3] = -LIMIT_MS + 1
    heard.beat(3)
    assert heard.clocks.off

    heard.ahead[3] = -LIMIT_MS * 3 // 4
    heard.beat(3)
    assert heard.clocks.off == {}


def test_a_silent_broker_is_no_evidence() -> None:
    stage = Stage(3)
    heard = Heard(stage.image, node1=0, node2=DAY_MS, node3=0)
    heard.beat_all()
    stage.fence(3)

    heard.now_ms += SESSION_MS + 1
    del heard.ahead[3]
    heard.beat_all()

    assert heard.beat_all() == [CLOCKS_DISAGREE] * 2


def test_a_broker_that_does_not_report_its_clock_learns_the_reference() -> None:
    heard = Heard(Stage(3).image, node1=0, node2=0)
    heard.beat_all()
    time_ms = TIME_MS + heard.now_ms

    answer = heard.clocks.heard(
        heard.image,
        3,
        ReportedClock(),
        own=ReportedClock(round(time_ms)),
        now_ms=heard.now_ms,
        session_ms=SESSION_MS,
        limit_ms=LIMIT_MS,
    )

    assert answer.clock_ms == round(time_ms)
    assert heard.clocks.off == {}


_NODES = range(1, 6)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_NODES),
            st.sampled_from([-1, 0, 1, 40, LIMIT_MS, DAY_MS]),
            st.sampled_from(Standing),
            st.sampled_from([1, 1, 10, SESSION_MS // 2, SESSION_MS + 1]),
        ),
        max_size=40,
    )
)
def test_the_reference_is_the_median_of_the_clocks_of_one_session(
    beats: list[tuple[int, int, Standing, int]],
) -> None:
    """Compared with all clocks at each heartbeat, as the rule is written."""
    clocks, image, now_ms = Clocks(1), Stage(len(_NODES)).image, 5_000
    known: dict[int, tuple[int, Standing, int]] = {}
    for node, ahead_ms, standing, passed_ms in beats:
        now_ms += passed_ms
        reported = ReportedClock(TIME_MS + now_ms + ahead_ms if ahead_ms >= 0 else -1, standing)
        own = ReportedClock(TIME_MS + now_ms)
        answer = clocks.heard(
            image, node, reported, own=own, now_ms=now_ms, session_ms=SESSION_MS, limit_ms=LIMIT_MS
        )
        if ahead_ms >= 0:
            known[node] = ahead_ms, standing, now_ms
        known[1] = 0, own.standing, now_ms
        known = {n: each for n, each in known.items() if now_ms - each[2] <= SESSION_MS}
        counting = [each for each in known.values() if each[1] is Standing.BELIEVED] or [*known.values()]
        middle = median_low(each[0] for each in counting)
        agreeing = [each for each in counting if abs(each[0] - middle) <= LIMIT_MS]
        if len(known) < 3:
            assert answer.clock_ms == CLOCK_UNKNOWN
        elif 2 * len(agreeing) <= len(counting):
            assert answer.clock_ms == CLOCKS_DISAGREE
        else:
            held = any(each[1] is Standing.HELD for each in counting)
            assert answer == (TIME_MS + now_ms + middle, not held)


def beat(stage: Stage, node: int, *off: int) -> list[Struct]:
    """What a heartbeat changes while the clocks of the brokers `off` are wrong."""
    request = BrokerHeartbeatRequest(
        broker_id=node, broker_epoch=stage.epoch(node), current_metadata_offset=NO_OFFSET
    )
    records, _ = at_once(heartbeat(stage.image, Policy(clocks_off=off), request, NO_OFFSET))
    stage.commit(records)
    return records


def test_a_broker_with_a_wrong_clock_hands_its_leaderships_over_and_stays_in_sync() -> None:
    stage = Stage(3)
    led, followed, alone = stage.topic("a", [1, 2, 3]), stage.topic("b", [2, 1, 3]), stage.topic("c", [1])

    beat(stage, 1, 1)

    assert (led.leader, sorted(led.isr)) == (2, [1, 2, 3])
    assert (followed.leader, alone.leader) == (2, 1)
    assert beat(stage, 1, 1) == []


def test_a_replica_with_a_wrong_clock_leads_if_it_is_the_only_in_sync_one() -> None:
    stage = Stage(3)
    partition = stage.topic("a", [1, 2])

    assert beat(stage, 1, 1, 2) == []
    stage.fence(2)
    assert beat(stage, 1, 1) == []
    assert partition.leader == 1


def test_a_replica_that_has_just_come_into_sync_is_not_elected_with_the_same_change() -> None:
    """A leader is elected of those that were in sync before."""
    stage = Stage(3)
    partition = stage.topic("a", [1, 2, 3], min_isr=1)
    stage.fence(2, 3)
    for node in (2, 3):
        stage.beat(node)
    assert partition.isr == [1]
    stage.policy = Policy(clocks_off=(1,))

    stage.alter(partition, [1, 2])
    assert (partition.leader, partition.isr) == (1, [1, 2])
    beat(stage, 1, 1)
    assert partition.leader == 2


def test_elections_avoid_a_wrong_clock() -> None:
    stage = Stage(3)
    partition = stage.topic("a", [1, 2, 3])
    stage.policy = Policy(clocks_off=(2,))

    stage.fence(1)

    assert partition.leader == 3


def test_a_preferred_leader_with_a_wrong_clock_is_not_given_its_partitions_back() -> None:
    stage = Stage(3)
    partition = stage.topic("a", [1, 2, 3])
    beat(stage, 1, 1)

    assert balance_leaders(stage.image, Policy(clocks_off=(1,)), 0) == []
    stage.commit(balance_leaders(stage.image, Policy(), 0))
    assert partition.leader == 1
