"""Finds the error codes of a response, for the metrics: at its top, and in its lists of structures.

The fields to look at are derived once from the table of the response. At most `ITEMS_MAX` structures of a
response are looked at, so that a large response costs little more than a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from penstock.wire.schema import Struct, StructType

__all__ = ["error_codes"]

ITEMS_MAX: Final = 1000
_CODE: Final = "error_code"


def error_codes(response: type[Struct]) -> Callable[[Any], Iterator[int]] | None:
    """A function that returns the error codes of such a response; None if it has none."""
    find = _finder(response)
    if find is None:
        return None
    return lambda message: islice(find(message), ITEMS_MAX)


def _finder(cls: StructType) -> Callable[[Any], Iterator[int]] | None:
    has_code = any(field.name == _CODE for field in cls.fields)
    lists = []
    for field in cls.fields:
        if field.kind == "array" and isinstance(field.of, StructType):
            find = _finder(field.of)
            if find is not None:
                lists.append((field.name, find))
    if not has_code and not lists:
        return None

    def codes(message: Any) -> Iterator[int]:
        if has_code:
            yield message.error_code
        for name, find in lists:
            for part in getattr(message, name) or ():
                yield from find(part)

    return codes
