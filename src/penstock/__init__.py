"""Penstock: a distributed message queue in Python that speaks the Kafka wire protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client import Admin, Consumer, Producer

__version__ = "0.1.0"
__all__ = ["Admin", "Consumer", "Producer", "__version__"]


def __getattr__(name: str) -> Any:
    # Imported on first use: a broker has no need of the clients, nor of librdkafka.
    if name in ("Admin", "Consumer", "Producer"):
        from penstock import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
