"""Divides the objects of a large message into portions, so that they are freed one portion after the other.

When the last reference to a message goes, all its objects are freed in one step, 45 ns each: 20 ms for
400,000 elements. A portion refers to some of the elements, so that they outlive the message, and go with the
portion. An object that something else refers to as well stays as it is: nothing is emptied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.wire.schema import Struct, StructType

__all__ = ["PORTION", "Portion", "portions"]

#: elements of a portion: they are found within a millisecond or two, and freed in a tenth of that
PORTION: Final = 2048
#: structures that are added to a portion at once
_STEP: Final = 64
#: a list with more values is divided; a shorter one is freed with its structure
_SHORT: Final = 256
#: some elements of lists of a message
Portion: TypeAlias = list[Any]


class _Lists(NamedTuple):
    """A field with structures or values."""

    name: str
    #: their type; None for values
    of: StructType | None


def portions(message: Struct) -> Iterator[Portion]:
    """The portions of a message. They have to go in this order, after the message.

    Invariant: an element comes before the elements of its own lists. So the lists that have an element are
    gone when its portion goes.
    """
    some: Portion = []
    lists: list[tuple[Sequence[Any], StructType | None]] = []
    weight = _add_lists([message], type(message), lists)
    while lists:
        values, of = lists.pop()
        step = PORTION if of is None else _STEP
        weight += 1
        for start in range(0, len(values), step):
            part = values[start : start + step]
            some += part
            weight += len(part)
            if of is not None:
                weight += _add_lists(part, of, lists)
            if weight >= PORTION:
                yield some
                some, weight = [], 0
    yield some


def _add_lists(
    parents: Sequence[Any], cls: StructType, lists: list[tuple[Sequence[Any], StructType | None]]
) -> int:
    """Add the lists of structures of type `cls` that have to be divided. Returns the size of the others."""
    size_of_others = 0
    for name, of in _lists_of(cls):
        for parent in parents:
            # A message that was not decoded to its end lacks fields.
            value = getattr(parent, name, None)
            if isinstance(value, Struct):
                lists.append(((value,), of))
            elif isinstance(value, list | tuple):
                # An empty list is an object as well: there may be more of them than of anything else.
                if not value or (of is None and len(value) <= _SHORT):
                    size_of_others += 1 + len(value)
                else:
                    lists.append((value, of))
            elif isinstance(value, deque):
                lists.append((tuple(value), of))
    return size_of_others


@cache
def _lists_of(cls: StructType) -> tuple[_Lists, ...]:
    return tuple(
        _Lists(field.name, field.of if isinstance(field.of, StructType) else None)
        for field in cls.fields
        if field.kind in ("array", "struct")
    )
