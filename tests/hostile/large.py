"""Requests that are large but valid, from the tables of fields alone.

For each list of a request (at any depth), each text and each byte string there is a case, in several forms.
`Case.build(size)` returns the request: `size` is the number of elements, or of characters. A new API, version
or field is covered because it is in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isqrt
from typing import Any, Final, NamedTuple, cast

from penstock.wire.api import Api
from penstock.wire.layout import fields_in
from penstock.wire.schema import Field, Struct, StructType
from tests.hostile.ordinary import TOPICS, ordinary_value

__all__ = ["Case", "Form", "cases"]

#: the longest text of the protocol
TEXT_MAX: Final = 0x7FFF


class Form(StrEnum):
    """How the elements of a long list differ from each other."""

    #: names that do not exist
    UNKNOWN = "unknown"
    #: one name, again and again
    SAME = "same"
    #: names that exist, in turn
    KNOWN = "known"
    #: as UNKNOWN, with long names
    WIDE = "wide"
    #: elements at all levels: the square root of the size at each of two
    DEEP = "deep"
    #: one long text or byte string
    LONG = "long"


@dataclass(frozen=True)
class Case:
    """One field of one version's request that grows."""

    api: Api[Any, Any]
    version: int
    #: the names of the fields from the request down to the one that grows
    path: tuple[str, ...]
    form: Form
    #: ids of the topics that exist
    topic_ids: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version} {'.'.join(self.path)} {self.form}"

    def build(self, size: int, salt: str = "") -> Struct:
        """The request. `salt` makes its unknown names differ from those of other requests."""
        request = _struct(_Build(self, salt), cast(StructType, self.api.request), self.path, size, 0)
        assert isinstance(request, Struct)
        return request


def cases(api: Api[Any, Any], version: int, topic_ids: tuple[bytes, ...] = ()) -> Iterator[Case]:
    """All cases of one version of an API."""
    for path, field in _growing(cast(StructType, api.request), version):
        if field.kind != "array":
            yield Case(api, version, path, Form.LONG, topic_ids)
            continue
        for form in (Form.UNKNOWN, Form.SAME, Form.KNOWN):
            yield Case(api, version, path, form, topic_ids)
        if _has_text(field, version):
            yield Case(api, version, path, Form.WIDE, topic_ids)
        if len(path) > 1:
            yield Case(api, version, path, Form.DEEP, topic_ids)


class _Build(NamedTuple):
    """A request that is being built."""

    case: Case
    salt: str

    @property
    def form(self) -> Form:
        return self.case.form


def _growing(cls: StructType, version: int) -> Iterator[tuple[tuple[str, ...], Field]]:
    """The paths of all lists, texts and byte strings."""
    sequence, tagged = fields_in(cls, version)
    for field in (*sequence, *tagged):
        if field.kind in ("array", "string", "bytes"):
            yield (field.name,), field
        if isinstance(field.of, StructType):
            for path, inner in _growing(field.of, version):
                yield (field.name, *path), inner


def _has_text(field: Field, version: int) -> bool:
    if not isinstance(field.of, StructType):
        return bool(field.of.kind == "string")
    return any(inner.kind == "string" for inner in fields_in(field.of, version)[0])


def _struct(build: _Build, cls: StructType, path: tuple[str, ...], size: int, number: int) -> Any:
    """A structure; `path` leads from it to the field that grows, and is empty elsewhere.

    `number` is its position in the list that grows.
    """
    sequence, tagged = fields_in(cls, build.case.version)
    values: dict[str, Any] = {}
    for field in (*sequence, *tagged):
        on_path = bool(path) and path[0] == field.name
        if field.tag is not None and not on_path:
            continue
        if on_path and len(path) == 1:
            values[field.name] = _grown(build, cls, field, size)
        else:
            values[field.name] = _value(build, cls, field, path[1:] if on_path else (), size, number)
    return cls(**values)


def _value(
    build: _Build, cls: StructType, field: Field, path: tuple[str, ...], size: int, number: int
) -> Any:
    if field.kind == "struct":
        return _struct(build, field.of, path, size, number)
    if field.kind != "array":
        return _numbered(build, field, ordinary_value(field, cls.__name__), number)
    if not path and number:
        # Lists of the elements of a long list have one element each, of their own.
        return [_element(build, cls, field, (), size, number)]
    count = isqrt(size) if path and build.form is Form.DEEP else 1
    inner = max(1, size // count)
    return [_element(build, cls, field, path, inner, at) for at in range(count)]


def _element(
    build: _Build, cls: StructType, field: Field, path: tuple[str, ...], size: int, number: int
) -> Any:
    if isinstance(field.of, StructType):
        return _struct(build, field.of, path, size, number)
    # An element of a list of texts is named as the list is.
    named = Field(field.of.kind, field.of.versions, field.of.default)
    named.name = field.name
    return _numbered(build, named, ordinary_value(named, cls.__name__), number)


def _grown(build: _Build, cls: StructType, field: Field, size: int) -> Any:
    if field.kind == "string":
        return "x" * min(size, TEXT_MAX)
    if field.kind == "bytes":
        return b"x" * size
    if (
        not isinstance(field.of, StructType)
        and field.of.kind.startswith("int")
        and build.form is not Form.SAME
    ):
        return [number % _INTEGERS[field.of.kind] for number in range(size)]
    return [_element(build, cls, field, (), size, number) for number in range(size)]


#: above the largest value of a kind of integers
_INTEGERS: Final = {"int8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}
#: how a simple value of the element `number` differs from that of the first
_TEXTS: Final[dict[Form, Callable[[str, str, int], str]]] = {
    Form.UNKNOWN: lambda text, salt, number: f"{text}{salt}-{number}",
    Form.WIDE: lambda text, salt, number: f"{text}{salt}-{number:0>200}",
    Form.DEEP: lambda text, salt, number: f"{text}{salt}-{number}",
    Form.LONG: lambda text, salt, number: f"{text}{salt}-{number}",
}
_NUMBERED: Final = frozenset({"index", "partition", "partition_index", "partition_id"})


def _numbered(build: _Build, field: Field, value: Any, number: int) -> Any:
    """The value of a simple field in the element `number`."""
    if build.form is Form.SAME:
        return value
    if field.name in _NUMBERED:
        return number % 3 if build.form is Form.KNOWN else number
    if field.kind == "uuid":
        known = build.form is Form.KNOWN and bool(build.case.topic_ids)
        return (
            build.case.topic_ids[number % len(build.case.topic_ids)]
            if known
            else (number + 1).to_bytes(16, "big")
        )
    if field.kind != "string" or field.name in _FIXED_TEXTS or not (number or build.salt):
        return value
    if build.form is Form.KNOWN:
        return list(TOPICS)[number % len(TOPICS)] if value in TOPICS else value
    return _TEXTS[build.form](value, build.salt, number)


#: texts from a small set of values, which are the same in all elements
_FIXED_TEXTS: Final = frozenset({"host", "entity_type", "protocol_type", "group_id", "value"})
