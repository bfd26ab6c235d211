"""Compiles tables into codecs: one function per (structure, version, flexible or not, direction).

A message becomes one straight function with everything nested in it written out: a run of fixed-size fields
together with the length that follows it is one `struct` call. Compiling takes milliseconds, so callers keep
what they get (`Api` does). `penstock.wire.decoding` and `penstock.wire.encoding` are the two generators; here
is what they share.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packer
from typing import Any, TypeAlias, TypeVar, cast

from penstock.ports import Buffer, FileRange
from penstock.wire.schema import Field, Struct, StructType

__all__ = ["Decoder", "Encoder", "Part", "decoder", "encoder"]

S = TypeVar("S", bound=Struct)
#: What an encoded message consists of: bytes of ours, and record batches exactly as they were handed in.
Part: TypeAlias = Buffer | FileRange
#: `decode(buffer, offset)`: the message at `offset`; ProtocolError and nothing else where there is none.
Decoder: TypeAlias = Callable[[memoryview, int], S]
Encoder: TypeAlias = Callable[[S], list[Part]]

#: `struct` format characters of the kinds whose size is fixed.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
#: Format characters of the length or count that precedes the other kinds in classic versions.
PREFIX = {"string": "h", "bytes": "i", "records": "i", "array": "i"}


def decoder(cls: type[S], version: int, flexible: bool) -> Decoder[S]:
    from penstock.wire.decoding import generate_decoder

    source, environment = generate_decoder(cls, version, flexible)
    return cast("Decoder[S]", _compile(f"decode {cls.__name__} v{version}", source, environment))


def encoder(cls: type[S], version: int, flexible: bool) -> Encoder[S]:
    from penstock.wire.encoding import generate_encoder

    source, environment = generate_encoder(cls, version, flexible)
    return cast("Encoder[S]", _compile(f"encode {cls.__name__} v{version}", source, environment))


def _compile(name: str, source: str, environment: dict[str, Any]) -> Any:
    exec(compile(source, f"<{name}>", "exec"), environment)
    return environment["codec"]


def in_versions(versions: str, version: int) -> bool:
    """Whether `version` lies in a range written as in tables."""
    if not versions:
        return False
    low, _, high = versions.rstrip("+").partition("-")
    if version < int(low):
        return False
    return versions.endswith("+") or version <= int(high or low)


def fields_in(cls: StructType, version: int) -> tuple[list[Field], list[Field]]:
    """The fields that `version` has: those in sequence, and those under a tag in order of tags."""
    present = [field for field in cls.fields if in_versions(field.versions, version)]
    tagged = sorted((f for f in present if f.tag is not None), key=lambda f: f.tag or 0)
    return [field for field in present if field.tag is None], tagged


def min_size(item: Field | StructType, version: int, flexible: bool) -> int:
    """The fewest bytes that a field, or an element of an array, takes: what bounds a count from the wire."""
    if isinstance(item, StructType):
        sequence, _ = fields_in(item, version)
        return sum(min_size(field, version, flexible) for field in sequence) + flexible
    if item.kind in FIXED:
        return Packer(">" + FIXED[item.kind]).size
    if item.kind == "struct":
        return 1 if item.nullable else min_size(item.of, version, flexible)
    return 1 if flexible else Packer(">" + PREFIX[item.kind]).size


def has_records(cls: StructType, version: int) -> bool:
    """Whether record batches are somewhere in a message."""
    sequence, _ = fields_in(cls, version)
    return any(
        field.kind == "records" or (isinstance(field.of, StructType) and has_records(field.of, version))
        for field in sequence
    )


class Source:
    """The text of a function in the making, and the objects it refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.environment: dict[str, Any] = {}
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self._depth + text)

    def indent(self, text: str) -> None:
        """Open a block."""
        self.line(text)
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def local(self, prefix: str) -> str:
        """A local variable's name that was not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def refer(self, name: str, value: Any) -> str:
        """Make `value` known to the function as `name`."""
        assert self.environment.setdefault(name, value) == value, name
        return name

    def packer(self, codes: str) -> Packer:
        """The one Packer for a run of format characters."""
        packer = _PACKERS.get(codes)
        if packer is None:
            packer = _PACKERS[codes] = Packer(">" + codes)
        return packer

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


_PACKERS: dict[str, Packer] = {}
