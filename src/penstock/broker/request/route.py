"""The codecs, the handler and the counters of one version of one API."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, Final

from penstock.broker.base.context import Handler
from penstock.broker.base.metrics import ApiStats
from penstock.broker.base.repeated import Learn
from penstock.broker.request.division import PART_ELEMENTS
from penstock.broker.request.divisions import division_of
from penstock.broker.request.error_codes import error_codes
from penstock.broker.request.repeats import has_many
from penstock.net.response_queue import Parts
from penstock.wire.api import Api
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.messages import response_writer, sliced_response_writer
from penstock.wire.slicing import SMALL_ELEMENTS, SMALL_RESPONSE, LargeMessage

__all__ = ["Route"]

#: the hot path: their handlers know whether a response has errors
_HOT: Final = frozenset({PRODUCE.key, FETCH.key})
#: the most elements of their requests that are handled at once
_HOT_ELEMENTS: Final = 500


def _bound(api: Api[Any, Any], version: int) -> int:
    """The most elements of a request that is handled at once: few if an element takes long."""
    division = division_of(api, version)
    if division is None or division.elements >= PART_ELEMENTS:
        return SMALL_ELEMENTS
    return 2 * division.elements


def _decoder(api: Api[Any, Any], version: int, elements: int) -> Callable[[memoryview, int], Any]:
    """The decoder of requests that are handled at once; it raises LargeMessage for others."""
    decode = api.bounded_request_decoder(version, elements)
    is_large = has_many(api.key)
    if is_large is None:
        return decode

    def decode_few(frame: memoryview, position: int) -> Any:
        request = decode(frame, position)
        if is_large(request):
            raise LargeMessage
        return request

    return decode_few


class Route:
    """All that is known about one version of one API before a request comes."""

    __slots__ = (
        "_write_sliced",
        "api",
        "codes",
        "decode",
        "handler",
        "is_async",
        "is_flexible",
        "is_hot",
        "latency",
        "learn",
        "observe",
        "stats",
        "version",
        "write",
    )

    def __init__(
        self, api: Api[Any, Any], version: int, handler: Handler, stats: ApiStats, learn: Learn | None
    ) -> None:
        #: on the hot path: the handler counts errors and bounds the response
        self.is_hot = is_hot = api.key in _HOT
        self.api = api
        self.version = version
        self.handler = handler
        self.learn = learn
        self.is_flexible = version >= api.flexible_from
        self.is_async = inspect.iscoroutinefunction(handler)
        assert not (is_hot and self.is_async), (
            "the batches of a Produce request are in the receive buffer, which the next request takes before "
            "the coroutine begins"
        )
        self.decode = _decoder(api, version, _HOT_ELEMENTS if is_hot else _bound(api, version))
        self.write = response_writer(api, version, None if is_hot else SMALL_RESPONSE)
        self._write_sliced: Callable[[int, Any], Generator[None, None, Parts]] | None = None
        self.stats = stats
        self.latency = stats.latency
        self.observe = stats.latency.observe
        #: returns the error codes of a response; None if the handler counts them
        self.codes = None if is_hot else error_codes(api.response)

    @property
    def write_sliced(self) -> Callable[[int, Any], Generator[None, None, Parts]]:
        """Encodes a large response; compiled at the first one."""
        if self._write_sliced is None:
            self._write_sliced = sliced_response_writer(self.api, self.version)
        return self._write_sliced
