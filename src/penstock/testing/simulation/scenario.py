"""From a seed to a run: options, a cluster, clients, faults, and the verdict.

    seed -> Options -> (nodes, clients, faults) -> heal -> everything read back -> checkers

Options are all that a seed decides before the first event; they are printed with a failure, and the seed
replays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.testing.simulation.administration import Operator
from penstock.testing.simulation.archives import TIERED, Archives
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.cluster import GROUP, TOPIC, SimCluster, Worker
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.convergence import unsettled
from penstock.testing.simulation.delays import Delays
from penstock.testing.simulation.directed_faults import DIRECTED_FAULTS
from penstock.testing.simulation.disasters.catalog import DISASTERS
from penstock.testing.simulation.disasters.damage import Outlook
from penstock.testing.simulation.faults import FAULTS, Fault, heal
from penstock.testing.simulation.healing import HEALING
from penstock.testing.simulation.history import Event
from penstock.testing.simulation.loop import Stuck
from penstock.testing.simulation.members import GroupMember
from penstock.testing.simulation.options import INTERNAL_PORT, Options, broker_settings, rack_of
from penstock.testing.simulation.share_faults import SHARE_FAULTS
from penstock.testing.simulation.shares import Shares
from penstock.testing.simulation.stalls import STALLS
from penstock.testing.simulation.transaction_faults import TRANSACTION_FAULTS
from penstock.testing.simulation.transactions import Transactions
from penstock.testing.simulation.workload import Consumer, Producer, read_all

__all__ = ["Options", "Outcome", "Simulation", "simulate"]

#: virtual seconds for a scenario to come to its end after everything was healed
_PATIENCE_S: Final = 60.0
#: of these, for brokers that have nothing more to do to agree
_SETTLING_S: Final = 30.0
#: how much longer a directed fault may take than drawn faults
_DIRECTED_S: Final = 30.0
#: how much longer a run may take that restores cuts at its end
_RESTORES_S: Final = 90.0
#: how long a cluster of which nothing more is required is watched
_WATCH_S: Final = 5.0
_COURSES: Final = DIRECTED_FAULTS | DISASTERS | HEALING | SHARE_FAULTS | STALLS | TRANSACTION_FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended. `violation` is None if every promise was kept."""

    seed: int
    options: Options
    violation: Violation | None
    trace_hash: str
    history: tuple[str, ...]
    steps: int
    acknowledged: int
    virtual_s: float


class Simulation:
    """One run. The cluster's nodes and clients exist after construction; none of them has started."""

    def __init__(self, seed: int, options: Options, settings: dict[str, str] | None = None) -> None:
        self.seed = seed
        self.options = options
        self.cluster = cluster = SimCluster(
            seed,
            [broker_settings(i, options) | (settings or {}) for i in range(1, options.nodes + 1)],
            partitions=options.partitions,
            loss=options.loss,
            compaction=options.compaction,
            disaster=options.disaster is not None,
            secured=options.secured,
        )
        cluster.history.observers.append(self._observe)
        cluster.workers += self._make_workers()
        self.violation: Violation | None = None
        #: None in a run without transactions
        self.transactions: Transactions | None = None
        if options.transactional:
            self.transactions = Transactions(
                cluster, self._stop_with, check_fencing="clock_jump" not in options.allowed
            )
            cluster.workers += self.transactions.workers()
        #: None in a run without a share group
        self.shares: Shares | None = None
        self.delays: Delays | None = None
        if options.shared:
            self.shares = Shares(cluster, self._stop_with)
            cluster.workers += self.shares.workers()
            jumps = "clock_jump" in options.allowed and options.directed_fault is None
            self.delays = Delays(cluster, self._stop_with, is_punctual=not jumps)
            cluster.workers += self.delays.workers()
        #: None in a run without an archive
        self.archives: Archives | None = None
        if options.archived:
            self.archives = Archives(cluster, self._stop_with)
            cluster.workers += self.archives.workers()

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        cluster, loop = self.cluster, self.cluster.loop
        limit_s = self.options.duration_s + _PATIENCE_S
        if self.options.directed_fault is not None or cluster.damage is not None:
            limit_s += _DIRECTED_S
        if self.archives is not None:
            limit_s += _RESTORES_S
        try:
            loop.run(self._main(), limit_s)
        except Violation as e:
            self.violation = e
        except Stuck as e:
            self.violation = self.violation or Violation("liveness", str(e))
        finally:
            virtual_s = loop.time()
            self._verify_copies()
            for node in cluster.nodes:
                node.release()
            loop.close()
        if loop.unhandled and (self.violation is None or self.violation.name == "liveness"):
            # An exception that no code handled explains why the run made no progress.
            problem = loop.unhandled[0]
            self.violation = Violation("unhandled error", repr(problem.get("exception", problem["message"])))
        return Outcome(
            seed=self.seed,
            options=self.options,
            violation=self.violation,
            trace_hash=loop.trace.digest(),
            history=tuple(loop.trace.lines),
            steps=loop.trace.steps,
            acknowledged=cluster.checker.acknowledged,
            virtual_s=virtual_s,
        )

    # -- the phases of a run

    async def _main(self) -> None:
        cluster, loop, admin = self.cluster, self.cluster.loop, self.cluster.admin
        for node in cluster.nodes:
            node.boot()
        replicas = min(3, self.options.nodes)
        configs = {} if self.archives is None else TIERED
        creating = admin.create_topic(TOPIC, self.options.partitions, replicas, configs)
        await admin.process.spawn(loop, creating)
        if self.transactions is not None:
            await self.transactions.create_topics(replicas, configs)
        if self.shares is not None and self.delays is not None:
            await self.shares.prepare()
            await self.delays.prepare(replicas)
        cluster.start_workers()
        await self._inject_faults()
        heal(cluster)
        if cluster.damage is not None and cluster.damage.outlook is not Outlook.WHOLE:
            cluster.note("scenario", "only watches what becomes of the copies")
            await asyncio.sleep(_WATCH_S)
            return
        await cluster.stop_workers()
        if self.transactions is not None:
            await self.transactions.await_end()
        await self._settle()
        if self.shares is not None:
            await self.shares.drain()
            await self._settle()
        if cluster.damage is not None:
            await self._probe()
        if self.archives is not None:
            await self.archives.settle()
        cluster.note("scenario", "reads everything")
        logs = {p: await admin.process.spawn(loop, read_all(admin, p)) for p in cluster.partitions}
        cluster.checker.finish(logs)
        if self.transactions is not None:
            await self.transactions.verify(logs)
        if self.archives is not None:
            cluster.note("scenario", "restores cuts")
            transactions = None if self.transactions is None else self.transactions.checker
            await self.archives.verify(logs, transactions)
        if self.shares is not None and self.delays is not None:
            self.shares.verify(logs)
            await self.delays.verify()

    async def _inject_faults(self) -> None:
        """Run the directed fault or the disaster of the options, or else the faults that the seed draws."""
        cluster, loop = self.cluster, self.cluster.loop
        name = self.options.directed_fault or self.options.disaster
        if name is not None:
            cluster.note("scenario", f"plays {name}")
            try:
                await _COURSES[name](cluster)
            except StateNotReached:
                cluster.note("scenario", "the plot came to nothing")
                if cluster.damage is not None:
                    cluster.damage.assess_rest()
            return
        for moment, fault in self._schedule():
            await asyncio.sleep(max(0.0, moment - loop.time()))
            fault(cluster)
        await asyncio.sleep(max(0.0, self.options.duration_s - loop.time()))

    async def _settle(self) -> None:
        """Wait until the cluster has converged: it must, once all faults have ended."""
        loop = self.cluster.loop
        deadline = loop.time() + _SETTLING_S
        while (left := unsettled(self.cluster.nodes)) is not None:
            if loop.time() > deadline:
                raise Violation("liveness", f"{_SETTLING_S:g} s after all was healed: {left}")
            if self.archives is not None:
                self.archives.mend()
            await asyncio.sleep(0.1)

    async def _probe(self) -> None:
        """Write to every partition once more."""
        client = self.cluster.client("probe")
        probe = Producer(client, self.cluster.partitions, pause_s=0.1, batches=1)
        await client.process.spawn(self.cluster.loop, probe.run())

    def _verify_copies(self) -> None:
        """Report a destroyed record in preference to the violations that follow from it."""
        if self.cluster.damage is not None:
            try:
                self.cluster.damage.verify()
            except Violation as e:
                self._violated(e)

    def _schedule(self) -> list[tuple[float, Fault]]:
        begin, end, rng = self.cluster.loop.time(), self.options.duration_s, self.cluster.rng
        moments = sorted(rng.uniform(begin, end) for _ in range(self.options.faults))
        return [(moment, FAULTS[rng.choice(self.options.allowed)]) for moment in moments]

    def _make_workers(self) -> list[tuple[Client, Worker]]:
        made: list[tuple[Client, Worker]] = []
        options, cluster, partitions = self.options, self.cluster, list(self.cluster.partitions)
        for i in range(options.producers):
            client = cluster.client(f"producer-{i}")
            made.append((client, Producer(client, partitions, pause_s=0.15)))
        for i in range(options.consumers):
            client = cluster.client(f"consumer-{i}")
            rack = rack_of(self.seed % options.nodes + 1) if i and options.has_racks else ""
            made.append((client, Consumer(client, partitions, rewind=0.1, rack=rack)))
        for i in range(options.members):
            client = cluster.client(f"member-{i}")
            made.append((client, GroupMember(client, GROUP, TOPIC, pause_s=0.2)))
        if options.operated:
            client = cluster.client("operator")
            brokers = {node.id: (node.name, INTERNAL_PORT) for node in cluster.nodes}
            made.append((client, Operator(client, brokers, partitions, pause_s=0.3)))
        return made

    def _observe(self, client: str, event: Event) -> None:
        """Check an event. The first violation ends the run, before the client continues."""
        if self.violation is None:
            try:
                self.cluster.checker.observe(client, event)
                if self.cluster.observation is not None:
                    self.cluster.observation.saw(event)
            except Violation as e:
                self._stop_with(e)

    def _stop_with(self, violation: Violation) -> None:
        if self.violation is None:
            self._violated(violation)
            self.cluster.loop.stop()

    def _violated(self, violation: Violation) -> None:
        self.violation = violation
        self.cluster.note("checker", str(violation))


def simulate(
    seed: int,
    options: Options | None = None,
    prepare: Callable[[Simulation], None] | None = None,
    *,
    brokers: int = 1,
    settings: dict[str, str] | None = None,
) -> Outcome:
    """Run a seed; `prepare` may change the simulation before it starts, `settings` are for all brokers."""
    simulation = Simulation(seed, options or Options.choose(seed, brokers), settings)
    if prepare is not None:
        prepare(simulation)
    return simulation.run()
