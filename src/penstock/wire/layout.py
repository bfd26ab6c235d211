"""Shared by the two generators: the layout of a structure in a version, and the generated source text."""

from __future__ import annotations

from struct import Struct as Packer
from typing import Any

from penstock.wire.schema import Field, StructType

__all__ = ["FIXED", "PREFIX", "Source", "fields_in", "fixed_size", "has_records", "in_versions", "min_size"]

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


def fixed_size(field: Field, version: int) -> int | None:
    """How many bytes a tagged field has, where that does not depend on its value."""
    if field.kind in FIXED:
        return Packer(">" + FIXED[field.kind]).size
    if field.kind != "struct" or in_versions(field.nullable, version):
        return None
    sequence, tagged = fields_in(field.of, version)
    if tagged or any(each.kind not in FIXED for each in sequence):
        return None
    return min_size(field.of, version, flexible=True)


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

    def compile(self, name: str) -> Any:
        """The function `name` that was written; profiles and tracebacks show that name."""
        exec(compile("\n".join(self.lines), f"<{name}>", "exec"), self.environment)
        return self.environment[name]


_PACKERS: dict[str, Packer] = {}
