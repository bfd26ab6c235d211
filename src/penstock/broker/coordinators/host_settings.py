"""Dependencies of the hosts of a coordinator's shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.broker.coordinators.shard_log import Loader
from penstock.coordination.outbox import Effect
from penstock.coordination.shard import CoordinatorShard
from penstock.ports import Clock

__all__ = ["HostSettings"]

S = TypeVar("S", bound=CoordinatorShard)


class HostSettings(Generic[S]):
    """Dependencies that all hosts of a coordinator share."""

    __slots__ = ("clock", "commit_timeout_s", "loader", "make_shard", "run_effect")

    def __init__(
        self,
        make_shard: Callable[[], S],
        clock: Clock,
        loader: Loader,
        commit_timeout_s: float,
        run_effect: Callable[[int, Effect], None],
    ) -> None:
        """`run_effect` starts an effect, given the partition's index, and returns without waiting for it."""
        self.make_shard = make_shard
        #: measures sessions and other timeouts of the shard
        self.clock = clock
        self.loader = loader
        #: the time for which a reply waits for the commit of its records
        self.commit_timeout_s = commit_timeout_s
        self.run_effect = run_effect
