"""Schemas for pages: text, differences within bounds, subjects of topics."""

from __future__ import annotations

import json
import time

import pytest

from penstock.console.views.schemas import (
    Checked,
    Draft,
    Reference,
    SchemaVersion,
    diff_lines,
    schema_text,
    subject_rows,
    topic_of,
    version_view,
)


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", ("orders", "value")),
        ("a-b-key", ("a-b", "key")),
        ("orders", None),
        ("-value", None),
        ("orders-Value", None),
        ("com.example.Order", None),
    ],
)
def test_topic_name_strategy(subject: str, topic: tuple[str, str] | None) -> None:
    assert topic_of(subject) == topic


def test_subjects_have_the_topics_that_are_there() -> None:
    rows = subject_rows(["orders-value", "lost-value", "plain"], ["old-key"], {"orders", "old"})
    assert [(row["name"], row["topic"], row["deleted"]) for row in rows] == [
        ("orders-value", "orders", False),
        ("lost-value", None, False),
        ("plain", None, False),
        ("old-key", "old", True),
    ]


def test_avro_and_json_are_printed_on_lines_and_protobuf_as_it_is() -> None:
    assert schema_text("AVRO", '{"type":"long","n":9007199254740993}') == (
        '{\n  "type": "long",\n  "n": 9007199254740993\n}',
        False,
    )
    proto = 'syntax = "proto3";\nmessage A {}'
    assert schema_text("PROTOBUF", proto) == (proto, False)
    assert schema_text("AVRO", "{broken")[0] == "{broken"
    assert "\u202e" not in schema_text("PROTOBUF", "a\u202eb")[0]


def test_a_schema_that_grows_by_its_indentation_is_cut() -> None:
    text, cut = schema_text("AVRO", "[" * 1000 + "1," * 200_000 + "1" + "]" * 1000)
    assert (len(text) <= 400_000, cut) == (True, True)


def test_a_version_names_its_references() -> None:
    reference = Reference("a", "customer", 3)
    shown = version_view(SchemaVersion('"long"', "s", 2, 7, None, [reference] * 300))
    assert (shown["type"], shown["id"], shown["version"]) == ("AVRO", 7, 2)
    assert shown["references"][0] == {"name": "a", "subject": "customer", "version": 3}
    assert (len(shown["references"]), shown["references_more"]) == (200, 100)


def test_a_difference_has_its_surroundings_only() -> None:
    before = [f"line {n}" for n in range(100)]
    after = [*before[:50], "new", *before[51:]]
    found = diff_lines("\n".join(before), "\n".join(after))
    assert found == [
        ("…", ""),
        *((" ", f"line {n}") for n in (47, 48, 49)),
        ("-", "line 50"),
        ("+", "new"),
        *((" ", f"line {n}") for n in (51, 52, 53)),
        ("…", ""),
    ]
    assert diff_lines("a\nb", "a\nb") == []
    assert diff_lines("", "a") == [("-", ""), ("+", "a")]


def test_texts_that_differ_too_much_are_not_compared() -> None:
    # Each line is there ten times, in another order: the worst case of the comparison.
    lines = [str(n % 100) for n in range(1_000)]
    began = time.process_time()
    assert diff_lines("\n".join(lines), "\n".join(reversed(lines))) is None
    assert diff_lines("\n".join(lines[:500]), "\n".join(reversed(lines[:500]))) is not None
    assert time.process_time() - began < 10


def test_a_draft_without_a_type_is_avros() -> None:
    assert Draft('"long"').body() == {"schema": '"long"'}
    draft = Draft("{}", "JSON", [Reference("a", "b", 1)])
    assert json.loads(json.dumps(draft.body()["schemaType"])) == "JSON"
    assert draft.body()["references"] == [Reference("a", "b", 1)]


def test_messages_of_a_check_are_bounded() -> None:
    shown = Checked(False, ["x" * 10_000] * 60, None).shown()
    assert (len(shown["messages"]), len(shown["messages"][0]), shown["more"]) == (50, 2_000, 10)
