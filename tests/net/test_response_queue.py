"""The order of responses, and the limit of those that are pending."""

from __future__ import annotations

from typing import cast

from penstock.net.deferred import Deferred
from penstock.net.output import Output
from penstock.net.response_queue import MAX_IN_FLIGHT, Parts, ResponseQueue


class Written:
    """An output that keeps each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, parts: Parts) -> None:
        self.writes.append(b"".join(cast(list[bytes], list(parts))))


class Case:
    def __init__(self) -> None:
        self.output = Written()
        self.changes: list[bool] = []
        #: the connection that serves frames, here the case itself or none
        self.serving: object = None
        self.queue = ResponseQueue(
            self, self, cast(Output, self.output), lambda: self.changes.append(self.queue.is_full)
        )

    def defer(self) -> Deferred[Parts | None]:
        deferred = Deferred[Parts | None]()
        assert self.queue.add(deferred)
        return deferred


def test_responses_to_the_frames_of_one_read_are_sent_in_one_write() -> None:
    case = Case()
    case.serving = case
    assert not case.queue.add([b"a"])
    assert not case.queue.add([b"b"])
    assert case.output.writes == []
    case.serving = None
    case.queue.flush()
    assert case.output.writes == [b"ab"]


def test_a_large_response_is_sent_at_once() -> None:
    case = Case()
    case.serving = case
    case.queue.add([b"small"])
    case.queue.add([b"x" * (1 << 15)])
    assert case.output.writes == [b"small" + b"x" * (1 << 15)]


def test_a_response_waits_for_those_before_it() -> None:
    case = Case()
    first, second = case.defer(), case.defer()
    assert not case.queue.add([b"third"])
    second.resolve([b"second"])
    assert case.output.writes == []
    first.resolve([b"first"])
    assert case.output.writes == [b"firstsecondthird"]


def test_a_request_without_a_response_lets_the_next_one_go() -> None:
    case = Case()
    first = case.defer()
    case.queue.add([b"second"])
    first.resolve(None)
    assert case.output.writes == [b"second"]


def test_responses_resolved_while_frames_are_served_are_held() -> None:
    case = Case()
    case.serving = case
    case.defer().resolve([b"a"])
    assert case.output.writes == []
    case.queue.flush()
    assert case.output.writes == [b"a"]


def test_the_connection_learns_when_the_queue_is_full_and_when_it_is_no_longer() -> None:
    case = Case()
    pending = [case.defer() for _ in range(MAX_IN_FLIGHT)]
    assert case.changes == [True]
    pending[1].resolve([b"second"])
    assert case.changes == [True]
    pending[0].resolve([b"first"])
    assert case.changes == [True, False]
    assert len(case.queue.pending) == MAX_IN_FLIGHT - 2


def test_a_closed_queue_sends_nothing() -> None:
    case = Case()
    alone = case.defer()
    case.queue.is_closed = True
    alone.resolve([b"late"])
    assert case.output.writes == []


def test_a_lost_connection_cancels_its_pending_requests() -> None:
    case = Case()
    cancelled: list[str] = []
    deferred = case.defer()
    deferred.request = "a request"
    deferred.on_cancel = lambda: cancelled.append("cancelled")
    assert list(case.queue.pending_requests()) == ["a request"]
    case.queue.cancel()
    assert (cancelled, list(case.queue.pending_requests())) == (["cancelled"], [])
