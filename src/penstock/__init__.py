"""Penstock: a distributed message queue in Python that speaks the Kafka wire protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock.client import Admin, Consumer, Producer, Queue

__version__ = VERSION
__all__ = ["Admin", "Consumer", "Producer", "Queue", "__version__"]


def __getattr__(name: str) -> Any:
    # Imported on first use: a broker has no need of the clients, nor of librdkafka.
    if name in ("Admin", "Consumer", "Producer", "Queue"):
        from penstock import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
