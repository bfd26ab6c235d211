"""The limits and the result of a ShareFetch."""

from __future__ import annotations

from typing import NamedTuple

from penstock.client.errors import Refused
from penstock.client.queues.message import QueueMessage

__all__ = ["FetchLimits", "Fetched"]


class FetchLimits(NamedTuple):
    """The limits of each fetch."""

    min_bytes: int = 1
    max_bytes: int = 50 << 20
    #: Smaller requests acquire no more records than they name. Larger ones acquire whole batches, because
    #: the broker sends a batch again for each part of it that is acquired.
    whole_batches_from: int = 500


class Fetched(NamedTuple):
    """The result of a ShareFetch."""

    messages: list[QueueMessage]
    #: the metadata of partitions is out of date
    is_stale: bool = False
    #: a retry does not help
    failure: Refused | None = None
    #: the broker has no room for a session, or refuses for now
    must_wait: bool = False
