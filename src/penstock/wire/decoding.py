"""Generates decoders.

The text follows the wire: `buf` is the frame, `pos` the next byte, `size` its end. Reading fixed fields or a
length past the end raises by itself (`struct.error`, IndexError); a slice past the end is merely short, and
one comparison after the last field finds it. A count is checked before its loop starts: n elements of at
least m bytes must fit in what is left, and all arrays of a message together hold at most MAX_ELEMENTS.

A bounded decoder raises LargeMessage before it loops over more than its number of elements. A sliced decoder
is a generator that yields in its loops (`slicing`). It first yields the message without its fields: after an
error, or if the rest is not needed, that has what was decoded so far.
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.model.errors import ProtocolError, TooManyElements
from penstock.wire.layout import FIXED, PREFIX, Source, fields_in, has_records, in_versions, min_size
from penstock.wire.schema import Field, Struct, StructType, default_expression
from penstock.wire.slicing import (
    FIXED_STEP,
    LARGE_FRAME,
    MAX_ELEMENTS,
    SMALL_BYTES,
    STEP,
    TAGS_MAX,
    LargeMessage,
)
from penstock.wire.varint import read_uvarint, skip_tags

__all__ = ["compile_bounded_decoder", "compile_decoder", "compile_sliced_decoder"]

_STRING_MAX = 0x7FFF


def compile_decoder(cls: type[Struct], version: int, flexible: bool, exact: bool) -> Any:
    """A function from a memoryview, and the position to start from, to a `cls`."""
    return _DecoderSource(cls, version, flexible).function(exact)


def compile_bounded_decoder(cls: type[Struct], version: int, flexible: bool, elements: int) -> Any:
    """As `compile_decoder`; the function raises LargeMessage for a message of more than `elements`."""
    return _DecoderSource(cls, version, flexible, elements=elements).function(exact=False)


def compile_sliced_decoder(cls: type[Struct], version: int, flexible: bool, copies: bool) -> Any:
    """As `compile_decoder`; the function is a generator. Its buffer must not change meanwhile.

    With `copies` it copies a buffer that is not bytes. That makes each value cheaper.
    """
    return _DecoderSource(cls, version, flexible, is_sliced=True, copies=copies).function(exact=False)


def long_string_length(buffer: memoryview, position: int) -> tuple[int, int]:
    """The length (plus one) of a compact string that has 127 bytes or more."""
    length, position = read_uvarint(buffer, position)
    if length - 1 > _STRING_MAX:
        raise ProtocolError(f"string of {length - 1} bytes")
    return length, position


class _DecoderSource(Source):
    def __init__(
        self,
        cls: type[Struct],
        version: int,
        flexible: bool,
        *,
        elements: int | None = None,
        is_sliced: bool = False,
        copies: bool = True,
    ) -> None:
        super().__init__()
        self._cls = cls
        self._version = version
        self._flexible = flexible
        #: The number of elements from which on the decoder raises LargeMessage; None for MAX_ELEMENTS.
        self._elements = elements
        self._is_sliced = is_sliced
        #: Fixed-size fields not read yet: where each goes and its format character.
        self._run: list[tuple[str, str]] = []
        self._keeps_views = not copies or has_records(cls, version)

    def function(self, exact: bool) -> Any:
        name = f"decode_{self._cls.__name__}_v{self._version}"
        self.refer("new", object.__new__)
        self.refer("uvarint", read_uvarint)
        self.refer("string_length", long_string_length)
        self.refer("skip_tags", skip_tags)
        self.refer("unpack_from", struct.unpack_from)
        self.refer("Bad", ProtocolError)
        self.refer("TooMany", TooManyElements)
        self.refer("Large", LargeMessage)
        self.refer("ERRORS", (struct.error, IndexError, UnicodeDecodeError, OverflowError, MemoryError))
        self.indent(f"def {name}(buf, pos=0):")
        if self._elements is not None and not self._keeps_views:
            self.line(f"if buf.nbytes - pos > {SMALL_BYTES}: raise Large")
        if self._is_sliced:
            # Bytes stay as they are: nothing is copied.
            self.line(f"buf = {'memoryview' if self._keeps_views else 'bytes'}(buf)")
        elif not self._keeps_views:
            # Everything is copied out of the frame: one copy of it all makes each of them cheaper.
            self.line("buf = buf[pos:].tobytes(); pos = 0")
        self.line(f"size = len(buf); budget = {self._elements or MAX_ELEMENTS}")
        if self._elements is not None and self._keeps_views:
            self.line(f"if size > {LARGE_FRAME}: raise Large")
        if self._is_sliced:
            self.line(f"step = {STEP}")
        self.indent("try:")
        message = self.local("o")
        self._new(self._cls, message)
        if self._is_sliced:
            self.line(f"yield {message}")
        self._fields_of(self._cls, message)
        self._flush()
        self.dedent()
        self.indent("except ERRORS as e:")
        self.line(f"raise Bad(f'{self._cls.__name__} v{self._version} is malformed: {{e}}') from e")
        self.dedent()
        self.line(f"if pos > size: raise Bad('{self._cls.__name__} v{self._version} is truncated')")
        if exact:
            self.line(f"if pos < size: raise Bad('bytes after {self._cls.__name__} v{self._version}')")
        self.line(f"return {message}")
        return self.compile(name)

    def _struct(self, cls: StructType, name: str) -> None:
        """Read a `cls` into a new object called `name`."""
        self._new(cls, name)
        self._fields_of(cls, name)

    def _new(self, cls: StructType, name: str) -> None:
        self.line(f"{name} = new({self.refer(cls.__name__, cls)})")

    def _fields_of(self, cls: StructType, name: str) -> None:
        sequence, tagged = fields_in(cls, self._version)
        for field in cls.fields:
            if field not in sequence:
                self._absent(field, f"{name}.{field.name}")
        for field in sequence:
            self._field(field, f"{name}.{field.name}")
        if self._flexible:
            self._tags(tagged, name)

    def _absent(self, field: Field, target: str) -> None:
        """Set fields that the version lacks, and those that may be absent."""
        if field.kind == "struct":
            self.refer(field.of.__name__, field.of)
        self.line(f"{target} = {default_expression(field)}")

    def _field(self, field: Field, target: str) -> None:
        if field.kind in FIXED:
            self._run.append((target, FIXED[field.kind]))
        elif field.kind == "struct":
            self._nested(field, target)
        elif field.kind == "array":
            self._array(field, target)
        else:
            self._bytes(field, target)

    def _flush(self) -> None:
        """Read the pending fixed-size fields with one call."""
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(code for _, code in run)
        targets = ", ".join(target for target, _ in run)
        if codes == "B":
            self.line(f"{targets} = buf[pos]; pos += 1")
            return
        packer = self.packer(codes)
        unpack = self.refer(f"unpack_{codes.replace('?', 'Z')}", packer.unpack_from)
        if len(run) == 1:
            targets = f"({targets},)"
        self.line(f"{targets} = {unpack}(buf, pos); pos += {packer.size}")

    def _length(self, field: Field) -> str:
        """Read the length or count of `field`, with the fixed fields before it; returns its expression."""
        if not self._flexible:
            self._run.append(("n", PREFIX[field.kind]))
            self._flush()
            return "n"
        self._run.append(("n", "B"))
        self._flush()
        varint = "string_length" if field.kind == "string" else "uvarint"
        self.line(f"if n > 127: n, pos = {varint}(buf, pos - 1)")
        return "n - 1"

    def _begin_value(self, field: Field, target: str) -> None:
        """The branch for a null length `n`, and the start of the other branch."""
        null = "n == 0" if self._flexible else "n == -1"
        if in_versions(field.nullable, self._version):
            self.line(f"if {null}: {target} = None")
            self.indent("else:")
        elif self._flexible:
            self.line(f"if n == 0: raise Bad('{field.name} is null')")
        if not self._flexible and field.kind != "array":
            self._refuse_below_zero(field)

    def _refuse_below_zero(self, field: Field) -> None:
        self.line(f"if n < 0: raise Bad('{field.name}: length below zero')")

    def _end_value(self, field: Field) -> None:
        if in_versions(field.nullable, self._version):
            self.dedent()

    def _bytes(self, field: Field, target: str) -> None:
        length = self._length(field)
        self._begin_value(field, target)
        slice_ = "buf[pos:end]"
        if field.kind != "records" and self._keeps_views:
            slice_ += ".tobytes()"
        if field.kind == "string":
            slice_ += ".decode()"
        self.line(f"end = pos + {length}; {target} = {slice_}; pos = end")
        self._end_value(field)

    def _nested(self, field: Field, target: str) -> None:
        """A structure; where it may be null a byte below zero says so."""
        nullable = in_versions(field.nullable, self._version)
        if nullable:
            self._run.append(("n", "b"))
            self._flush()
            self.line(f"if n < 0: {target} = None")
            self.indent("else:")
        name = self.local("o")
        self._struct(field.of, name)
        self.line(f"{target} = {name}")
        if nullable:
            self._flush()
            self.dedent()

    def _array(self, field: Field, target: str) -> None:
        count = self.local("k")
        length = self._length(field)
        self._begin_value(field, target)
        least = min_size(field.of, self._version, self._flexible)
        assert least > 0, f"elements of {field.name} take no bytes"
        self.line(f"{count} = {length}")
        # One element needs no check: reading past the end fails, and the enclosing element was counted.
        self.indent(f"if {count} != 1:")
        if not self._flexible:
            self._refuse_below_zero(field)
        self.line(f"if {count} * {least} > size - pos: raise Bad('{field.name}: too many')")
        over = f"TooMany('{field.name}: too many')" if self._elements is None else "Large"
        self.line(f"if {count} > budget: raise {over}")
        self.line(f"budget -= {count}")
        self.dedent()
        if not isinstance(field.of, StructType) and field.of.kind in FIXED:
            self._fixed_values(field.of, target, count)
        else:
            self._elements_of(field.of, target, count)
        self._end_value(field)

    def _fixed_values(self, element: Field, target: str, count: str) -> None:
        code = FIXED[element.kind]
        if self._is_sliced:
            self._fixed_values_in_steps(element, target, count)
        elif element.kind == "uuid":
            self.line(f"end = pos + 16 * {count}")
            self.line(f"{target} = [bytes(buf[p : p + 16]) for p in range(pos, end, 16)]; pos = end")
        else:
            self.line(f"{target} = list(unpack_from(f'>{{{count}}}{code}', buf, pos))")
            self.line(f"pos += {count} * {self.packer(code).size}")

    def _fixed_values_in_steps(self, element: Field, target: str, count: str) -> None:
        values, stop, code = self.local("l"), self.local("e"), FIXED[element.kind]
        size = self.packer(code).size
        self.line(f"{target} = {values} = []; {stop} = pos + {count} * {size}")
        self.indent(f"while pos < {stop}:")
        self.line(f"end = min({stop}, pos + {FIXED_STEP * size})")
        if element.kind == "uuid":
            self.line(f"{values} += [bytes(buf[p : p + 16]) for p in range(pos, end, 16)]")
        else:
            self.line(f"{values} += unpack_from(f'>{{(end - pos) // {size}}}{code}', buf, pos)")
        self.line("pos = end")
        self.line(f"if pos < {stop}: yield")
        self.dedent()

    def _elements_of(self, of: Field | StructType, target: str, count: str) -> None:
        """Elements one after the other; counting down is the cheapest loop where there is mostly one."""
        items, item = self.local("l"), self.local("o")
        self.line(f"{target} = {items} = []")
        if isinstance(of, StructType):
            sequence, _ = fields_in(of, self._version)
            is_fixed = not self._flexible and all(field.kind in FIXED for field in sequence)
            if is_fixed and not self._is_sliced:
                self._fixed_structs(of, sequence, items, item, count)
                return
        self.indent(f"while {count}:")
        self.line(f"{count} -= 1")
        if self._is_sliced:
            self.line("step -= 1")
            self.line(f"if not step: step = {STEP}; yield")
        if isinstance(of, StructType):
            self._struct(of, item)
        else:
            self._bytes(of, item)
        self._flush()
        self.line(f"{items}.append({item})")
        self.dedent()

    def _fixed_structs(
        self, cls: StructType, sequence: list[Field], items: str, item: str, count: str
    ) -> None:
        """Elements of a fixed size: one call unpacks all of them."""
        codes = "".join(FIXED[field.kind] for field in sequence)
        packer = self.packer(codes)
        unpack = self.refer(f"each_{codes.replace('?', 'Z')}", packer.iter_unpack)
        values = [self.local("v") for _ in sequence]
        self.line(f"end = pos + {count} * {packer.size}")
        self.indent(f"for {', '.join(values)}{',' * (len(values) == 1)} in {unpack}(buf[pos:end]):")
        self.line(f"{item} = new({self.refer(cls.__name__, cls)})")
        for field in cls.fields:
            if field not in sequence:
                self._absent(field, f"{item}.{field.name}")
        for field, value in zip(sequence, values, strict=True):
            self.line(f"{item}.{field.name} = {value}")
        self.line(f"{items}.append({item})")
        self.dedent()
        self.line("pos = end")

    def _tags(self, tagged: list[Field], name: str) -> None:
        """Tagged fields: those of the table are read, all others skipped."""
        if not tagged and not self._run:
            self.line("if buf[pos]: pos = skip_tags(buf, pos)")
            self.line("else: pos += 1")
            return
        self._run.append(("n", "B"))
        self._flush()
        if not tagged:
            self.line("if n: pos = skip_tags(buf, pos - 1)")
            return
        self.indent("if n:")
        tag, stop = self.local("t"), self.local("e")
        self.line("if n > 127: n, pos = uvarint(buf, pos - 1)")
        self.line(f"if n > {TAGS_MAX}: raise Bad('too many tagged fields')")
        self.indent("for _ in range(n):")
        # The number of the tag and the size of its value: mostly a byte each.
        self.line(f"{tag} = buf[pos]; n = buf[pos + 1]")
        self.line(f"if {tag} > 127 or n > 127: {tag}, pos = uvarint(buf, pos); n, pos = uvarint(buf, pos)")
        self.line("else: pos += 2")
        self.line(f"{stop} = pos + n")
        self.line(f"if {stop} > size: raise Bad('tagged field reaches past the end')")
        for index, field in enumerate(tagged):
            self.indent(f"{'el' if index else ''}if {tag} == {field.tag}:")
            self._field(field, f"{name}.{field.name}")
            self._flush()
            self.line(f"if pos != {stop}: raise Bad('{field.name}: tagged field of another size')")
            self.dedent()
        self.line(f"else: pos = {stop}")
        self.dedent()
        self.dedent()
