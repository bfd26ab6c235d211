"""Whose silence the active controller counts, and from when on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from penstock.broker.node.controller_loop import ControllerLoop
from penstock.metadata.sessions import Sessions
from penstock.model.errors import StorageError
from penstock.raft.messages import NO_NODE
from penstock.raft.roles import LeaderContact
from penstock.wire.schema import Struct
from tests.broker.nodes import cluster, eventually, run

SESSION = {"broker.session.timeout.ms": "3000"}


def begun(controller_loop: ControllerLoop, last: LeaderContact, now_ms: float) -> Sessions:
    """The sessions that it begins with if `last` is what it knows of the leader before."""
    controller_loop._last_contact = last
    with patch.object(controller_loop, "now_ms", return_value=now_ms):
        return controller_loop._first_sessions()


def test_the_last_controller_is_silent_since_it_last_answered() -> None:
    """However long the election took: that has been part of its silence."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).node.controller_loop
            image = controller_loop._image
            before = controller_loop._config.node_id
            others = sorted(node for node in nodes.brokers if node != before)
            now_ms = controller_loop.now_ms()
            sessions = begun(controller_loop, LeaderContact(before, now_ms - 2100), now_ms)
            assert sessions.expired(image, now_ms + 899) == []
            assert sessions.expired(image, now_ms + 901) == [before]
            assert sessions.expired(image, now_ms + 3000) == [before, *others]

    run(main())


@pytest.mark.parametrize("silent_ms", [2900, 60_000])
def test_one_that_led_and_lives_has_the_time_to_send_a_heartbeat(silent_ms: int) -> None:
    """Perhaps all were silent: a machine that was suspended."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).node.controller_loop
            node, now_ms = controller_loop._config.node_id, controller_loop.now_ms()
            sessions = begun(controller_loop, LeaderContact(node, now_ms - silent_ms), now_ms)
            assert sessions.expired(controller_loop._image, now_ms + 249) == []
            assert sessions.expired(controller_loop._image, now_ms + 250) == [node]

    run(main())


def test_a_controller_that_followed_nobody_gives_everybody_a_whole_session() -> None:
    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).node.controller_loop
            now_ms = controller_loop.now_ms()
            sessions = begun(controller_loop, LeaderContact(NO_NODE, now_ms - 60_000), now_ms)
            assert sessions.expired(controller_loop._image, now_ms + 2999) == []

    run(main())


def test_a_controller_that_was_held_up_lets_brokers_be_heard_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their heartbeats may be there already, unread; a broker that hangs gets no new session."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).node.controller_loop
            assert controller_loop.sessions is not None
            late_ms = controller_loop.now_ms() + 3700
            monkeypatch.setattr(controller_loop, "now_ms", lambda: late_ms)
            await controller_loop._sleep_until(late_ms - 600)
            first = controller_loop.sessions.next_expiry(controller_loop._image)
            assert first == late_ms + 1000
            monkeypatch.undo()
            await asyncio.sleep(0)

    run(main())


def test_a_controller_alone_whose_disk_refuses_its_first_decision_begins_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other node could lead: it would be active for good, and fence no broker."""
    monkeypatch.setattr("penstock.broker.node.controller_loop._RETRY_S", 0.01)

    async def main() -> None:
        async with cluster(1, observers=1, config=SESSION) as nodes:
            node = nodes[1].node
            controller_loop, begin = node.controller_loop, node.controller_loop._begin
            refusals = [StorageError("no space left"), StorageError("no space left")]

            def refused() -> tuple[Sequence[Struct], None]:
                if refusals:
                    raise refusals.pop()
                return begin()

            monkeypatch.setattr(controller_loop, "_begin", refused)
            node.leader_changed(node.quorum.state.epoch, 1)
            await eventually(lambda: controller_loop.sessions is not None)
            assert not refusals
            await nodes.kill(2)
            await eventually(lambda: node.image.brokers[2].fenced)

    run(main())
