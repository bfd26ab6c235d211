"""Records slow requests, and the requests that are sampled for spans.

The dispatcher compares the time of each request with `Dispatcher.slow_ns`, and calls `slow` only for those
above it. It calls `sampled` for a request that `Dispatcher.sample_next` has chosen. All other requests pay
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.broker.request.request_subjects import Counts, Subjects, produce_counts
from penstock.model.errors import ProtocolError
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.observability.requests import EventLimit, PartitionRange, ServedRequest, log_fields
from penstock.ports import Clock
from penstock.wire.apis.fetch import FETCH, FetchRequest, FetchResponse
from penstock.wire.apis.produce import PRODUCE, ProduceRequest, ProduceResponse
from penstock.wire.messages import RequestHeader, decode_request_header, decode_response

__all__ = ["NEVER_NS", "RequestWatch"]

log = get_logger("slow_requests")
#: a threshold that no request reaches
NEVER_NS: Final = 1 << 62
#: APIs that wait because the client wants it: their time in the handlers counts, and their time on a disk
_WAIT_BY_DESIGN: Final = frozenset({"Fetch", "ShareFetch", "JoinGroup", "SyncGroup"})
#: the length before a response
_SIZE_BYTES: Final = 4
#: responses that are decoded for their offsets
_DECODED_MAX: Final = 1 << 20

Serve = Callable[[Connection, memoryview], Answer]


class RequestWatch:
    """Logs slow requests, and hands these and sampled ones to `export`. Owned by the event loop's thread."""

    def __init__(self, clock: Clock, subjects: Subjects, per_minute: int) -> None:
        self._clock = clock
        self._subjects = subjects
        self.limit = EventLimit(per_minute)
        #: takes requests for spans; None if spans are not exported
        self.export: Callable[[ServedRequest], None] | None = None

    # -- slow requests

    def slow(
        self, context: Context, started: int, took: int, threshold: int, request: Any, message: Any
    ) -> None:
        """Record a request that took `took` from `started` on, if it is slow.

        `request` is None if its frame is gone. `message` is what the handler has returned.
        """
        stages = self._stages(context, started, took)
        busy = took
        if context.stats.name in _WAIT_BY_DESIGN:
            busy = stages["handle"] + stages.get("disk", 0)
        if busy < threshold:
            return
        context.stats.slow += 1
        left_out = self.limit.admit(self._clock.monotonic())
        if left_out is None:
            return
        partitions = self._partitions(context, request, message)
        served = ServedRequest(
            api=context.stats.name,
            version=context.version,
            listener=context.listener.name,
            client_id=context.client_id or "",
            peer=context.connection.peer,
            began_unix_ns=self._clock.now_ms() * 1_000_000 - took,
            duration_ns=took,
            stages_ns=stages,
            partitions=partitions,
            is_slow=True,
            traceparent=None if self.export is None else self._subjects.traceparent(partitions),
        )
        log.warning("request_slow", **log_fields(served), left_out=left_out)
        if self.export is not None:
            self.export(served)

    def _stages(self, context: Context, started: int, took: int) -> dict[str, int]:
        handled = max(started, getattr(context, "handled_ns", 0))
        if handled == started:
            return {"handle": took}
        stages = {"handle": handled - started, "wait": started + took - handled}
        for name, ended in getattr(context, "marks", {}).items():
            if ended >= handled:
                # A context that several requests share may have the marks of an earlier one.
                stages[name] = ended - handled
        return stages

    def _partitions(self, context: Context, request: Any, message: Any) -> list[PartitionRange]:
        subjects = self._subjects
        if context.stats.name == PRODUCE.name:
            if isinstance(message, ProduceResponse):
                counts = produce_counts(request) if isinstance(request, ProduceRequest) else None
                return subjects.produced(message.responses, counts)
            if isinstance(request, ProduceRequest) and message.__class__ is tuple:
                return subjects.acknowledged(request, message[1])
            return subjects.produced(getattr(context, "answers", ()))
        if isinstance(request, FetchRequest):
            return subjects.fetched(request, message if isinstance(message, FetchResponse) else None)
        return []

    # -- sampled requests

    def sampled(
        self, serve: Serve, names: dict[int, str], connection: Connection, frame: memoryview
    ) -> Answer:
        """Serve a frame, and record it. `names` has the names of the APIs by their keys."""
        header = decode_request_header(frame)
        request = _decoded(header, frame)
        counts = produce_counts(request) if isinstance(request, ProduceRequest) else None
        recording = _Recording(self, names, connection, header, request, counts)
        answer = serve(connection, frame)
        recording.handled = perf_counter_ns()
        if not isinstance(answer, Deferred) or answer.done:
            recording.finish(answer.value if isinstance(answer, Deferred) else answer)
            return answer
        convert = answer.convert

        def converted(value: Any) -> Parts | None:
            recording.resolved = perf_counter_ns()
            parts: Parts | None = value if convert is None else convert(value)
            recording.finish(parts)
            return parts

        answer.convert = converted
        return answer

    def recorded(self, recording: _Recording, parts: Parts | None) -> None:
        """Export a request that was sampled."""
        if self.export is None:
            return
        header, ended = recording.header, perf_counter_ns()
        took, handled = ended - recording.started, recording.handled or ended
        stages = {"queue": recording.queued_ns, "handle": handled - recording.started}
        if recording.resolved:
            stages["wait"] = recording.resolved - handled
            stages["encode"] = ended - recording.resolved
        partitions = self._sampled_partitions(recording, parts)
        self.export(
            ServedRequest(
                api=recording.names.get(header.api_key, str(header.api_key)),
                version=header.api_version,
                listener=recording.connection.listener.name,
                client_id=header.client_id or "",
                peer=recording.connection.peer,
                began_unix_ns=self._clock.now_ms() * 1_000_000 - took,
                duration_ns=took,
                stages_ns=stages,
                partitions=partitions,
                traceparent=self._subjects.traceparent(partitions),
            )
        )

    def _sampled_partitions(self, recording: _Recording, parts: Parts | None) -> list[PartitionRange]:
        request, header = recording.request, recording.header
        if isinstance(request, ProduceRequest):
            response = _decoded_response(PRODUCE, header.api_version, parts)
            return [] if response is None else self._subjects.produced(response.responses, recording.counts)
        if isinstance(request, FetchRequest):
            fetched = _decoded_response(FETCH, header.api_version, parts)
            return self._subjects.fetched(request, fetched)
        return []


class _Recording:
    """One sampled request on its way."""

    def __init__(
        self,
        watch: RequestWatch,
        names: dict[int, str],
        connection: Connection,
        header: RequestHeader,
        request: Any,
        counts: Counts | None,
    ) -> None:
        self._watch = watch
        self.names = names
        self.connection = connection
        self.header = header
        #: a Fetch request is kept; of a Produce request only what does not refer to its frame
        self.request = request if counts is None else ProduceRequest(acks=request.acks)
        self.counts = counts
        self.started = perf_counter_ns()
        #: the time since the event loop has received the bytes: it served other connections meanwhile
        self.queued_ns = max(0, self.started - int(connection.active_at * 1e9))
        self.handled = 0
        self.resolved = 0

    def finish(self, parts: Parts | None) -> None:
        self._watch.recorded(self, parts)


def _decoded(header: RequestHeader, frame: memoryview) -> Any:
    """The request of an API whose offsets are recorded; None for others, and for invalid requests."""
    for api in (PRODUCE, FETCH):
        if api.key == header.api_key and api.supports(header.api_version):
            try:
                return api.request_decoder(header.api_version)(frame, header.body_offset)
            except ProtocolError:
                return None
    return None


def _decoded_response(api: Any, version: int, parts: Parts | None) -> Any:
    """The response, if its bytes are in memory and few."""
    if parts is None or not all(isinstance(part, bytes | bytearray | memoryview) for part in parts):
        return None
    if sum(map(len, parts)) > _DECODED_MAX:
        return None
    data = b"".join(parts)  # type: ignore[arg-type]
    return decode_response(api, version, memoryview(data)[_SIZE_BYTES:])
