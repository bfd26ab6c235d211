"""What a count proves."""

from __future__ import annotations

import pytest

from kubernetes_rehearsal.judging import count, last_said


def test_each_number_read_once_adds_up() -> None:
    assert count(3, ["2\n", "0\n", "1\n", "\n"]).adds_up


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0", "2"], "2 of 3 read, 1 lost, 0 repeated, 0 unknown"),
        (["0", "1", "1", "2"], "4 of 3 read, 0 lost, 1 repeated, 0 unknown"),
        (["0", "1", "2", "3"], "4 of 3 read, 0 lost, 0 repeated, 1 unknown"),
        (["0", "1", "1"], "3 of 3 read, 1 lost, 1 repeated, 0 unknown"),
    ],
)
def test_a_difference_does_not_add_up(lines: list[str], said: str) -> None:
    found = count(3, lines)
    assert not found.adds_up
    assert str(found) == said


def test_nothing_sent_proves_nothing() -> None:
    assert not count(0, []).adds_up


def test_the_last_line_of_the_load_counts() -> None:
    log = '{"sent": 1}\n{"sent": 9, "ended": true}\n%4|1762|FAIL|rdkafka#producer-1| a broker is away\n'
    assert last_said(log) == {"sent": 9, "ended": True}
    assert last_said("") == {}
