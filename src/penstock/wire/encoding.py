"""Generates encoders.

Values are fetched into locals, runs of fixed-size fields with the length that follows them are packed by one
call, and the pieces collect in the list `w`, joined at the end. A records field closes what was collected so
far and becomes a part of its own in the list `out`, exactly as it was handed in.

An element of an array is written in one of two ways. Usually all its lists and texts that can be empty are
empty (no errors, no aborted transactions, no tags). Their lengths are then constants, too, and mostly one
call packs the whole element.

Values come from our own handlers: a value that does not fit its field raises the error of Python.

A bounded encoder raises LargeMessage before it loops over more than its number of elements. A sliced encoder
is a generator that yields in its loops (`slicing`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

from penstock.wire.layout import FIXED, PREFIX, Source, fields_in, fixed_size, has_records, in_versions
from penstock.wire.schema import Field, Struct, StructType
from penstock.wire.slicing import FIXED_STEP, STEP, LargeMessage
from penstock.wire.varint import SHORT_UVARINTS, encode_uvarint

__all__ = ["compile_bounded_encoder", "compile_encoder", "compile_sliced_encoder"]


def compile_encoder(cls: type[Struct], version: int, flexible: bool) -> Any:
    """A function from a `cls` to the parts of its encoding."""
    return _EncoderSource(cls, version, flexible).function()


def compile_bounded_encoder(cls: type[Struct], version: int, flexible: bool, elements: int) -> Any:
    """As `compile_encoder`; the function raises LargeMessage for a message of more than `elements`."""
    return _EncoderSource(cls, version, flexible, elements=elements).function()


def compile_sliced_encoder(cls: type[Struct], version: int, flexible: bool) -> Any:
    """As `compile_encoder`; the function is a generator."""
    return _EncoderSource(cls, version, flexible, is_sliced=True).function()


def _packed_in_steps(code: str, values: list[Any]) -> Generator[None, None, bytes]:
    """Values of a fixed size, some at a time."""
    parts = []
    for start in range(0, len(values), FIXED_STEP):
        some = values[start : start + FIXED_STEP]
        parts.append(b"".join(some) if code == FIXED["uuid"] else struct.pack(f">{len(some)}{code}", *some))
        if start + FIXED_STEP < len(values):
            yield
    return b"".join(parts)


class _EncoderSource(Source):
    def __init__(
        self,
        cls: type[Struct],
        version: int,
        flexible: bool,
        *,
        elements: int | None = None,
        is_sliced: bool = False,
    ) -> None:
        super().__init__()
        self._cls = cls
        self._version = version
        self._flexible = flexible
        #: The number of elements from which on the encoder raises LargeMessage; None for any number.
        self._elements = elements
        self._is_sliced = is_sliced
        #: Fixed-size values not packed yet: expression and format character.
        self._run: list[tuple[str, str]] = []
        #: Expressions of pieces not yet added to the list that is being filled, whose name is `_list`.
        self._pieces: list[str] = []
        self._list = "w"

    def function(self) -> Any:
        name = f"encode_{self._cls.__name__}_v{self._version}"
        self.refer("SHORT", SHORT_UVARINTS)
        self.refer("uvarint", encode_uvarint)
        self.refer("pack", struct.pack)
        self.refer("join", b"".join)
        self.refer("Large", LargeMessage)
        self.refer("in_steps", _packed_in_steps)
        self.indent(f"def {name}(o):")
        self.line("w = []")
        if self._elements is not None:
            self.line(f"budget = {self._elements}")
        if self._is_sliced:
            self.line(f"step = {STEP}")
            # A generator even if the message has no array.
            self.line("if 0: yield")
        in_parts = self._is_sliced or has_records(self._cls, self._version)
        if in_parts:
            self.line("out = []")
        self._struct(self._cls, "o")
        self._flush()
        if in_parts:
            self.line("if w: out.append(join(w))")
            self.line("return out")
        else:
            self.line("return [join(w)]")
        return self.compile(name)

    def _struct(self, cls: StructType, name: str) -> None:
        sequence, tagged = fields_in(cls, self._version)
        for field in sequence:
            self._field(field, f"{name}.{field.name}")
        if not self._flexible:
            return
        if tagged:
            self._tags(tagged, name)
        else:
            self._run.append(("0", "B"))

    def _element(self, cls: StructType, name: str) -> None:
        """An element of an array, with a shortcut for the usual one: all in it that can be empty is."""
        sequence, tagged = fields_in(cls, self._version)
        optional = [field for field in sequence if self._often_empty(field)]
        filled = [f"{name}.{field.name}" for field in optional]
        filled += [self._differs(field, name) for field in tagged]
        if not filled:
            self._struct(cls, name)
            return
        self.indent(f"if {' or '.join(filled)}:")
        self._struct(cls, name)
        self._flush()
        self.dedent()
        self.indent("else:")
        for field in sequence:
            if field in optional:
                self._run.append(self._empty(field, f"{name}.{field.name}"))
            else:
                self._field(field, f"{name}.{field.name}")
        if self._flexible:
            self._run.append(("0", "B"))
        self._flush()
        self.dedent()

    def _often_empty(self, field: Field) -> bool:
        if field.kind in ("string", "bytes"):
            return in_versions(field.nullable, self._version)
        return field.kind == "array"

    def _empty(self, field: Field, source: str) -> tuple[str, str]:
        """The length of a value that is empty or null, as a fixed-size value."""
        nullable = in_versions(field.nullable, self._version)
        if self._flexible:
            return (f"{source} is not None" if nullable else "1", "B")
        return (f"({source} is not None) - 1" if nullable else "0", PREFIX[field.kind])

    def _field(self, field: Field, source: str) -> None:
        if field.kind in FIXED:
            self._run.append((source, FIXED[field.kind]))
        elif field.kind == "struct":
            self._nested(field, source)
        elif field.kind == "array":
            self._array(field, source)
        elif field.kind == "records":
            self._records(field, source)
        else:
            self._bytes(field, source)

    def _pack(self, length: str | None = None) -> None:
        """Turn the pending fixed-size values, and a varint `length` after them, into one piece."""
        run, self._run = self._run, []
        packed = self._packed(run) if run else ""
        if length is None:
            if packed:
                self._pieces.append(packed)
            return
        if run:
            short, long = self._packed([*run, (length, "B")]), f"{packed} + uvarint({length})"
        else:
            short, long = f"SHORT[{length}]", f"uvarint({length})"
        self._pieces.append(f"({short} if {length} < 128 else {long})")

    def _packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for _, code in run)
        if all(value.isdigit() for value, _ in run):
            return repr(self.packer(codes).pack(*(int(value) for value, _ in run)))
        pack = self.refer(f"pack_{codes.replace('?', 'Z')}", self.packer(codes).pack)
        return f"{pack}({', '.join(value for value, _ in run)})"

    def _flush(self) -> None:
        """Add everything pending to the list: needed wherever control flow branches or meets."""
        self._pack()
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1:
            self.line(f"{self._list}.append({pieces[0]})")
        elif pieces:
            self.line(f"{self._list} += {', '.join(pieces)}")

    def _length(self, field: Field, length: str) -> None:
        """Write a length or count; null is -1."""
        if self._flexible:
            self.line(f"{length} += 1")
            self._pack(length)
        else:
            self._run.append((length, PREFIX[field.kind]))
            self._pack()

    def _value(self, field: Field, source: str, empty: str, encode: str = "") -> tuple[str, str]:
        """Locals that hold the value, `empty` where it is null, and its length."""
        value, length = self.local("v"), self.local("n")
        self.line(f"{value} = {source}")
        if in_versions(field.nullable, self._version):
            self.line(f"if {value} is None: {value} = {empty}; {length} = -1")
            self.indent("else:")
        if encode:
            self.line(f"{value} = {value}{encode}")
        self.line(f"{length} = len({value})")
        if in_versions(field.nullable, self._version):
            self.dedent()
        return value, length

    def _bytes(self, field: Field, source: str) -> None:
        value, length = self._value(field, source, "b''", ".encode()" if field.kind == "string" else "")
        self._length(field, length)
        self._pieces.append(value)

    def _records(self, field: Field, source: str) -> None:
        value, length = self._value(field, source, "b''")
        filled = f"{length} > 0"
        if self._flexible:
            filled = f"{length} > 1"
        self._length(field, length)
        self._flush()
        self.line(f"if {filled}: out += join(w), {value}; w.clear()")

    def _nested(self, field: Field, source: str) -> None:
        value = self.local("v")
        self.line(f"{value} = {source}")
        if not in_versions(field.nullable, self._version):
            self._struct(field.of, value)
            return
        self._flush()
        self.line(f"if {value} is None: {self._list}.append(b'\\xff')")
        self.indent("else:")
        self._run.append(("1", "b"))
        self._struct(field.of, value)
        self._flush()
        self.dedent()

    def _array(self, field: Field, source: str) -> None:
        value, length = self._value(field, source, "()")
        if self._elements is not None:
            # One element needs no check: the enclosing element was counted.
            self.indent(f"if {length} > 1:")
            self.line(f"budget -= {length}")
            self.line("if budget < 0: raise Large")
            self.dedent()
        if not isinstance(field.of, StructType) and field.of.kind in FIXED:
            self._fixed_array(field, value, length)
            return
        self._length(field, length)
        self._flush()
        item = self.local("i")
        self.indent(f"for {item} in {value}:")
        if self._is_sliced:
            self._count_step()
        if isinstance(field.of, StructType):
            self._element(field.of, item)
        else:
            self._field(field.of, item)
        self._flush()
        self.dedent()

    def _count_step(self) -> None:
        """Let the driver take over after some elements; what is encoded by then becomes a part."""
        self.line("step -= 1")
        self.indent("if not step:")
        self.line(f"step = {STEP}")
        if self._list == "w":
            self.line("if w: out.append(join(w)); w.clear()")
        self.line("yield")
        self.dedent()

    def _fixed_array(self, field: Field, value: str, length: str) -> None:
        self._length(field, length)
        if self._is_sliced:
            self._flush()
            self.indent(f"if len({value}) > {FIXED_STEP}:")
            self.line(f"{self._list}.append((yield from in_steps('{FIXED[field.of.kind]}', {value})))")
            self.dedent()
            self.indent("else:")
            self._fixed_values(field, value)
            self._flush()
            self.dedent()
        else:
            self._fixed_values(field, value)

    def _fixed_values(self, field: Field, value: str) -> None:
        if field.of.kind == "uuid":
            self._pieces.append(f"join({value})")
        else:
            self._pieces.append(f"pack(f'>{{len({value})}}{FIXED[field.of.kind]}', *{value})")

    def _tags(self, tagged: list[Field], name: str) -> None:
        """Tagged fields that differ from their default, each with its size."""
        self._flush()
        present = " or ".join(self._differs(field, name) for field in tagged)
        self.line(f"if not ({present}): {self._list}.append(b'\\x00')")
        self.indent("else:")
        tags, count, outer = self.local("w"), self.local("k"), self._list
        self.line(f"{tags} = []; {count} = 0")
        for field in tagged:
            self.indent(f"if {self._differs(field, name)}:")
            self.line(f"{count} += 1")
            self._tag(field, f"{name}.{field.name}", tags)
            self.dedent()
        self._list = outer
        self.line(f"{outer} += SHORT[{count}], join({tags})")
        self.dedent()

    def _tag(self, field: Field, source: str, tags: str) -> None:
        """Add one tagged field to the list `tags`: its number, its size and its value."""
        assert field.tag is not None
        size = fixed_size(field, self._version)
        if size is not None:
            # All three in one call.
            self._list = tags
            self._run += _bytes_of(encode_uvarint(field.tag) + encode_uvarint(size))
            self._field(field, source)
            self._flush()
            return
        content, length = self.local("w"), self.local("n")
        self.line(f"{content} = []")
        self._list = content
        self._field(field, source)
        self._flush()
        self.line(f"{content} = join({content}); {length} = len({content})")
        self._list = tags
        self._run += _bytes_of(encode_uvarint(field.tag))
        self._pack(length)
        self._pieces.append(content)
        self._flush()

    def _differs(self, field: Field, name: str) -> str:
        source = f"{name}.{field.name}"
        if field.default is None:
            return f"{source} is not None"
        if field.kind == "array":
            return source
        return f"{source} != {field.default!r}"


def _bytes_of(constant: bytes) -> list[tuple[str, str]]:
    """Bytes that are always the same, as fixed-size values."""
    return [(str(byte), "B") for byte in constant]
