"""Carries out a roll: looks at the cluster, restarts a broker through a hook, and waits until it is back.

A roll ends with RollStopped as soon as something is wrong: it restarts nothing any more, and says why. The
same roll can be continued later, with the brokers that are left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from penstock.model.errors import PenstockError
from penstock.rolling.observing import NotObserved
from penstock.rolling.planner import Done, Refuse, Restart, Step, Wait, next_step, obstacles
from penstock.rolling.progress import Progress
from penstock.rolling.state import NO_EPOCH, ClusterState

__all__ = ["Observed", "Roll", "RollStopped"]

#: between two looks at the cluster; at least as long as a look takes
_PAUSE_S: Final = 0.2


class RollStopped(PenstockError):
    """Something is wrong. No broker is restarted any more until the roll is continued."""


class Observed(Protocol):
    """The cluster, as `RolledCluster` describes it."""

    async def describe(self) -> ClusterState:
        """The present state; NotObserved if it cannot be described now."""
        ...

    async def elect_preferred(self, broker: int, state: ClusterState) -> None:
        """Let a broker lead again the partitions of which it is the first replica."""
        ...


class Roll:
    """One roll of a cluster: `await Roll(...).run(progress)`."""

    def __init__(
        self,
        cluster: Observed,
        restart: Callable[[int], Awaitable[None]],
        *,
        timeout_s: float,
        say: Callable[[str], None],
        save: Callable[[Progress], None],
        allow_outages: bool = False,
        awaits_process: bool = False,
    ) -> None:
        """`restart` ends a broker with SIGTERM, so with a controlled shutdown, and starts it again.

        It raises RollStopped if the broker does not start. It returns when the old process has ended if it
        `awaits_process`; else possibly as soon as the restart was requested. `timeout_s` is how long a broker
        may take to be in sync again, and the cluster to be whole. `save` stores the progress.
        """
        self._cluster = cluster
        self._restart = restart
        self._timeout_s = timeout_s
        self._say = say
        self._save = save
        self._allow_outages = allow_outages
        self._awaits_process = awaits_process

    async def run(self, progress: Progress) -> Progress:
        """Restart the brokers that are left; RollStopped, with the reasons, if something is wrong."""
        if progress.awaited is not None:
            progress = await self._finish(progress.awaited, NO_EPOCH, progress)
        while True:
            state, step = await self._settled(progress)
            if isinstance(step, Done):
                return progress
            if isinstance(step, Refuse):
                raise RollStopped(f"broker {step.broker} is not restarted: {'; '.join(step.reasons)}")
            assert isinstance(step, Restart)
            progress = await self._restart_one(step.broker, state, progress)

    async def _settled(self, progress: Progress) -> tuple[ClusterState, Step]:
        """Wait until there is a step to take, with the state that it was decided from."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            began = loop.time()
            try:
                state = await self._cluster.describe()
                left = progress.left(state.brokers)
                step = next_step(state, left, begun=progress.restarting, allow_outages=self._allow_outages)
                if not isinstance(step, Wait):
                    return state, step
                reasons = step.reasons
            except NotObserved as error:
                reasons = [str(error)]
            if loop.time() > deadline:
                raise self._not_whole("", reasons)
            await asyncio.sleep(max(_PAUSE_S, loop.time() - began))

    async def _restart_one(self, broker: int, before: ClusterState, progress: Progress) -> Progress:
        """Restart a broker, and wait until it is up again and all replicas are in sync."""
        epoch = before.brokers[broker].epoch
        if epoch == NO_EPOCH and not self._awaits_process:
            raise RollStopped(
                f"broker {broker} is not restarted: the brokers are older than 0.2.0 and do not report their "
                f"registrations, so a restart could not be noticed"
            )
        leads = sum(each.leader == broker for each in before.partitions)
        self._say(f"broker {broker}: restarting; {leads} partitions get other leaders first")
        progress = progress.begin(broker)
        self._save(progress)
        await self._restart(broker)
        progress = progress.await_back(broker)
        self._save(progress)
        return await self._finish(broker, epoch, progress)

    async def _finish(self, broker: int, epoch: int, progress: Progress) -> Progress:
        """Wait until a restarted broker is back, and let it lead again what it should lead."""
        state = await self._await_back(broker, epoch)
        await self._cluster.elect_preferred(broker, state)
        progress = progress.finish(broker)
        self._save(progress)
        self._say(f"broker {broker}: back; all replicas are in sync")
        return progress

    async def _await_back(self, broker: int, epoch: int) -> ClusterState:
        """Wait until the broker has a registration other than that of `epoch`, and the cluster is whole."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            began = loop.time()
            try:
                state = await self._cluster.describe()
                reasons = obstacles(state)
                known = state.brokers.get(broker)
                if known is None or epoch == known.epoch != NO_EPOCH:
                    reasons.insert(0, f"broker {broker} has not registered again")
                if not reasons:
                    return state
            except NotObserved as error:
                reasons = [str(error)]
            if loop.time() > deadline:
                raise self._not_whole(f"broker {broker} was restarted, and ", reasons)
            await asyncio.sleep(max(_PAUSE_S, loop.time() - began))

    def _not_whole(self, about: str, reasons: list[str]) -> RollStopped:
        return RollStopped(
            f"{about}the cluster is not whole after {self._timeout_s:g} s: {'; '.join(reasons)}"
        )
