"""The port through which an earlier stage of a broker calls a later one.

The stages are composed in the order of dependency: each function gets the stages before it. A few calls go
the other way. They are all here, and no other part is connected after its construction:

| caller | call | receiver |
|---|---|---|
| partitions, which the replicas use | `hosted`: a partition was opened and needs a role | replicas |
| partitions | `metadata_doubt`: whether the metadata is proof enough to delete | cluster node |
| scrubber and full directories, which the replicas use | `review`: assign roles again | replicas |
| partitions, full directories, cluster node | `heartbeat_due`: report to the controller now | lifecycle |
| cluster node | `metadata_applied`: records are in the image | metadata changes, which use all stages |
| listener security | `certificates_revoked`: lists were loaded again | revocations, which use connections |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.broker.replica.partition import Partition
from penstock.security.revocation_lists import RevocationLists
from penstock.wire.schema import Struct

__all__ = ["LaterStages", "UpwardPort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterStages:
    """The receivers of the calls."""

    hosted: Callable[[Partition], None]
    metadata_doubt: Callable[[], str | None]
    review: Callable[[Iterable[Partition]], None]
    heartbeat_due: Callable[[], None]
    metadata_applied: Callable[[Sequence[Struct]], Awaitable[None]]
    certificates_revoked: Callable[[str, RevocationLists], Awaitable[None]]


class UpwardPort:
    """Passes calls of earlier stages on to later ones.

    Invariant: `connect` is called once, at the end of the composition and before any stage is started.
    """

    __slots__ = ("_connected",)

    def __init__(self) -> None:
        self._connected: LaterStages | None = None

    def connect(self, stages: LaterStages) -> None:
        assert self._connected is None, "the stages are connected once"
        self._connected = stages

    @property
    def _stages(self) -> LaterStages:
        assert self._connected is not None, "a stage was started before all were composed"
        return self._connected

    def hosted(self, partition: Partition) -> None:
        """A partition was opened, and has no role yet."""
        self._stages.hosted(partition)

    def metadata_doubt(self) -> str | None:
        """Why the metadata is no proof that partitions may be deleted; None if it is one."""
        return self._stages.metadata_doubt()

    def review(self, partitions: Iterable[Partition]) -> None:
        """Assign roles again: the damage of partitions, or the state of their directory, has changed."""
        self._stages.review(partitions)

    def heartbeat_due(self) -> None:
        """Send the next heartbeat at once; nothing in a cluster of one broker."""
        self._stages.heartbeat_due()

    async def metadata_applied(self, records: Sequence[Struct]) -> None:
        """Records were applied to the image."""
        await self._stages.metadata_applied(records)

    async def certificates_revoked(self, listener: str, lists: RevocationLists) -> None:
        """The revocation lists of a listener were loaded again."""
        await self._stages.certificates_revoked(listener, lists)
