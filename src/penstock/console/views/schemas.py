"""Schemas of a registry for pages: text, difference of two versions, subjects of topics.

All texts come from a registry that may be hostile: they are cut, invisible characters are made visible, and a
difference of long texts is refused instead of computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

import msgspec

from penstock.console.views.json_text import is_json, pretty_json
from penstock.console.views.payloads import visible
from penstock.registry.schemas import Draft, Reference, SchemaVersion

__all__ = [
    "LEVELS",
    "PARTS",
    "TYPES",
    "Checked",
    "Draft",
    "Level",
    "Reference",
    "SchemaVersion",
    "SubjectVersion",
    "diff_lines",
    "schema_text",
    "subject_of",
    "subject_rows",
    "topic_of",
    "version_view",
]

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
#: the parts of a message that a subject of TopicNameStrategy is for
PARTS: Final = ("key", "value")
_TEXT_MAX: Final = 400_000
_REFERENCES_MAX: Final = 200
_MESSAGES_MAX: Final = 50
_MESSAGE_TEXT: Final = 2_000
#: lines that differ between two versions, in both
_DIFF_MAX: Final = 1_000
#: equal lines around a difference
_CONTEXT: Final = 3


class SubjectVersion(msgspec.Struct, frozen=True):
    subject: str
    version: int


class Level(NamedTuple):
    """A compatibility level, and whether it is the subject's own."""

    name: str
    is_own: bool


class Checked(NamedTuple):
    """The result for a draft: None if the subject has no version yet; the version that is equal to it."""

    compatible: bool | None
    messages: list[str]
    known_version: int | None

    def shown(self) -> dict[str, Any]:
        messages = [visible(text[:_MESSAGE_TEXT]) for text in self.messages[:_MESSAGES_MAX]]
        return {
            "compatible": self.compatible,
            "messages": messages,
            "more": max(0, len(self.messages) - len(messages)),
            "known_version": self.known_version,
        }


def topic_of(subject: str) -> tuple[str, str] | None:
    """The topic and the part of a message that a subject is for, by TopicNameStrategy; None if for none."""
    topic, dash, part = subject.rpartition("-")
    return (topic, part) if dash and topic and part in PARTS else None


def subject_of(topic: str, part: str) -> str:
    return f"{topic}-{part}"


def subject_rows(
    live: Iterable[str], deleted: Iterable[str], topics: Collection[str]
) -> list[dict[str, Any]]:
    """Subjects for a list, with their topics if these are among `topics`."""
    rows = []
    for names, is_deleted in ((live, False), (deleted, True)):
        for name in names:
            topic, part = topic_of(name) or (None, None)
            is_known = topic in topics
            rows.append(
                {
                    "name": name,
                    "topic": topic if is_known else None,
                    "part": part if is_known else None,
                    "deleted": is_deleted,
                }
            )
    return rows


def schema_text(kind: str, text: str) -> tuple[str, bool]:
    """The text of a schema on lines, and whether it was cut."""
    if kind != "PROTOBUF" and is_json(text.encode(errors="surrogatepass")):
        shown, cut = pretty_json(text, _TEXT_MAX)
    else:
        shown, cut = text[:_TEXT_MAX], len(text) > _TEXT_MAX
    shown = visible(shown)
    return shown[:_TEXT_MAX], cut or len(shown) > _TEXT_MAX


def version_view(found: SchemaVersion) -> dict[str, Any]:
    """A schema for a page."""
    text, cut = schema_text(found.kind, found.schema)
    references = found.references or []
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "type": found.kind,
        "text": text,
        "truncated": cut,
        #: whether the text is the schema, apart from blanks: a draft may begin with it
        "exact": not cut and visible(found.schema) == found.schema,
        "references": [
            {"name": visible(each.name), "subject": each.subject, "version": each.version}
            for each in references[:_REFERENCES_MAX]
        ],
        "references_more": max(0, len(references) - _REFERENCES_MAX),
    }


def diff_lines(before: str, after: str) -> list[tuple[str, str]] | None:
    """Lines of a difference as (sign, text): `+`, `-`, a blank, or `…` for lines that are left out.

    None if the texts differ too much: the time for a difference grows with the square of its lines.
    """
    old, new = before.split("\n"), after.split("\n")
    head = _same(old, new)
    tail = _same(old[head:][::-1], new[head:][::-1])
    changed_old, changed_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(changed_old) + len(changed_new) > _DIFF_MAX:
        return None
    lines = [(" ", line) for line in old[:head]]
    for tag, first, last, start, end in SequenceMatcher(None, changed_old, changed_new).get_opcodes():
        if tag == "equal":
            lines += [(" ", line) for line in changed_old[first:last]]
        else:
            lines += [("-", line) for line in changed_old[first:last]]
            lines += [("+", line) for line in changed_new[start:end]]
    lines += [(" ", line) for line in old[len(old) - tail :]]
    return _folded(lines)


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines are equal from the beginning."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _folded(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without equal lines that are far from a difference."""
    changed = [n for n, (sign, _) in enumerate(lines) if sign != " "]
    near = {n + step for n in changed for step in range(-_CONTEXT, _CONTEXT + 1)}
    found: list[tuple[str, str]] = []
    for n, line in enumerate(lines):
        if n in near:
            found.append(line)
        elif not found or found[-1][0] != "…":
            found.append(("…", ""))
    return found if changed else []
