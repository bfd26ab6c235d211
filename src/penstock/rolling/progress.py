"""What a roll is about and how far it came, so that a roll that was stopped can be continued."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Progress", "decoded", "encoded"]


class Progress(NamedTuple):
    """A roll that has begun."""

    #: what changes, in words: two rolls with the same words are the same
    change: str
    #: the brokers that were restarted and came back
    done: tuple[int, ...] = ()
    #: the broker whose restart has begun; it may be stopped
    restarting: int | None = None
    #: the broker that was restarted and may not be back yet
    awaited: int | None = None

    def begin(self, broker: int) -> Progress:
        return self._replace(restarting=broker, awaited=None)

    def await_back(self, broker: int) -> Progress:
        return self._replace(restarting=None, awaited=broker)

    def finish(self, broker: int) -> Progress:
        return self._replace(done=(*self.done, broker), restarting=None, awaited=None)

    def left(self, brokers: Iterable[int]) -> list[int]:
        """The brokers that have not been restarted yet."""
        return sorted(set(brokers).difference(self.done))


def encoded(progress: Progress) -> str:
    return json.dumps(progress._asdict()) + "\n"


def decoded(text: str) -> Progress | None:
    """The inverse of `encoded`; None on anything else."""
    try:
        content = json.loads(text)
        restarting, awaited = (content[name] for name in ("restarting", "awaited"))
        return Progress(
            str(content["change"]),
            tuple(int(each) for each in content["done"]),
            None if restarting is None else int(restarting),
            None if awaited is None else int(awaited),
        )
    except (ValueError, TypeError, KeyError):
        return None
