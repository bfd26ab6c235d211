"""What a broker logs of errors that nothing awaits, and its settings of the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from penstock.broker.app.server import _log_unhandled, tune_garbage_collector
from tests.broker.events import Events


@pytest.mark.parametrize(
    ("error", "level", "event"),
    [
        (socket.gaierror(-3, "Temporary failure in name resolution"), "debug", "lookup_left_behind"),
        (ConnectionResetError("a peer"), "error", "unhandled_error"),
    ],
)
def test_a_lookup_that_fails_too_late_is_no_error(
    error: Exception, level: str, event: str, events: Events
) -> None:
    """On Kubernetes the names of the first brokers cannot be resolved for seconds, or for minutes."""
    loop = asyncio.new_event_loop()
    try:
        _log_unhandled(loop, {"message": "Future exception was never retrieved", "exception": error})
    finally:
        loop.close()
    assert [(each[0], each[1]) for each in events.all] == [(level, event)]


def test_a_broker_begins_to_serve_without_a_search_for_garbage() -> None:
    """The search takes 10 to 50 µs for each partition, and finds some hundred objects of the start."""
    before, collections = gc.get_threshold(), list[str]()
    frozen = gc.get_freeze_count()
    gc.disable()
    gc.callbacks.append(note := lambda phase, _: collections.append(phase))
    try:
        tune_garbage_collector()
        assert collections == []
        assert gc.get_freeze_count() > frozen
    finally:
        gc.callbacks.remove(note)
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*before)
