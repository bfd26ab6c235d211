"""The denials of one request, collected for one audit event.

A request may name a million resources that its client has no rights on. The collector counts them by
operation and resource type, and keeps the first few names of each. Its size and the cost of a denial do not
depend on the number of names.

Owned by: the event loop's thread, from the first denial of a request until the request has its response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.security.acls import Operation, ResourceType

__all__ = ["SAMPLES_MAX", "Denials", "DeniedKind"]

#: the names that an event has for each operation and resource type
SAMPLES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class DeniedKind:
    """The denials of one operation on one type of resource."""

    operation: str
    resource_type: str
    count: int
    #: the first different names, at most SAMPLES_MAX
    samples: list[str]


class _Count:
    """How often an operation on a type of resource was denied."""

    __slots__ = ("count", "operation", "resource_type", "samples")

    def __init__(self, operation: Operation, resource_type: ResourceType) -> None:
        self.operation = operation
        self.resource_type = resource_type
        self.count = 0
        self.samples: list[str] = []


class Denials:
    """Counts the denials of a request. `end` passes them on, once the request has its response."""

    __slots__ = ("_counts", "_last", "_on_end", "context")

    def __init__(self, context: Any, on_end: Callable[[Denials], None]) -> None:
        self.context = context
        self._on_end = on_end
        self._counts: dict[tuple[int, int], _Count] = {}
        #: the count that was raised last: a request has its names in lists of one kind
        self._last: _Count | None = None

    def add(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        last = self._last
        if last is None or last.operation is not operation or last.resource_type is not resource_type:
            last = self._last = self._count_of(operation, resource_type)
        last.count += 1
        samples = last.samples
        if len(samples) < SAMPLES_MAX and name not in samples:
            samples.append(name)

    def _count_of(self, operation: Operation, resource_type: ResourceType) -> _Count:
        key = (int(operation), int(resource_type))
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = _Count(operation, resource_type)
        return found

    def __iter__(self) -> Iterator[DeniedKind]:
        """The kinds of denials, in the order of the first denial of each."""
        for each in self._counts.values():
            yield DeniedKind(each.operation.name, each.resource_type.name, each.count, each.samples)

    def end(self) -> None:
        """The request has its response, or never gets one."""
        self.context.denials = None
        self._on_end(self)
