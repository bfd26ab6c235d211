"""The sessions of brokers in the active controller."""

from __future__ import annotations

from penstock.metadata.sessions import Sessions
from tests.metadata.stage import Stage


def heard(sessions: Sessions, stage: Stage, node: int, now: float, offset: int = 0) -> None:
    sessions.heard(node, stage.epoch(node), offset, now)


def test_a_new_controller_gives_every_broker_that_is_up_a_whole_session() -> None:
    stage = Stage(2)
    stage.register(3)
    sessions = Sessions(stage.image, 3000, 10_000)

    assert [sessions.alive(node, 12_999) for node in (1, 2, 3)] == [True, True, False]
    assert not sessions.alive(1, 13_000)
    assert sessions.next_expiry(stage.image) == 13_000


def test_the_longest_silent_is_fenced_first_and_only_once() -> None:
    stage = Stage(3)
    sessions = Sessions(stage.image, 3000, 0)
    heard(sessions, stage, 1, 500)
    heard(sessions, stage, 2, 100)

    assert sessions.expired(stage.image, 2999) == []
    assert sessions.expired(stage.image, 3500) == [3, 2, 1]
    stage.fence(3)
    assert sessions.expired(stage.image, 3100) == [2]
    assert sessions.next_expiry(stage.image) == 3100


def test_equally_silent_brokers_come_in_the_order_of_their_ids() -> None:
    stage = Stage()
    for node in (3, 1, 2):
        stage.register(node)
        stage.beat(node)
    assert Sessions(stage.image, 1, 0).expired(stage.image, 1) == [1, 2, 3]


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    stage = Stage(2)
    sessions = Sessions(stage.image, 3000, 0)

    sessions.gone(2, stage.epoch(2))

    assert (sessions.expired(stage.image, 1), sessions.alive(2, 1)) == ([2], False)


def test_a_wrong_suspicion_ends_with_the_next_heartbeat() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [2, 1])
    sessions = Sessions(stage.image, 3000, 0)
    sessions.gone(2, stage.epoch(2))
    stage.fence(*sessions.expired(stage.image, 1))
    assert (partition.leader, partition.isr, partition.elr) == (1, [1], [2])

    heard(sessions, stage, 2, 2)
    answer = stage.beat(2)

    assert (sessions.alive(2, 2), answer.is_fenced, sessions.expired(stage.image, 2)) == (True, False, [])
    stage.alter(partition, [1, 2])
    assert (partition.isr, partition.elr) == ([1, 2], [])


def test_a_hint_about_an_earlier_registration_is_ignored() -> None:
    stage = Stage(1)
    sessions = Sessions(stage.image, 3000, 0)
    before = stage.epoch(1)
    stage.register(1)
    stage.beat(1)
    heard(sessions, stage, 1, 5)

    sessions.gone(1, before)
    sessions.gone(9, before)

    assert sessions.alive(1, 6)


def test_sessions_of_replaced_or_forgotten_brokers_fence_no_broker() -> None:
    stage = Stage(2)
    sessions = Sessions(stage.image, 3000, 0)
    stage.register(1)
    sessions.forget(2)
    assert sessions.expired(stage.image, 9999) == []
    assert sessions.next_expiry(stage.image) is None
    assert not sessions.alive(2, 0)


def test_the_lowest_metadata_offset_of_active_brokers() -> None:
    stage = Stage(3)
    sessions = Sessions(stage.image, 3000, 0)
    assert sessions.lowest_offset(stage.image) == -1
    for node, offset in ((1, 30), (2, 20), (3, 10)):
        heard(sessions, stage, node, 1, offset)
    stage.topic("t", [3, 2])
    stage.beat(3, stop=True, lowest=0)
    # The one that shuts down is not waited for, nor one that is fenced.
    assert sessions.lowest_offset(stage.image) == 20
    stage.fence(1, 2)
    assert sessions.lowest_offset(stage.image) == stage.image.offset


def test_a_broker_without_a_chance_to_send_heartbeats_is_spared_unless_it_is_gone() -> None:
    stage = Stage(3)
    sessions = Sessions(stage.image, 3000, 0)
    heard(sessions, stage, 3, 2000)
    sessions.gone(2, stage.epoch(2))

    sessions.spare(4000)

    assert sessions.expired(stage.image, 3999) == [2]
    assert sessions.expired(stage.image, 4000) == [2, 1]
    assert sessions.expired(stage.image, 5000) == [2, 1, 3]


def test_a_broker_whose_heartbeat_is_not_answered_yet_is_not_silent() -> None:
    """It sends the next one after the response: a slow controller must not fence it meanwhile."""
    stage = Stage(2)
    sessions = Sessions(stage.image, 3000, 0)
    heard(sessions, stage, 1, 0)
    sessions.hold(1)

    assert sessions.expired(stage.image, 60_000) == [2]
    heard(sessions, stage, 1, 50_000)
    assert sessions.next_expiry(stage.image) == 3000
    sessions.release(1, 60_000)
    assert sessions.expired(stage.image, 62_999) == [2]
    assert sessions.expired(stage.image, 63_000) == [2, 1]


def test_a_process_that_is_gone_does_not_wait_for_a_response() -> None:
    stage = Stage(2)
    sessions = Sessions(stage.image, 3000, 0)
    sessions.hold(2)
    sessions.gone(2, stage.epoch(2))
    assert sessions.expired(stage.image, 1) == [2]
    sessions.release(2, 1)
    assert sessions.expired(stage.image, 1) == [2]
