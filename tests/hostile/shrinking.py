"""Makes a request that stalls a broker smaller, as long as it still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from penstock.wire.schema import Struct

__all__ = ["described", "shrunk"]

_TRIES: Final = 60
_SHOWN: Final = 3


def shrunk(request: Struct, fails: Callable[[Struct], bool], tries: int = _TRIES) -> Struct:
    """A smaller request for which `fails` is still true: lists and texts are halved one after the other."""
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(request):
            tries -= 1
            if fails(smaller):
                request, progress = smaller, True
                break
            if tries <= 0:
                break
    return request


def _smaller(request: Struct) -> Iterator[Struct]:
    """Requests with one list or text cut, the largest cuts first."""
    for field in type(request).fields:
        for value in _cut(getattr(request, field.name)):
            changed = copy(request)
            setattr(changed, field.name, value)
            yield changed


def _cut(value: Any) -> Iterator[Any]:
    if isinstance(value, Struct):
        yield from _smaller(value)
    elif isinstance(value, list | str | bytes | memoryview) and len(value) > 1:
        middle = len(value) // 2
        yield value[:middle]
        yield value[middle:]
        if isinstance(value, list) and isinstance(value[0], Struct):
            # The same cut in all elements, and else in the first: single ones are too many to try.
            for shorter in _smaller(value[0]):
                yield [_like(element, value[0], shorter) for element in value]
        yield value[: -max(1, len(value) // 8)]
    elif isinstance(value, list) and value and isinstance(value[0], Struct):
        for shorter in _smaller(value[0]):
            yield [shorter]


def _like(element: Struct, before: Struct, after: Struct) -> Struct:
    """`element` with those fields emptied or cut that differ between `before` and `after`."""
    changed = copy(element)
    for field in type(element).fields:
        cut, old = getattr(after, field.name), getattr(before, field.name)
        own = getattr(element, field.name)
        if cut is not old and isinstance(own, list | str | bytes | memoryview):
            setattr(changed, field.name, own[: len(cut)])
    return changed


def described(value: Any) -> str:
    """A request in one line, with the first elements of each list, and the number of all."""
    if isinstance(value, Struct):
        fields = [(f, getattr(value, f.name)) for f in type(value).fields]
        shown = [f"{f.name}={described(v)}" for f, v in fields if v not in (f.default, [], None)]
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, list):
        first = ", ".join(map(described, value[:_SHOWN]))
        return f"[{first}]" if len(value) <= _SHOWN else f"[{first}, … {len(value)} in all]"
    if isinstance(value, memoryview):
        return f"<{len(value)} bytes>"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:60]}… {len(value)} in all"
