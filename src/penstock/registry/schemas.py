"""Schemas as a registry has them, those that they refer to, and Avro's as fastavro uses them."""

from __future__ import annotations

import struct
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.model.errors import PenstockError
from penstock.registry.http import RegistryHttp

__all__ = [
    "MISFITS",
    "AvroSchema",
    "Draft",
    "InvalidSchema",
    "Reference",
    "SchemaVersion",
    "parsed_avro",
    "referenced",
]

_REFERENCES_MAX: Final = 50
#: what the decoders of all kinds raise for bytes that do not fit a schema
MISFITS: Final = (
    msgspec.DecodeError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    RecursionError,
    struct.error,
)


class InvalidSchema(PenstockError, ValueError):
    """A schema that is not valid, or refers to too many others."""


class Reference(msgspec.Struct, frozen=True):
    """Another schema that a schema uses, under a name."""

    name: str
    subject: str
    version: int


class SchemaVersion(msgspec.Struct, frozen=True):
    """A schema as the registry has it; by number, it has no subject and no version."""

    schema: str
    subject: str = ""
    version: int = -1
    id: int = -1
    schemaType: str | None = None
    references: list[Reference] | None = None

    @property
    def kind(self) -> str:
        """The registry leaves out the type of Avro."""
        return self.schemaType or "AVRO"


class Draft(msgspec.Struct, frozen=True):
    """A schema that a user has written."""

    schema: str
    kind: str = "AVRO"
    references: list[Reference] = []

    def body(self) -> dict[str, Any]:
        """The body of a request; registries of old versions know no type, which is Avro's then."""
        body: dict[str, Any] = {"schema": self.schema}
        if self.kind != "AVRO":
            body["schemaType"] = self.kind
        if self.references:
            body["references"] = self.references
        return body


def referenced(http: RegistryHttp, schema: SchemaVersion) -> list[str]:
    """The texts of the schemas that a schema refers to, each after those that it refers to itself. Blocks."""
    found: dict[tuple[str, int], str] = {}

    def visit(each: SchemaVersion, depth: int) -> None:
        for reference in each.references or ():
            key = (reference.subject, reference.version)
            if key in found:
                continue
            if len(found) >= _REFERENCES_MAX or depth > _REFERENCES_MAX:
                raise InvalidSchema(f"the schema refers to more than {_REFERENCES_MAX} others")
            other = http.get(SchemaVersion, f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}")
            visit(other, depth + 1)
            found[key] = other.schema

    visit(schema, 0)
    return list(found.values())


class AvroSchema(msgspec.Struct, frozen=True):
    """A parsed schema, and the types that it and those before it name."""

    parsed: Any
    named: dict[str, Any]


def parsed_avro(text: str, references: list[str]) -> AvroSchema:
    """The schema for fastavro, which must be installed; InvalidSchema if it is none."""
    from fastavro.schema import SchemaParseException, parse_schema

    named: dict[str, Any] = {}
    try:
        for each in references:
            parse_schema(msgspec.json.decode(each), named_schemas=named)
        return AvroSchema(parse_schema(msgspec.json.decode(text), named_schemas=named), named)
    except SchemaParseException as error:
        raise InvalidSchema(str(error)) from error
