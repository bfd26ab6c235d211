"""What is encoded decodes to itself, whatever the values, and what a newer peer adds is skipped."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from penstock.wire.compiler import encoder
from penstock.wire.layout import fields_in
from penstock.wire.schema import Field, Struct, StructType, string
from tests.wire.cases import CASES, Case
from tests.wire.instances import instance

FLEXIBLE = [case for case in CASES if case.version >= case.api.flexible_from]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_message_survives_the_wire(case: Case) -> None:
    random = Random(f"any {case}")
    for _ in range(10):
        message = instance(case.message, case.version, random)
        assert case.decode(case.encode(message)) == message


@pytest.mark.parametrize("case", CASES, ids=str)
def test_defaults_survive_the_wire(case: Case) -> None:
    message = case.message()
    assert case.decode(case.encode(message)) == message


@pytest.mark.parametrize("case", FLEXIBLE, ids=str)
def test_unknown_tags_are_skipped_at_every_level(case: Case) -> None:
    """KIP-482: a peer may send tagged fields that we have never heard of, in any structure."""
    random = Random(f"tags {case}")
    newer = _with_unknown_tags(case.message)
    encode = encoder(newer, case.version, flexible=True)
    for _ in range(3):
        message = instance(newer, case.version, random)
        encoded = b"".join(cast("list[bytes]", encode(message)))
        assert case.decode(encoded) == _known(message, case.message, case.version)


def _with_unknown_tags(cls: type[Struct]) -> type[Struct]:
    """The same table, in which each structure got two tagged fields more: a small one and a large one."""
    body: dict[str, Any] = {}
    for field in cls.fields:
        of = _with_unknown_tags(field.of) if isinstance(field.of, type) else field.of
        body[field.name] = Field(
            field.kind, field.versions, field.default, nullable=field.nullable, tag=field.tag, of=of
        )
    body["unknown"] = string(tag=100)
    body["unknown_later"] = string(tag=30000)
    made: type[Struct] = StructType(cls.__name__, (Struct,), body)  # type: ignore[assignment]
    return made


def _known(message: Struct, cls: type[Struct], version: int) -> Struct:
    """`message` without what it got from `_with_unknown_tags`."""
    sequence, tagged = fields_in(cls, version)
    values = {}
    for field in sequence + tagged:
        value = getattr(message, field.name)
        if isinstance(field.of, type) and isinstance(value, list):
            value = [_known(item, field.of, version) for item in value]
        elif isinstance(field.of, type) and value is not None:
            value = _known(value, field.of, version)
        values[field.name] = value
    return cls(**values)
