"""From a seed to a run: options, a cluster, clients, faults, and the verdict.

    seed -> Options -> (nodes, clients, faults or a plot) -> heal -> everything read back -> checkers

Options are all that a seed decides before the first event; they are printed with a failure, and the seed
replays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.administration import Operator
from penstock.testing.simulation.checkers import ClientChecker, Violation
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.convergence import unsettled
from penstock.testing.simulation.disasters import DISASTERS, Damage, Outlook
from penstock.testing.simulation.faults import FAULTS, Fault, heal
from penstock.testing.simulation.healing import HEALING
from penstock.testing.simulation.history import Coordinates, Event, History
from penstock.testing.simulation.loop import SimLoop, Stuck
from penstock.testing.simulation.members import GroupMember
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.observation import Observation
from penstock.testing.simulation.options import INTERNAL_PORT, Options, broker_settings, rack_of
from penstock.testing.simulation.plots import PLOTS, CameToNothing
from penstock.testing.simulation.workload import Consumer, Producer, read_all

__all__ = ["Options", "Outcome", "Simulation", "simulate"]

TOPIC: Final = "events"
GROUP: Final = "group"
#: virtual seconds for a scenario to come to its end after everything was healed
_PATIENCE_S: Final = 60.0
#: of these, for brokers that have nothing more to do to agree
_SETTLING_S: Final = 30.0
#: what a plot may take longer than drawn faults
_PLOT_S: Final = 30.0
#: how long a cluster of which nothing more is required is watched
_WATCH_S: Final = 5.0


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
    """One run. Nodes and clients are there after construction; nothing has happened yet."""

    def __init__(self, seed: int, options: Options, settings: dict[str, str] | None = None) -> None:
        self.seed = seed
        self.options = options
        self.loop = SimLoop(seed)
        self.loop.network.link = Link(loss=options.loss)
        self.rng = Random(f"{seed}/scenario")
        self.history = History(self.note)
        self.checker = ClientChecker()
        self.history.observers.append(self._observe)
        self.violation: Violation | None = None
        self.nodes = [
            Node(self.loop, seed, node_id, broker_settings(node_id, options) | (settings or {}))
            for node_id in range(1, options.nodes + 1)
        ]
        self._observation: Observation | None = None
        if options.nodes > 1:
            # One alone may write again, in the same epoch, what it lost before it was acknowledged.
            self._observation = Observation(self.nodes, GROUP, self._coordinates)
            self.loop.after_step = self._observation.after_step
        self.damage: Damage | None = None
        if options.disaster is not None:
            self.damage = Damage(self.nodes, self.checker, self._observation, self.note, self.rng)
        self._running: list[asyncio.Task[None]] = []
        self.partitions = [TopicPartition(TOPIC, i) for i in range(options.partitions)]
        self.admin = self.client("admin")
        self.workers = self._make_workers()

    def note(self, who: str, what: str) -> None:
        self.loop.trace.note(self.loop.time(), who, what)

    def client(self, name: str) -> Client:
        bootstrap = [node.address for node in self.nodes]
        return Client(self.loop, name, bootstrap, Random(f"{self.seed}/{name}"), self.history)

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        limit_s = self.options.duration_s + _PATIENCE_S
        if self.options.plot is not None or self.damage is not None:
            limit_s += _PLOT_S
        try:
            self.loop.run(self._main(), limit_s)
        except Violation as e:
            self.violation = e
        except Stuck as e:
            self.violation = self.violation or Violation("liveness", str(e))
        finally:
            virtual_s = self.loop.time()
            self._verify_copies()
            for node in self.nodes:
                node.release()
            self.loop.close()
        if self.loop.unhandled and (self.violation is None or self.violation.name == "liveness"):
            # What nobody caught is why nothing went on.
            problem = self.loop.unhandled[0]
            self.violation = Violation("unhandled error", repr(problem.get("exception", problem["message"])))
        return Outcome(
            seed=self.seed,
            options=self.options,
            violation=self.violation,
            trace_hash=self.loop.trace.digest(),
            history=tuple(self.loop.trace.lines),
            steps=self.loop.trace.steps,
            acknowledged=self.checker.acknowledged,
            virtual_s=virtual_s,
        )

    # -- the course of it

    async def _main(self) -> None:
        for node in self.nodes:
            node.boot()
        admin = self.admin
        creating = admin.create_topic(TOPIC, self.options.partitions, min(3, self.options.nodes))
        await admin.process.spawn(self.loop, creating)
        self._running += [client.process.spawn(self.loop, worker.run()) for client, worker in self.workers]
        await self._go_wrong()
        heal(self)
        if self.damage is not None and self.damage.outlook is not Outlook.WHOLE:
            self.note("scenario", "only watches what becomes of the copies")
            await asyncio.sleep(_WATCH_S)
            return
        for _, worker in self.workers:
            worker.stopping = True
        await asyncio.gather(*self._running)
        await self._settle()
        if self.damage is not None:
            await self._probe()
        self.note("scenario", "reads everything")
        logs = {p: await admin.process.spawn(self.loop, read_all(admin, p)) for p in self.partitions}
        self.checker.finish(logs)

    async def _go_wrong(self) -> None:
        """What the plot has, or the disaster, or the schedule."""
        name = self.options.plot or self.options.disaster
        if name is not None:
            self.note("scenario", f"plays {name}")
            try:
                await (PLOTS | DISASTERS | HEALING)[name](self)
            except CameToNothing:
                self.note("scenario", "the plot came to nothing")
                if self.damage is not None:
                    self.damage.assess_rest()
            return
        for moment, fault in self._schedule():
            await asyncio.sleep(max(0.0, moment - self.loop.time()))
            fault(self)
        await asyncio.sleep(max(0.0, self.options.duration_s - self.loop.time()))

    async def _settle(self) -> None:
        """Wait until the cluster is as it has to be when nothing goes wrong any more."""
        deadline = self.loop.time() + _SETTLING_S
        while (left := unsettled(self.nodes)) is not None:
            if self.loop.time() > deadline:
                raise Violation("liveness", f"{_SETTLING_S:g} s after all was healed: {left}")
            await asyncio.sleep(0.1)

    async def _probe(self) -> None:
        """Write to every partition once more."""
        client = self.client("probe")
        probe = Producer(client, self.partitions, pause_s=0.1, batches=1)
        await client.process.spawn(self.loop, probe.run())

    async def make_topic(self, name: str, replicas: int) -> None:
        """Make a topic with one partition, and write to it from now on."""
        admin, client = self.admin, self.client(f"producer-{name}")
        await admin.process.spawn(self.loop, admin.create_topic(name, 1, replicas))
        self.partitions.append(TopicPartition(name, 0))
        worker = Producer(client, [TopicPartition(name, 0)], pause_s=0.05)
        self.workers.append((client, worker))
        self._running.append(client.process.spawn(self.loop, worker.run()))

    async def elect_unclean(self, partition: TopicPartition) -> None:
        """Have an operator ask for an unclean election, until it is done or not needed."""
        admin = self.admin
        while True:
            with suppress(Unanswered):
                await admin.process.spawn(self.loop, admin.elect_unclean(partition))
                return
            await asyncio.sleep(0.1)

    def _verify_copies(self) -> None:
        """A record that was destroyed is worse than anything that it led to."""
        if self.damage is not None:
            try:
                self.damage.verify()
            except Violation as e:
                self.violation = e
                self.note("checker", str(e))

    def _schedule(self) -> list[tuple[float, Fault]]:
        begin, end = self.loop.time(), self.options.duration_s
        moments = sorted(self.rng.uniform(begin, end) for _ in range(self.options.faults))
        return [(moment, FAULTS[self.rng.choice(self.options.allowed)]) for moment in moments]

    def _make_workers(self) -> list[tuple[Client, Producer | Consumer | GroupMember | Operator]]:
        made: list[tuple[Client, Producer | Consumer | GroupMember | Operator]] = []
        options, partitions = self.options, list(self.partitions)
        for i in range(options.producers):
            client = self.client(f"producer-{i}")
            made.append((client, Producer(client, partitions, pause_s=0.15)))
        for i in range(options.consumers):
            client = self.client(f"consumer-{i}")
            rack = rack_of(self.seed % options.nodes + 1) if i and options.has_racks else ""
            made.append((client, Consumer(client, partitions, rewind=0.1, rack=rack)))
        for i in range(options.members):
            client = self.client(f"member-{i}")
            made.append((client, GroupMember(client, GROUP, TOPIC, pause_s=0.2)))
        if options.operated:
            client = self.client("operator")
            brokers = {node.id: (node.name, INTERNAL_PORT) for node in self.nodes}
            made.append((client, Operator(client, brokers, partitions, pause_s=0.3)))
        return made

    def _coordinates(self, node: Node, epoch: int | None) -> None:
        self.history.add(node.name, Coordinates(GROUP, node.id, epoch))

    def _observe(self, client: str, event: Event) -> None:
        """Check an event; the first violation ends the run, whatever the client would make of it."""
        if self.violation is None:
            try:
                self.checker.observe(client, event)
                if self._observation is not None:
                    self._observation.saw(event)
            except Violation as e:
                self.violation = e
                self.note("checker", str(e))
                self.loop.stop()


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
