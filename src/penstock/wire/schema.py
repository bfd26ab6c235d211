"""How messages are written down: a class per structure, an annotated field specifier per field.

    class DeleteRecordsPartition(Struct):
        partition_index: int = int32()
        offset: int = int64()

A specifier says how a field looks on the wire and in which versions (`"3+"`, `"2-5"`, `"4"`; all of them when
left out) it exists. Specifiers return what the attribute will hold, not what they are (as
`dataclasses.field` does), so mypy checks a table against its annotations and gives every class a typed
keyword constructor in which each field has a default.

Invariants: field order is wire order; names are Kafka's in snake_case. A field that the version at hand lacks
decodes to its default and is dropped silently when encoding: a handler fills in all it knows and the version
decides which fields are sent. A tagged structure that is absent is None. Uuids are 16 raw bytes, `bytes`
fields are copied out of the frame (they are kept), record batches are not (see `record_batches`).

Nothing is parsed, compiled or generated when a table is imported: constructors are built on first use, codecs
in `penstock.wire.compiler`.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar, cast, dataclass_transform, overload

from penstock.ports import Buffer, FileRange

__all__ = [
    "Field",
    "Records",
    "Struct",
    "array",
    "boolean",
    "byte_string",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "nullable_array",
    "nullable_bytes",
    "nullable_string",
    "nullable_struct",
    "record_batches",
    "string",
    "struct",
    "tagged_struct",
    "uint16",
    "unaligned_batches",
    "uuid",
]

#: The value of a records field: a view of the frame when decoded, anything that can be sent when encoded.
Records: TypeAlias = Buffer | FileRange

ALL = "0+"
#: No version: the `nullable` of fields that are never null.
NONE = ""
#: Tags from here on are Penstock's own fields in Kafka's messages; other implementations skip them (KIP-482).
OWN_TAGS = 10_000
S = TypeVar("S", bound="Struct")
T = TypeVar("T")


class Field:
    """One field of a table; `of` is a structure's class or an array's element (class or Field)."""

    __slots__ = ("default", "kind", "name", "nullable", "of", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        nullable: str = NONE,
        tag: int | None = None,
        of: Any = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self.default = default
        self.tag = tag
        self.of = of


@dataclass_transform(kw_only_default=True, eq_default=True)
class StructType(type):
    """Turns a class body of specifiers into slots plus a table."""

    fields: tuple[Field, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> StructType:
        fields = []
        for key, value in namespace.items():
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple([field.name for field in fields])
        made = super().__new__(mcs, name, bases, namespace)
        made.fields = tuple(fields)
        return made


class Struct(metaclass=StructType):
    """Base of all messages and of the structures within them. Compared by value, never hashed."""

    def __init__(self, **values: Any) -> None:
        # The first instance of a class pays for its specialised constructor; all later ones call that.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in type(self).fields)

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in type(self).fields)
        return f"{type(self).__name__}({values})"


_UNSET = object()


def default_expression(field: Field) -> str:
    """Source text of a field's default; a new object each time where it is mutable."""
    if field.kind == "array" and field.default is not None:
        return "[]"
    if field.kind == "struct" and field.default is not None:
        return f"{field.of.__name__}()"
    return repr(field.default)


def _constructor(cls: StructType) -> Any:
    parameters, body = [], []
    environment: dict[str, Any] = {"UNSET": _UNSET}
    for field in cls.fields:
        default = default_expression(field)
        if default.endswith(("[]", "()")):
            parameters.append(f"{field.name}=UNSET")
            body.append(f" self.{field.name} = {default} if {field.name} is UNSET else {field.name}")
            if field.kind == "struct":
                environment[field.of.__name__] = field.of
        else:
            parameters.append(f"{field.name}={default}")
            body.append(f" self.{field.name} = {field.name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(body) or " pass")
    exec(source, environment)
    return environment["__init__"]


def boolean(versions: str = ALL, *, default: bool = False, tag: int | None = None) -> bool:
    return cast(bool, Field("bool", versions, default, tag=tag))


def int8(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int8", versions, default, tag=tag))


def int16(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int16", versions, default, tag=tag))


def uint16(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("uint16", versions, default, tag=tag))


def int32(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int32", versions, default, tag=tag))


def int64(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int64", versions, default, tag=tag))


def float64(versions: str = ALL, *, default: float = 0.0, tag: int | None = None) -> float:
    return cast(float, Field("float64", versions, default, tag=tag))


def uuid(versions: str = ALL, *, tag: int | None = None) -> bytes:
    return cast(bytes, Field("uuid", versions, bytes(16), tag=tag))


def string(versions: str = ALL, *, default: str = "", tag: int | None = None) -> str:
    return cast(str, Field("string", versions, default, tag=tag))


def nullable_string(
    versions: str = ALL, *, nullable: str = ALL, default: str | None = None, tag: int | None = None
) -> str | None:
    """A string that may be null in the versions `nullable`; unless that is all of them it needs a default."""
    return cast("str | None", Field("string", versions, default, nullable=nullable, tag=tag))


def byte_string(versions: str = ALL, *, tag: int | None = None) -> bytes:
    return cast(bytes, Field("bytes", versions, b"", tag=tag))


def nullable_bytes(
    versions: str = ALL, *, nullable: str = ALL, default: bytes | None = None, tag: int | None = None
) -> bytes | None:
    return cast("bytes | None", Field("bytes", versions, default, nullable=nullable, tag=tag))


def record_batches(versions: str = ALL) -> memoryview | None:
    """Record batches, possibly null. Decoded as a view of the frame; encoded, as any `Records`, uncopied."""
    return cast("memoryview | None", Field("records", versions, None, nullable=ALL))


def unaligned_batches(versions: str = ALL) -> Records:
    """As `record_batches`, but never null: a piece of a file of batches that may end within one."""
    return cast("Records", Field("records", versions, b""))


@overload
def array(of: type[S], versions: str = ALL, *, tag: int | None = None) -> list[S]: ...
@overload
def array(of: T, versions: str = ALL, *, tag: int | None = None) -> list[T]: ...
def array(of: Any, versions: str = ALL, *, tag: int | None = None) -> list[Any]:
    """A list of structures (`of` their class) or of simple values (`of` a specifier: `int32()`)."""
    return cast("list[Any]", Field("array", versions, (), tag=tag, of=of))


@overload
def nullable_array(
    of: type[S], versions: str = ALL, *, nullable: str = ALL, empty: bool = False, tag: int | None = None
) -> list[S] | None: ...
@overload
def nullable_array(
    of: T, versions: str = ALL, *, nullable: str = ALL, empty: bool = False, tag: int | None = None
) -> list[T] | None: ...
def nullable_array(
    of: Any, versions: str = ALL, *, nullable: str = ALL, empty: bool = False, tag: int | None = None
) -> list[Any] | None:
    """A list that may be null in the versions `nullable`; its default is null unless `empty`."""
    default = () if empty else None
    return cast("list[Any] | None", Field("array", versions, default, nullable=nullable, tag=tag, of=of))


def struct(of: type[S], versions: str = ALL) -> S:
    return cast(S, Field("struct", versions, (), of=of))


def nullable_struct(of: type[S], versions: str = ALL) -> S | None:
    """A structure preceded by a byte that says whether it is there."""
    return cast("S | None", Field("struct", versions, None, nullable=ALL, of=of))


def tagged_struct(of: type[S], versions: str = ALL, *, tag: int) -> S | None:
    """A structure that is there only when its tag is: None otherwise."""
    return cast("S | None", Field("struct", versions, None, tag=tag, of=of))
