"""What a table is made of. A definition is stored as JSON, and never changes."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from penstock.model.errors import InvalidConfig, PenstockError
from penstock.registry.settings import check_address

__all__ = ["BUCKETS", "InvalidDefinition", "TableDefinition", "parse_schema", "split_place"]

#: of an upsert table, unless the user names another number
BUCKETS: Final = 16
_BUCKETS_MAX: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ID: Final = re.compile(r"[0-9a-f]{32}")
_DEAD_LETTERS: Final = "_dead_letters"


class InvalidDefinition(PenstockError, ValueError):
    """A definition that cannot be; the message names the value and the remedy."""


class TableDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a topic."""

    name: str
    #: of this definition: a table that is made again under the same name has another one
    id: str
    topic: str
    #: a folder, or the URL of an object store
    to: str
    mode: Literal["append", "upsert"]
    schema: Literal["infer", "json", "registry"]
    #: the text of a JSON Schema, for `json`
    json_schema: str | None = None
    #: the address, for `registry`
    registry: str | None = None
    key: Literal["text", "binary", "registry"] = "text"
    #: into which an upsert table is divided by keys
    buckets: int = BUCKETS
    format: Literal["delta"] = "delta"

    def check(self) -> TableDefinition:
        """Itself; InvalidDefinition if it cannot be."""
        if not _NAME.fullmatch(self.name):
            raise InvalidDefinition(
                f"{self.name!r} cannot be the name of a table: letters, digits, '.', '_' and '-', 100 at most"
            )
        if not _ID.fullmatch(self.id):
            raise InvalidDefinition(f"{self.id!r} cannot be the id of a definition")
        split_place(self.to)
        if self.registry:
            try:
                check_address(self.registry, "`penstock table run --registry-config`")
            except InvalidConfig as error:
                raise InvalidDefinition(f"--registry: {error}") from error
        if (self.schema == "registry" or self.key == "registry") and not self.registry:
            raise InvalidDefinition("the address of the schema registry is missing: pass --registry URL")
        if not 1 <= self.buckets <= _BUCKETS_MAX:
            raise InvalidDefinition(f"--buckets {self.buckets} is not from 1 to {_BUCKETS_MAX}")
        if self.schema == "json":
            from penstock.values.json_schema_types import json_schema_columns

            json_schema_columns(msgspec.json.decode(self.json_schema or "{}"))
        return self

    @property
    def evolves(self) -> bool:
        """Whether values bring new columns."""
        return self.schema != "json"

    @property
    def root(self) -> str:
        """The place that contains the table, its dead letters, and its state."""
        return split_place(self.to)[0]

    @property
    def folder(self) -> str:
        return split_place(self.to)[1]

    @property
    def dead_letters(self) -> str:
        """The folder of the table of dead letters."""
        return f"{self.folder}{_DEAD_LETTERS}"

    @property
    def state(self) -> str:
        """The folder of what the query remembers, below `root`."""
        return f"_penstock/{self.name}-{self.id[:8]}"


def split_place(to: str) -> tuple[str, str]:
    """The place that contains a table, and the name of its folder; InvalidDefinition without either."""
    root, slash, folder = to.rstrip("/").rpartition("/")
    _, separator, rest = root.partition("://")
    is_bucket = not separator or bool(rest.strip("/"))
    if not slash or not folder or not root or not is_bucket or (not separator and not root.startswith("/")):
        raise InvalidDefinition(f"{to!r} is not the place of a table, such as s3://bucket/tables/orders")
    if {".", ".."} & {*root.split("/"), folder}:
        raise InvalidDefinition(f"{to!r} leads through '.' or '..': name the folders themselves")
    if folder.startswith(("_", ".")):
        raise InvalidDefinition(f"{to!r}: readers pass over folders whose names begin with {folder[0]!r}")
    return root, folder


def parse_schema(text: str) -> tuple[str, str | None]:
    """The kind of `--schema`, and the path of its file; InvalidDefinition if it is none."""
    kind, colon, path = text.partition(":")
    if kind in ("infer", "registry") and not colon:
        return kind, None
    if kind == "json" and path:
        return kind, path
    raise InvalidDefinition(f"--schema {text!r} is not infer, registry or json:FILE")


def decoded(data: bytes) -> TableDefinition:
    """A stored definition; InvalidDefinition if it is of another version or damaged, or cannot be.

    Whoever may write to the topic may have written it.
    """
    try:
        return msgspec.json.decode(data, type=TableDefinition).check()
    except InvalidDefinition:
        raise
    except (msgspec.MsgspecError, PenstockError) as error:
        raise InvalidDefinition(f"a stored definition cannot be read: {error}") from error


def encoded(definition: TableDefinition) -> bytes:
    document: Any = msgspec.to_builtins(definition)
    return msgspec.json.encode(document)
