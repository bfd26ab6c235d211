"""Divides large requests into parts; `joining` joins the responses.

`divisions` has the table of APIs. A list is written as its name, with the fields that identify an element:
`topics:name/partitions` are the partitions of topics. Elements that were divided are joined by those fields,
or only with the pieces of the same element (`Division.in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.schema import Field, Struct, StructType

__all__ = [
    "PART_ELEMENTS",
    "Division",
    "Level",
    "continued_levels",
    "is_excessive",
    "parts",
    "refused",
]

#: elements of a part; each takes 10 to 20 µs
PART_ELEMENTS: Final = 100
#: As many characters count as an element.
_LONG: Final = 256
#: As many bytes of records count as an element: a part has a megabyte.
_RECORDS: Final = 10 << 10
#: elements of the same key that a part keeps, and those that are looked at in one step
_DUPLICATES: Final = 2
_GROUPED_AT_ONCE: Final = 500
#: the most elements of a list that is a key: the types of entities that have quotas, and some more
_KEY_PARTS: Final = 8
#: the names of the texts of structures
_TEXTS: Final[dict[type[Struct], list[str]]] = {}
#: the message of Kafka's controller for a change of too many records
EXCESSIVE: Final = "Unable to perform excessively large batch operation."


class Level(NamedTuple):
    """A list of structures, or of simple values at the end of a path."""

    name: str
    key: tuple[str, ...]

    def key_of(self, element: Any) -> tuple[Any, ...]:
        return tuple(getattr(element, field) for field in self.key)


class Division:
    """How the requests of one API are divided."""

    __slots__ = (
        "also",
        "answers_each",
        "elements",
        "in_place",
        "is_unique",
        "most",
        "request",
        "response",
        "together",
        "unless",
        "weight",
    )

    def __init__(
        self,
        request: str,
        response: str,
        *,
        elements: int = PART_ELEMENTS,
        is_unique: bool = False,
        in_place: bool = False,
        also: str = "",
        together: Sequence[str] = (),
        answers_each: bool = False,
        unless: str = "",
        most: int = 0,
        weight: Callable[[Any], int] | None = None,
    ) -> None:
        """`elements` is the size of a part.

        With `is_unique` the response has each element once, however often it was requested. With `in_place`
        it has each element as often as it was requested. `also` is another list of the response that is the
        union of those of its parts.

        Elements with the same values in the fields `together` are in the same part: the handler refuses
        duplicates. It answers all of them once, or each of them with `answers_each`. A request that has
        elements in the list `unless` is not divided.

        With `most`, a request with more elements is refused as a whole, as Kafka's controller does. `weight`
        returns for how many an element counts.
        """
        assert most or not together, "elements are put together at once, so there must not be many"
        self.request = _path(request)
        self.response = _path(response)
        self.elements = elements
        self.is_unique = is_unique
        self.in_place = in_place
        self.also = _path(also)[0] if also else None
        self.together = tuple(together)
        self.answers_each = answers_each
        self.unless = unless
        self.most = most
        self.weight = weight


def _path(text: str) -> tuple[Level, ...]:
    levels = []
    for part in text.split("/"):
        name, _, key = part.partition(":")
        levels.append(Level(name, tuple(key.split(",")) if key else ()))
    return tuple(levels)


def parts(division: Division, request: Any, *, ungrouped: bool = False) -> Generator[Any, None, None]:
    """Requests with a part of the elements each, in order; the request itself if it has no element.

    Yields None where it needs more time for the next part. With `ungrouped`, elements of the same key may be
    in different parts.
    """
    name = division.request[0].name
    elements = getattr(request, name)
    if not elements or (division.unless and getattr(request, division.unless)):
        # No list at all mostly means everything: the handler knows.
        yield request
        return
    if division.together and not ungrouped:
        elements = yield from _put_together(elements, division)
    for some in _chunks(elements, division.request[1:], division.elements):
        part = copy(request)
        setattr(part, name, some)
        yield part


def _chunks(elements: Sequence[Any], inner: Sequence[Level], most: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for element in elements:
        if element.__class__ is _Together:
            yield element
            continue
        weight = _weight(element, inner, most)
        # Without elements of its own there is nothing to divide: it is heavy because of a long name.
        if weight > most and inner and getattr(element, inner[0].name):
            if chunk:
                yield chunk
                chunk, size = [], 0
            piece_of: type[list[Any]] = list
            for some in _chunks(getattr(element, inner[0].name), inner[1:], most):
                divided = copy(element)
                setattr(divided, inner[0].name, some)
                yield piece_of([divided])
                piece_of = _Continued
            continue
        if chunk and size + weight > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(element)
        size += weight
    if chunk:
        yield chunk


def _weight(element: Any, inner: Sequence[Level], most: int) -> int:
    """The number of elements in an element, itself included; any number above `most` if it has more.

    Long names count for more: handlers hash, compare and copy them. So do record batches.
    """
    own = 1 + _characters(element) // _LONG
    if not inner:
        return own if not hasattr(element, "records") else own + len(element.records or b"") // _RECORDS
    elements = getattr(element, inner[0].name) or ()
    weight = own + len(elements)
    if weight > most or (len(inner) == 1 and not (elements and hasattr(elements[0], "records"))):
        return weight
    for each in elements:
        weight += _weight(each, inner[1:], most) - 1
        if weight > most:
            break
    return weight


def _characters(element: Any) -> int:
    if element.__class__ is str:
        return len(element)
    if not isinstance(element, Struct):
        return 0
    names = _TEXTS.get(type(element))
    if names is None:
        names = _TEXTS[type(element)] = [f.name for f in type(element).fields if f.kind == "string"]
    return sum([len(getattr(element, name) or "") for name in names])


def _put_together(elements: Sequence[Any], division: Division) -> Generator[None, None, list[Any]]:
    """The elements, with lists in place of those that have the same key: a list is not divided."""
    known: dict[Any, _Together] = {}
    for number, element in enumerate(elements, 1):
        key = element
        if isinstance(element, Struct):
            key = _key(element, division.together)
        same = known.setdefault(key, _Together())
        if division.answers_each or len(same) < _DUPLICATES:
            same.append(element)
        if number % _GROUPED_AT_ONCE == 0:
            yield
    found: list[Any] = []
    for same in known.values():
        if len(same) == 1:
            found.append(same[0])
            continue
        # Two of them are enough for the handler to refuse them.
        size = max(_DUPLICATES, division.elements)
        starts = range(0, max(1, len(same) - 1), size)
        found += [_Together(same[at : at + size + (at == starts[-1])]) for at in starts]
    return found


def _key(element: Struct, fields: Sequence[str]) -> Any:
    """The values of fields; another one for each element that has a long list, which the handler refuses."""
    values = [getattr(element, field) for field in fields]
    if any(isinstance(value, list) and len(value) > _KEY_PARTS for value in values):
        return id(element)
    return tuple(map(_hashable, values))


class _Together(list[Any]):
    """Elements that have to be in the same part."""


class _Continued(list[Any]):
    """A part's only element, which continues the last element of the part before."""


def continued_levels(division: Division, part: Any) -> int:
    """How many levels of a part continue the part before: 2 for a group and a topic in it, for example."""
    levels = 0
    if division.in_place:
        for level in division.request:
            elements = getattr(part, level.name)
            if elements.__class__ is not _Continued:
                break
            levels, part = levels + 1, elements[0]
    return levels


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, Struct):
        return tuple(_hashable(getattr(value, field.name)) for field in type(value).fields)
    return value


def is_excessive(division: Division, request: Any) -> bool:
    """Whether a request has more elements than one may have."""
    if not division.most:
        return False
    elements = getattr(request, division.request[0].name) or ()
    if len(elements) > division.most:
        return True
    return division.weight is not None and sum(map(division.weight, elements)) > division.most


def refused(api: Api[Any, Any], division: Division, part: Any) -> Any:
    """The response to a part of a request that has too many elements."""
    code = ErrorCode.POLICY_VIOLATION
    level = division.response[0]
    element = next(field.of for field in api.response.fields if field.name == level.name)
    # Only what identifies an element: a topic that was not created has no number of partitions.
    named = [field for field in element.fields if field.name in division.together]
    results = []
    for each in getattr(part, division.request[0].name):
        result = element(error_code=code, error_message=EXCESSIVE)
        for field in named:
            setattr(result, field.name, each if isinstance(each, str) else _answered(field, each))
        results.append(result)
    return api.response(**{level.name: results})


def _answered(field: Field, element: Any) -> Any:
    """The value of a field as that of the response: the elements of lists are of another type there."""
    value, of = getattr(element, field.name), field.of
    if not isinstance(of, StructType):
        return value
    return [of(**{each.name: getattr(item, each.name) for each in of.fields}) for item in value[:_KEY_PARTS]]
