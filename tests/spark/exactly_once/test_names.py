"""Transactional ids: what they say, and which patterns find them."""

from __future__ import annotations

import re2

from penstock.spark.exactly_once.names import AttemptName, Names, run_name

QUERY = "6f1c1b52-58c1-4c62-9d0b-3f2f4f7a9c11"
ATTEMPT = AttemptName(QUERY, "5e4d3c2b", 12, 3, "0a1b2c")


def test_the_id_of_an_attempt_names_its_parts() -> None:
    names = Names("team.a+b")
    transactional_id = names.attempt(ATTEMPT)
    assert transactional_id == f"team.a+b.{QUERY}.5e4d3c2b.12.3.0a1b2c"
    assert names.parse(transactional_id) == ATTEMPT


def test_other_ids_are_not_attempts() -> None:
    names = Names("p")
    assert names.parse(Names("q").attempt(ATTEMPT)) is None
    for foreign in (names.driver(QUERY), names.probe(), "orders-1", "p", ""):
        assert names.parse(foreign) is None
    assert names.parse(names.attempt(ATTEMPT).replace(".12.", ".x.")) is None


def test_the_pattern_matches_attempts_of_its_query() -> None:
    names = Names("a.b")
    own, earlier = names.attempt(ATTEMPT), names.attempt(ATTEMPT._replace(batch=2))
    theirs = names.attempt(ATTEMPT._replace(query="00000000-0000-0000-0000-000000000000"))
    ids = [own, earlier, theirs, names.driver(QUERY), names.probe(), own.replace("a.b", "axb")]

    def matched(pattern: str) -> list[str]:
        return [each for each in ids if re2.fullmatch(pattern, each)]

    assert matched(names.query_pattern(QUERY)) == [own, earlier]


def test_the_name_of_a_run_is_the_start_of_its_id() -> None:
    assert run_name("5E4D3C2B-58c1-4c62-9d0b-3f2f4f7a9c11") == "5e4d3c2b"
    assert run_name("a-b") == "ab"
    assert run_name(None) == "job"
