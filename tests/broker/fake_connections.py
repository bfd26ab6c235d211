"""Connections that frames are served for without a socket, at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.broker.request.dispatch import Dispatcher

__all__ = ["fake_connection"]


def fake_connection(dispatcher: Dispatcher, **attributes: Any) -> Any:
    """A connection of a broker that runs in the test.

    The dispatcher finishes each computation at once from now on: on a busy machine, a short one may take so
    long that it would wait for the connection's turn.
    """
    dispatcher.turns.clock = lambda: 0.0
    return SimpleNamespace(**{"memo": None, "listener": None, "rest": lambda: None, **attributes})
