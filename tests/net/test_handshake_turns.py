"""Steps of TLS handshakes: one per iteration of the event loop, with addresses in turn."""

from __future__ import annotations

from collections.abc import Callable

from penstock.net.handshake_turns import HandshakeTurns


class Iterations:
    """An event loop: `run` is one iteration, which calls what was scheduled before it."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def run(self) -> None:
        due, self._soon = self._soon, []
        for callback in due:
            callback()


class Shaking:
    def __init__(self, name: str, steps: list[str]) -> None:
        self._name = name
        self._steps = steps

    def advance_handshake(self) -> None:
        self._steps.append(self._name)


class Storm:
    """Connections of several addresses, whose names begin with the address."""

    def __init__(self, *names: str) -> None:
        self.loop = Iterations()
        self.steps: list[str] = []
        self.turns = HandshakeTurns(self.loop)
        self.connections = {name: Shaking(name, self.steps) for name in names}
        for name in names:
            self.take(name)

    def take(self, name: str) -> bool:
        return self.turns.take(self.connections[name], name[0])

    def run(self) -> list[str]:
        """The steps of one iteration."""
        before = len(self.steps)
        self.loop.run()
        return self.steps[before:]


def test_a_handshake_alone_does_not_wait() -> None:
    storm = Storm("a1")
    assert storm.steps == ["a1"]
    assert storm.run() == []
    assert storm.take("a1"), "the next iteration has come"


def test_an_iteration_of_the_loop_has_at_most_one_step() -> None:
    """A storm of 100 connections held the loop for 100 signatures in one go."""
    storm = Storm("a1", "a2", "a3")
    assert storm.steps == ["a1"] and len(storm.turns) == 2
    assert not storm.take("a1"), "its next message waits behind the others"
    assert [storm.run() for _ in range(4)] == [["a2"], ["a3"], ["a1"], []]


def test_addresses_take_turns() -> None:
    """One address with many connections does not delay the handshake of another one."""
    storm = Storm("a1", "a2", "a3", "a4", "b1", "c1", "b2")
    assert [storm.run()[0] for _ in range(6)] == ["a2", "b1", "c1", "a3", "b2", "a4"]


def test_connections_that_end_do_not_wait() -> None:
    storm = Storm("a1", "a2", "b1", "b2")
    storm.turns.discard(storm.connections["a2"], "a")
    storm.turns.discard(storm.connections["b1"], "b")
    storm.turns.discard(storm.connections["b1"], "b")
    assert len(storm.turns) == 1
    assert [storm.run() for _ in range(2)] == [["b2"], []]
