"""Long computations as generators: they yield after each slice, and the caller decides when they go on.

A slice takes at most a few milliseconds, so that a caller on the event loop can serve other requests between
two slices. The length of a slice is a number of elements, not a time: a simulation repeats it exactly.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

__all__ = ["SLICE", "Steps", "at_once", "collected", "is_slice_over", "slices"]

T = TypeVar("T")
#: a computation with a result
Steps: TypeAlias = Generator[None, None, T]
#: elements of one slice, of some 10 µs each
SLICE: Final = 128


def at_once(steps: Generator[object, None, T]) -> T:
    """The result of a computation that is known to be short, or that does not run on the event loop."""
    while True:
        try:
            next(steps)
        except StopIteration as e:
            result: T = e.value
            return result


def is_slice_over(number: int) -> bool:
    """Whether a slice ends with element `number`, counted from 1."""
    return not number % SLICE


def collected(elements: Iterable[T], size: int = SLICE) -> Steps[list[T]]:
    """The elements of a generator as a list, `size` at a time."""
    found: list[T] = []
    for some in slices(elements, size):
        found += some
        yield
    return found


def slices(elements: Iterable[T], size: int = SLICE) -> Iterator[list[T]]:
    """The elements in lists of at most `size`."""
    some: list[T] = []
    for element in elements:
        some.append(element)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
