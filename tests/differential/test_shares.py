"""Bad input to the APIs of share groups on Penstock, beside the recorded outcomes of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from differential.normalise import CLOSED, SILENT
from differential.shares.cases import SETTINGS, cases
from differential.shares.hostile import compare
from differential.shares.outcomes import DEVIATIONS, RECORDED, recorded, unexplained
from differential.shares.scene import Place
from differential.shares.table import run
from penstock.testing.brokers import broker


@contextmanager
def penstock() -> Iterator[Place]:
    with broker(config=SETTINGS) as running:
        host, _, port = running.bootstrap.rpartition(":")
        yield Place(host, int(port))


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with penstock() as started:
        yield started


@pytest.fixture(scope="module")
def ours(place: Place) -> dict[str, str]:
    return run(place)


def test_every_case_has_an_answer(ours: dict[str, str]) -> None:
    unanswered = ("not prepared", CLOSED, SILENT, "UNKNOWN_SERVER_ERROR")
    found = {name for name, outcome in ours.items() if outcome.startswith(unanswered)}
    assert found == {"ShareFetch: an empty group"}, "a group without state, as in Kafka"


@pytest.mark.skipif(not RECORDED.exists(), reason="`make share-errors` has not recorded Kafka's outcomes")
def test_every_case_has_kafkas_outcome_or_a_reason(ours: dict[str, str]) -> None:
    theirs = recorded()
    assert theirs.keys() <= ours.keys(), "run `make share-errors`"
    assert unexplained(ours, theirs) == {}
    assert {name for name in DEVIATIONS if ours[name] == theirs[name]} == set(), "these do not differ"


def test_names_are_unique() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)


def test_random_requests_have_one_outcome(place: Place) -> None:
    """Penstock agrees with itself: nothing in the comparison depends on time or on ids."""
    with penstock() as other:
        assert compare(place, other, 1, 30, "hostile") == []
