"""The errors of the data source, besides error codes of brokers: those of `penstock.reading`, and of writing.

ReadingError
├── WrongOption     an option, or a schema, that cannot be: the user's to change
├── DataLost        records that should be read are gone, and `failOnDataLoss` says that it matters
└── DeliveryFailed  a row could not be written: Spark runs the task again
"""

from __future__ import annotations

from penstock.reading.errors import DataLost, ReadingError, WrongOption

__all__ = ["DataLost", "DeliveryFailed", "ReadingError", "WrongOption"]


class DeliveryFailed(ReadingError):
    """A row could not be written."""
