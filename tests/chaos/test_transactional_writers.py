"""The lines of the Java writer become the history of its transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.history import History, Outcome
from chaos.transactional_writers import JavaWriter


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("committed", Outcome.ACKNOWLEDGED),
        ("aborted", Outcome.FAILED),
        ("unknown", Outcome.UNKNOWN),
        ("begin", Outcome.PENDING),
    ],
)
def test_lines_of_the_java_writer(end: str, outcome: Outcome) -> None:
    history = History()
    writer = JavaWriter("java", "host:1", "topic", 3, history, Path("jars"), 100)
    for line in ("begin", "sent 2 100", "sent 0 101", "acknowledged 100 7", end):
        writer.take(line.split())
    first, second = history.transactions[0]
    assert (first.partition, first.value, first.offset, first.outcome) == (2, 100, 7, outcome)
    assert (second.partition, second.offset, second.outcome) == (0, None, outcome)
    assert history.sends == [first, second]
