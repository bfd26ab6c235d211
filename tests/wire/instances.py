"""Random messages built from the tables alone, full of edge values; the same seed gives the same message."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from penstock.wire.layout import fields_in, in_versions
from penstock.wire.schema import OWN_TAGS, Field, Struct

S = TypeVar("S", bound=Struct)

_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
#: Around the lengths where a varint grows by a byte, empty, and more than one byte per character.
_STRINGS = ("", "a", "topic-1", "x" * 126, "x" * 127, "x" * 128, "ü€😀", "x" * 17000)
_BYTES = (b"", b"\0", b"some bytes", b"y" * 127, b"y" * 300)
_RECORDS = (b"", b"z" * 61, b"z" * 126, b"z" * 127, b"z" * 20000)
#: Kafka's error codes that every oracle knows.
_ERROR_CODES = range(-1, 120)


def instance(cls: type[S], version: int, random: Random, *, plausible: bool = False) -> S:
    """A message of `version`; `plausible` keeps to values that oracles with richer types can represent."""
    sequence, tagged = fields_in(cls, version)
    values = {field.name: _value(field, version, random, plausible) for field in sequence}
    for field in tagged:
        if plausible and (field.tag or 0) >= OWN_TAGS:
            # No oracle has a schema for what is only ours.
            continue
        value = _value(field, version, random, plausible)
        # A structure of nothing but defaults is what others leave out; we leave out None.
        if random.random() < 0.5 and not (field.kind == "struct" and value == field.of()):
            values[field.name] = value
    return cls(**values)


def _value(field: Field, version: int, random: Random, plausible: bool) -> Any:
    if field.kind != "records" and in_versions(field.nullable, version) and random.random() < 0.3:
        return None
    if field.kind == "array":
        sizes = (0, 1, 2) if isinstance(field.of, type) else (0, 1, 3, 130)
        return [_element(field.of, version, random, plausible) for _ in range(random.choice(sizes))]
    if field.kind == "struct":
        return instance(field.of, version, random, plausible=plausible)
    return _simple(field, random, plausible)


def _element(of: Any, version: int, random: Random, plausible: bool) -> Any:
    if isinstance(of, type):
        return instance(of, version, random, plausible=plausible)
    return _simple(of, random, plausible)


def _simple(field: Field, random: Random, plausible: bool) -> Any:
    if field.kind in _RANGES:
        return _integer(field, random, plausible)
    if field.kind == "bool":
        return random.random() < 0.5
    if field.kind == "float64":
        return random.choice((0.0, -1.5, 1e300, float(random.randint(0, 10**9))))
    if field.kind == "uuid":
        return random.choice((bytes(16), random.randbytes(16)))
    if field.kind == "records":
        return random.choice((None, *_RECORDS) if field.nullable else _RECORDS)
    if field.kind == "bytes":
        return random.choice(_BYTES)
    assert field.kind == "string", field.kind
    return random.choice(_STRINGS)


def _integer(field: Field, random: Random, plausible: bool) -> int:
    low, high = _RANGES[field.kind]
    if plausible and field.name.endswith("error_code"):
        return random.choice(_ERROR_CODES)
    if plausible and field.name.endswith("_ms"):
        return random.randrange(0, 2**31)
    return random.choice((low, high, 0, 1, -1 if low else 1, random.randint(low, high)))
