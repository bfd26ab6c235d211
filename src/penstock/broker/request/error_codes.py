"""Finds the error codes of a response, for the metrics: at its top, and in its lists of structures.

The fields to look at are derived once from the table of the response. At most `ITEMS_MAX` structures of a
response are looked at, so that a large response costs little more than a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, TypeAlias

from penstock.wire.schema import Struct, StructType

__all__ = ["error_codes"]

ITEMS_MAX: Final = 1000
_CODE: Final = "error_code"
#: gives error codes of a structure
_Find: TypeAlias = Callable[[Any], Iterable[int]]
_code_of: Final[Callable[[Any], int]] = attrgetter(_CODE)


def error_codes(response: type[Struct]) -> Callable[[Any], Iterator[int]] | None:
    """A function that returns the error codes of such a response; None if it has none."""
    find = _finder(response)
    if find is None:
        return None
    return lambda message: islice(find(message), ITEMS_MAX)


def _finder(cls: StructType) -> _Find | None:
    """Chains iterators of the standard library: a generator for each structure costs several times more."""
    finders: list[_Find] = []
    for field in cls.fields:
        if field.name == _CODE:
            finders.insert(0, _own_code)
        elif field.kind == "array" and isinstance(field.of, StructType):
            find = _finder(field.of)
            if find is not None:
                finders.append(_in_list(field.name, find))
    if len(finders) <= 1:
        return finders[0] if finders else None
    return lambda message: chain.from_iterable(find(message) for find in finders)


def _own_code(message: Any) -> Iterable[int]:
    return (message.error_code,)


def _in_list(name: str, find: _Find) -> _Find:
    """Finds the codes of all structures of the list `name`."""
    if find is _own_code:
        return lambda message: map(_code_of, getattr(message, name) or ())
    return lambda message: chain.from_iterable(map(find, getattr(message, name) or ()))
