"""An answer that comes later, without a task.

Lighter than an asyncio future on purpose: the callback runs inside `resolve`, so a produce that completes a
waiting fetch costs two plain calls. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

__all__ = ["Deferred"]


class Deferred(Generic[T]):
    """A value to come. It is resolved or cancelled once; later calls are ignored."""

    __slots__ = ("_then", "_value", "convert", "done", "on_cancel", "request")

    #: what it answers, for the metrics; set only on the deferred answer to a request
    request: object

    def __init__(self) -> None:
        self.done = False
        #: called when the value is no longer needed
        self.on_cancel: Callable[[], None] | None = None
        #: converts the resolved value for the listener
        self.convert: Callable[[Any], T] | None = None
        self._value: Any = None
        self._then: Callable[[T], None] | None = None

    def resolve(self, value: T) -> None:
        if self.done:
            return
        self.done = True
        if self.convert is not None:
            value = self.convert(value)
            self.convert = None
        self._value = value
        # Let go of both: they lead back to here, and cycles are left to the garbage collector.
        then, self._then = self._then, None
        self.on_cancel = None
        if then is not None:
            then(value)

    def replace(self, value: T) -> None:
        """Resolve with a value that is not converted, and give up the work for the one that was to come."""
        if self.done:
            return
        given_up, self.on_cancel, self.convert = self.on_cancel, None, None
        self.resolve(value)
        if given_up is not None:
            given_up()

    def then(self, callback: Callable[[T], None]) -> None:
        """Have `callback` called with the value, at once if it is there."""
        assert self._then is None, "a deferred has one listener"
        self._then = callback
        if self.done:
            callback(self.value)

    def cancel(self) -> None:
        if not self.done:
            self.done = True
            if self.on_cancel is not None:
                self.on_cancel()

    @property
    def value(self) -> T:
        assert self.done
        value: T = self._value
        return value
