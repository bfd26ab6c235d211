"""Task attempts and drivers against a broker, without Spark: every order of events in which a part dies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.errors import ApiError
from penstock.spark.exactly_once.coordinators import DecisionBroken
from penstock.spark.exactly_once.decisions import CLOSED, Decision
from penstock.spark.exactly_once.writers import write_attempt
from tests.spark.exactly_once.sinks import Sink, committed_values, rows

FENCED = r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED"


@pytest.fixture
def sink(bootstrap: str, topic: str) -> Sink:
    return Sink(bootstrap, topic)


def decide(sink: Sink, decision: Decision) -> None:
    """What a driver does that dies before it ends a transaction."""
    me = sink.coordinators.begin(sink.settings.names.driver(sink.query), two_phase=False)
    sink.journal.write(sink.coordinators, me, decision)


def test_a_batch_is_visible_after_its_commit(sink: Sink, bootstrap: str, topic: str) -> None:
    reports = [sink.prepared(0, f"a{task}", f"b{task}", partition=task) for task in range(3)]
    assert committed_values(bootstrap, topic) == []
    sink.driver.commit(sink.query, 0, reports)
    assert committed_values(bootstrap, topic) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert sink.open_ids() == []


def test_attempts_that_spark_has_not_chosen_are_aborted(sink: Sink, bootstrap: str, topic: str) -> None:
    """A speculative attempt, and one whose executor died before its report."""
    sink.prepared(0, "lost")
    chosen = sink.prepared(0, "chosen")
    sink.prepared(0, "slower")
    sink.driver.commit(sink.query, 0, [chosen])
    assert committed_values(bootstrap, topic) == ["chosen"]
    assert sink.open_ids() == []
    assert sink.coordinators.listed(sink.settings.names.query_pattern(sink.query), ["Empty"]) == []


def test_a_restarted_driver_commits_the_decided_transactions(sink: Sink, bootstrap: str, topic: str) -> None:
    first, second = sink.prepared(3, "one"), sink.prepared(3, "two", partition=1)
    sink.prepared(3, "lost")
    decide(sink, Decision(sink.query, 3, (first, second)))
    assert committed_values(bootstrap, topic) == []
    # Spark runs the batch again: its tasks write nothing, and report nothing.
    assert sink.attempt(3, "one again") is None
    sink.driver.commit(sink.query, 3, [])
    assert committed_values(bootstrap, topic) == ["one", "two"]
    assert sink.open_ids() == []
    sink.driver.commit(sink.query, 3, [])
    assert committed_values(bootstrap, topic) == ["one", "two"]


def test_a_driver_that_dies_between_two_ends_is_finished(sink: Sink, bootstrap: str, topic: str) -> None:
    first, second = sink.prepared(0, "one"), sink.prepared(0, "two", partition=1)
    decide(sink, Decision(sink.query, 0, (first, second)))
    sink.coordinators.commit([first], is_resumed=False)
    sink.driver.abort(sink.query, 0, [], {sink.run})
    assert committed_values(bootstrap, topic) == ["one", "two"]


def test_an_abort_after_a_decision_commits(sink: Sink, bootstrap: str, topic: str) -> None:
    """Spark calls `abort` when `commit` has raised, which says nothing about the decision."""
    prepared = sink.prepared(0, "row")
    decide(sink, Decision(sink.query, 0, (prepared,)))
    sink.driver.abort(sink.query, 0, [prepared], {sink.run})
    assert committed_values(bootstrap, topic) == ["row"]


def test_an_aborted_batch_is_written_again(sink: Sink, bootstrap: str, topic: str) -> None:
    sink.prepared(0, "unreported")
    sink.driver.abort(sink.query, 0, [sink.prepared(0, "reported")], {sink.run})
    assert (committed_values(bootstrap, topic), sink.open_ids()) == ([], [])
    sink.driver.commit(sink.query, 0, [sink.prepared(0, "again")])
    assert committed_values(bootstrap, topic) == ["again"]


def test_an_abort_leaves_the_attempts_of_other_runs(sink: Sink, bootstrap: str, topic: str) -> None:
    """A driver that stood still aborts its batch while its successor is about to decide."""
    lost = sink.prepared(0, "old")
    sink.run = "2"
    chosen = sink.prepared(0, "new")
    sink.driver.abort(sink.query, 0, [], {"1"})
    assert sink.open_ids() == [chosen.transactional_id]
    sink.driver.commit(sink.query, 0, [chosen])
    assert lost.transactional_id not in sink.open_ids()
    assert committed_values(bootstrap, topic) == ["new"]


def test_a_second_driver_fences_the_first(sink: Sink, bootstrap: str, topic: str) -> None:
    """A driver that stood still writes its decision after its successor has decided."""
    names = sink.settings.names
    me = sink.coordinators.begin(names.driver(sink.query), two_phase=False)
    old, new = sink.prepared(0, "old"), sink.prepared(0, "new")
    sink.driver.commit(sink.query, 0, [new])
    with pytest.raises(Exception, match=FENCED):
        sink.journal.write(sink.coordinators, me, Decision(sink.query, 0, (old,)))
    last = sink.journal.last(sink.query)
    assert last is not None
    assert last.transactions == (new,)
    assert committed_values(bootstrap, topic) == ["new"]


def test_an_attempt_that_starts_after_the_decision_writes_nothing(
    sink: Sink, bootstrap: str, topic: str
) -> None:
    sink.driver.commit(sink.query, 1, [sink.prepared(1, "row")])
    assert sink.attempt(1, "late") is None
    assert sink.attempt(0, "later") is None
    assert sink.open_ids() == []
    assert committed_values(bootstrap, topic, isolation="read_uncommitted") == ["row"]


def test_an_attempt_that_began_before_the_decision_is_fenced(sink: Sink, bootstrap: str, topic: str) -> None:
    """It has its epoch, has read that nothing is decided, and writes its first row after the commit."""

    def slow() -> Iterator[Any]:
        yield from rows("early")
        sink.driver.commit(sink.query, 0, [sink.prepared(0, "chosen")])
        yield from rows("late")

    with pytest.raises(Exception, match=FENCED):
        write_attempt(sink.settings, sink.query, sink.run, 0, 0, slow())
    assert committed_values(bootstrap, topic) == ["chosen"]
    assert sink.open_ids() == []


def test_a_decided_transaction_that_something_else_aborts_is_an_error(sink: Sink) -> None:
    prepared = sink.prepared(0, "row")
    decide(sink, Decision(sink.query, 0, (prepared,)))
    sink.coordinators.fence([prepared.transactional_id])
    with pytest.raises(DecisionBroken, match=f"{prepared.transactional_id} with 1 rows is decided"):
        sink.driver.commit(sink.query, 0, [])


def test_queries_do_not_touch_each_other(bootstrap: str, topic: str) -> None:
    one, other = Sink(bootstrap, topic), Sink(bootstrap, topic)
    theirs = other.prepared(0, "theirs")
    one.driver.commit(one.query, 0, [one.prepared(0, "ours")])
    assert other.open_ids() == [theirs.transactional_id]
    other.driver.commit(other.query, 0, [theirs])
    assert committed_values(bootstrap, topic) == ["ours", "theirs"]


def test_a_closed_query_takes_no_more_rows(sink: Sink) -> None:
    sink.driver.commit(sink.query, 0, [sink.prepared(0, "row")])
    sink.driver.close(sink.query)
    last = sink.journal.last(sink.query)
    assert last == Decision(sink.query, CLOSED, ())
    assert sink.attempt(0, "late") is None
    assert sink.query not in [each.query for each in sink.journal.all()]


def test_a_batch_without_rows_leaves_no_record(sink: Sink) -> None:
    assert sink.attempt(5) is None
    sink.driver.commit(sink.query, 5, [])
    assert sink.journal.last(sink.query) is None


def test_an_attempt_that_fails_aborts_its_transaction(sink: Sink) -> None:

    def failing() -> Iterator[Any]:
        yield from rows("row")
        raise ValueError("the query's own code")

    with pytest.raises(ValueError, match="own code"):
        write_attempt(sink.settings, sink.query, sink.run, 0, 0, failing())
    assert sink.open_ids() == []


def test_a_topic_that_does_not_exist_fails_the_attempt(bootstrap: str) -> None:
    sink = Sink(bootstrap, "sink-nowhere")
    with pytest.raises(ApiError, match="there is no topic sink-nowhere"):
        sink.attempt(0, "row")
