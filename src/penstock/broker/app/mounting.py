"""What a broker serves besides its own data: a backup that is mounted before it accepts clients."""

from __future__ import annotations

from typing import Protocol

from penstock.broker.app.stages import Stages

__all__ = ["Mounting"]


class Mounting(Protocol):
    """A backup, for a broker that is otherwise empty."""

    async def attach(self, stages: Stages) -> None:
        """Make topics, partitions and groups; the broker does not serve clients yet."""
        ...

    async def close(self) -> None:
        """Release all resources; the broker does not serve clients any more."""
        ...
