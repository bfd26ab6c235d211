"""Joins the responses to the parts of a large request (`division`)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from penstock.broker.request.division import Division, Level

__all__ = ["Join"]


class Join:
    """The response to a divided request, in the making."""

    __slots__ = ("_also", "division", "known", "response")

    def __init__(self, division: Division) -> None:
        self.division = division
        self.response: Any = None
        #: the elements of the response that are unique or lists of elements, by their place in the response
        self.known: dict[Any, Any] = {}
        self._also: set[Any] = set()

    def add(self, response: Any, continued: int = 0) -> None:
        """Add the response to the next part; None if it has none.

        `continued` are the levels of the part that continue the part before (`continued_levels`).
        """
        if response is None:
            return
        first = self.response is None
        if first:
            self.response = copy(response)
            setattr(self.response, self.division.response[0].name, [])
            if self.division.also is not None:
                setattr(self.response, self.division.also.name, [])
        elif getattr(response, "error_code", 0) and not self.response.error_code:
            self.response.error_code = response.error_code
            if hasattr(response, "error_message"):
                self.response.error_message = response.error_message
        if self.division.in_place:
            _append(self.response, response, self.division.response, continued)
        else:
            self._merge(self.response, response, self.division.response, ())
        self._add_others(response)

    def _merge(self, joined: Any, added: Any, levels: Sequence[Level], place: tuple[Any, ...]) -> None:
        """Append a list of `added`; elements that are there already get the lists of their namesakes."""
        level, inner = levels[0], levels[1:]
        elements = getattr(joined, level.name)
        if elements is None:
            elements = []
            setattr(joined, level.name, elements)
        if not level.key or not (inner or self.division.is_unique):
            elements += getattr(added, level.name) or ()
            return
        for element in getattr(added, level.name) or ():
            key = (*place, level.key_of(element))
            known = self.known.get(key)
            if known is None:
                self.known[key] = element
                elements.append(element)
                if len(inner) > 1:
                    # Its own elements may come again as well.
                    for each in getattr(element, inner[0].name) or ():
                        self.known.setdefault((*key, inner[0].key_of(each)), each)
            elif inner:
                self._merge(known, element, inner, key)
                if getattr(element, "error_code", 0) and not known.error_code:
                    known.error_code = element.error_code

    def _add_others(self, response: Any) -> None:
        also = self.division.also
        if also is None:
            return
        elements = getattr(self.response, also.name)
        for element in getattr(response, also.name) or ():
            key = also.key_of(element)
            if key not in self._also:
                self._also.add(key)
                elements.append(element)


def _append(joined: Any, added: Any, levels: Sequence[Level], continued: int) -> None:
    """Append a list of `added`; its first element may continue the last one of `joined`.

    Elements with a key at the end of a path are unique: a config whose name was requested twice.
    """
    level = levels[0]
    elements, more = getattr(joined, level.name), getattr(added, level.name) or ()
    if elements is None:
        elements = []
        setattr(joined, level.name, elements)
    if len(levels) == 1 and level.key:
        known = set(map(level.key_of, elements))
        more = [each for each in more if level.key_of(each) not in known]
    if not (continued and elements and more) or level.key_of(elements[-1]) != level.key_of(more[0]):
        elements += more
        return
    last, rest = elements[-1], more[0]
    if getattr(rest, "error_code", 0) and not last.error_code:
        last.error_code = rest.error_code
    _append(last, rest, levels[1:], continued - 1)
