"""The resolution of subscriptions by regular expression: an effect of the group coordinator.

A worker matches the expressions with the names of topics, because both may be large. Kafka does it in the
executor of its group coordinator. The outcome comes back as an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ResolveTopicRegexes"]


class ResolveTopicRegexes(NamedTuple):
    """An effect: find the topics that the regular expressions of a group match."""

    group_id: str
    regexes: tuple[str, ...]
    #: of the image whose topics are matched
    image_offset: int
    #: whether the member that sent the last heartbeat has Describe on a topic: other topics do not match
    may_describe: Callable[[str], bool]
