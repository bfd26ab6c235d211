"""Parses schemas of Protobuf's language into tables of fields. Nothing is compiled or run.

Only the parts that matter for decoding are kept: packages, messages, enums, fields, maps and groups. Options,
services, extensions and reserved ranges are skipped. Types are resolved as `protoc` resolves them, from the
innermost scope outwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.registry.schemas import InvalidSchema

__all__ = [
    "SCALARS",
    "WELL_KNOWN",
    "EnumType",
    "Field",
    "InvalidSchema",
    "MessageType",
    "ProtoFile",
    "parse_proto",
]

SCALARS: Final = frozenset(
    [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    ]
)
_DEPTH_MAX: Final = 60
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/            # skipped
    |("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(\.?[A-Za-z_][\w.]*)
    |([+-]?(?:0[xX][0-9a-fA-F]+|[0-9][\w.+-]*|\.[0-9]+))
    |([-{}()\[\]<>;=,:/])""",
    re.DOTALL | re.VERBOSE,
)
_LABELS: Final = ("optional", "required", "repeated")
#: files that schemas may import without a reference to them
WELL_KNOWN: Final = """
package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Any { string type_url = 1; bytes value = 2; }
message Empty {}
message FieldMask { repeated string paths = 1; }
message DoubleValue { double value = 1; } message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; } message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; } message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; } message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }
message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;
  bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
"""


class Field(NamedTuple):
    """`kind` is a scalar, or the full name of a message or an enum once it is resolved."""

    name: str
    number: int
    kind: str
    repeated: bool = False
    #: kind of the keys of a map, whose values have `kind`
    key_kind: str | None = None
    is_group: bool = False
    #: whether a message without the field differs from one with its default
    has_presence: bool = True


@dataclass(slots=True)
class MessageType:
    name: str
    fields: dict[int, Field] = field(default_factory=dict)
    #: nested messages in the order of the schema, which indexes in payloads count
    nested: list[MessageType] = field(default_factory=list)


@dataclass(slots=True)
class EnumType:
    name: str
    values: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class ProtoFile:
    """The messages of one file in their order, and all types by full name."""

    package: str = ""
    syntax: str = "proto2"
    top: list[MessageType] = field(default_factory=list)
    messages: dict[str, MessageType] = field(default_factory=dict)
    enums: dict[str, EnumType] = field(default_factory=dict)

    def resolve(self, others: Iterable[ProtoFile]) -> None:
        """Replace the names of types by full names, of this file and the imported ones."""
        known = {*self.messages, *self.enums}
        for other in others:
            self.messages = {**other.messages, **self.messages}
            self.enums = {**other.enums, **self.enums}
        known |= {*self.messages, *self.enums}
        for message in list(self.messages.values()):
            for number, each in message.fields.items():
                message.fields[number] = each._replace(kind=_resolved(each.kind, message.name, known))


def _resolved(kind: str, scope: str, known: set[str]) -> str:
    if kind in SCALARS or kind in known:
        return kind
    if kind.startswith("."):
        return kind[1:]
    parts = scope.split(".")
    for length in range(len(parts), -1, -1):
        candidate = ".".join([*parts[:length], kind])
        if candidate in known:
            return candidate
    raise InvalidSchema(f"{scope} uses {kind}, which no file of the schema defines")


def parse_proto(text: str) -> ProtoFile:
    """The types of a file; InvalidSchema if the text is none."""
    parser = _Parser(text)
    try:
        return parser.file()
    except IndexError as error:
        raise InvalidSchema("the schema ends in the middle of a definition") from error


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._file = ProtoFile()

    def file(self) -> ProtoFile:
        while self._at < len(self._tokens):
            word = self._next()
            if word == "syntax":
                self._expect("=")
                self._file.syntax = self._next().strip("\"'")
                self._expect(";")
            elif word == "package":
                self._file.package = self._next()
                self._expect(";")
            elif word == "message":
                self._file.top.append(self._message(self._file.package, 0))
            elif word == "enum":
                self._enum(self._file.package)
            elif word != ";":
                self._skip()
        return self._file

    def _message(self, scope: str, depth: int) -> MessageType:
        name = _joined(scope, self._next())
        return self._body(MessageType(name), depth)

    def _body(self, message: MessageType, depth: int) -> MessageType:
        if depth > _DEPTH_MAX:
            raise InvalidSchema(f"{message.name} is nested too deep")
        self._file.messages[message.name] = message
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "message":
                message.nested.append(self._message(message.name, depth + 1))
            elif word == "enum":
                self._enum(message.name)
            elif word == "oneof":
                self._next()
                self._oneof(message, depth)
            elif word in ("option", "reserved", "extensions", "extend"):
                self._skip()
            elif word != ";":
                self._field(message, word, depth)
        return message

    def _oneof(self, message: MessageType, depth: int) -> None:
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip()
            elif word != ";":
                self._field(message, word, depth, in_oneof=True)

    def _field(self, message: MessageType, word: str, depth: int, *, in_oneof: bool = False) -> None:
        label = word if word in _LABELS else None
        kind = self._next() if label is not None else word
        key_kind = None
        if kind == "map":
            self._expect("<")
            key_kind = self._next()
            self._expect(",")
            kind = self._next()
            self._expect(">")
        name = self._next()
        self._expect("=")
        number = self._number()
        is_group = kind == "group"
        if is_group:
            # A group is a message and a field at once.
            nested = MessageType(_joined(message.name, name))
            self._options()
            message.nested.append(self._body(nested, depth + 1))
            kind, name = nested.name, name.lower()
        else:
            self._options()
            self._expect(";")
        repeated = label == "repeated"
        # Of proto3, the fields of other messages have presence, too: the kind decides that.
        has_presence = label == "optional" or in_oneof or self._file.syntax != "proto3"
        message.fields[number] = Field(name, number, kind, repeated, key_kind, is_group, has_presence)

    def _enum(self, scope: str) -> None:
        found = EnumType(_joined(scope, self._next()))
        self._file.enums[found.name] = found
        self._expect("{")
        while (word := self._next()) != "}":
            if word in ("option", "reserved"):
                self._skip()
            elif word != ";":
                self._expect("=")
                # The first name of a number counts, as for aliases in JSON.
                found.values.setdefault(self._number(), word)
                self._options()
                self._expect(";")

    def _options(self) -> None:
        if self._tokens[self._at] == "[":
            self._balanced("[", "]")

    def _skip(self) -> None:
        """Skip a statement: to its semicolon, or to the end of its block."""
        while True:
            word = self._tokens[self._at]
            if word == "{":
                self._balanced("{", "}")
                # An option may have a semicolon behind its block.
                return
            self._at += 1
            if word == ";":
                return

    def _balanced(self, opening: str, closing: str) -> None:
        depth = 0
        while True:
            word = self._next()
            depth += (word == opening) - (word == closing)
            if depth == 0:
                return

    def _number(self) -> int:
        word = self._next()
        if word == "-":
            word += self._next()
        try:
            return int(word, 0)
        except ValueError as error:
            raise InvalidSchema(f"{word!r} is not a number of a field or of an enum") from error

    def _next(self) -> str:
        word = self._tokens[self._at]
        self._at += 1
        return word

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise InvalidSchema(f"{wanted!r} is missing before {found!r}")


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(f"unexpected {text[position]!r} at character {position}")
        position = match.end()
        if match.lastindex is not None:
            found.append(match[match.lastindex])
    return found
