"""The errors of the data source, besides error codes of brokers.

PenstockError
└── SparkSourceError
    ├── WrongOption     an option, or a schema, that cannot be: the user's to change
    ├── DataLost        records that should be read are gone, and `failOnDataLoss` says that it matters
    └── DeliveryFailed  a row could not be written: Spark runs the task again

Connections fail with `net.peer_errors`, as those of all clients; the caller retries.
"""

from __future__ import annotations

from penstock.model.errors import PenstockError

__all__ = ["DataLost", "DeliveryFailed", "SparkSourceError", "WrongOption"]


class SparkSourceError(PenstockError):
    """Anything that the data source itself raises on purpose."""


class WrongOption(SparkSourceError, ValueError):
    """The user's to change."""


class DataLost(SparkSourceError):
    """Records that should be read are gone."""


class DeliveryFailed(SparkSourceError):
    """A row could not be written."""
