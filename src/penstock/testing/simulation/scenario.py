"""From a seed to a run: options, a cluster, clients, faults, and the verdict.

    seed -> Options -> (nodes, clients, faults or a plot) -> heal -> everything read back -> checkers

Options are all that a seed decides before the first event; they are printed with a failure, and the seed
replays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.administration import Operator
from penstock.testing.simulation.checkers import ClientChecker, Violation
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.convergence import unsettled
from penstock.testing.simulation.faults import FAULTS, OFFSETS_PARTITIONS, Fault, heal
from penstock.testing.simulation.history import Coordinates, Event, History
from penstock.testing.simulation.loop import SimLoop, Stuck
from penstock.testing.simulation.members import GroupMember
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import PORT, Node
from penstock.testing.simulation.observation import Observation
from penstock.testing.simulation.plots import PLOTS, CameToNothing
from penstock.testing.simulation.workload import Consumer, Producer, read_all

__all__ = ["Options", "Outcome", "Simulation", "simulate"]

TOPIC: Final = "events"
GROUP: Final = "group"
#: virtual seconds for a scenario to come to its end after everything was healed
_PATIENCE_S: Final = 60.0
#: of these, for brokers that have nothing more to do to agree
_SETTLING_S: Final = 30.0
_INTERNAL_PORT: Final = 19092
#: what a plot may take longer than drawn faults
_PLOT_S: Final = 30.0
#: how long replicas may lag, mostly
_LAG_MS: Final = 1000
#: how old segments get, where they are sealed at all
_ROLL_MS: Final = 700
#: the share of clusters that a plot is played to
_PLOTTED: Final = 0.25
#: of the others, the share that an operator is at work in
_OPERATED: Final = 0.5
_RACK_AWARE: Final = "RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is made of."""

    nodes: int = 1
    partitions: int
    producers: int
    consumers: int
    members: int
    #: virtual seconds of load and faults
    duration_s: float
    #: faults in that time
    faults: int
    loss: float
    #: names of the faults that may happen
    allowed: tuple[str, ...] = tuple(FAULTS)
    #: what happens instead of faults that are drawn
    plot: str | None = None
    #: how old a segment gets before it is sealed; None for longer than any run
    roll_ms: int | None = None
    #: whether brokers compact what groups have stored: their chores are too rare for most runs
    compaction: bool = False
    #: how many of the nodes vote in the quorum
    voters: int = 1
    #: after which time a replica that lags is no longer in sync
    lag_ms: int = _LAG_MS
    #: whether somebody changes the cluster meanwhile
    operated: bool = False

    @property
    def has_racks(self) -> bool:
        """Plots are about leaders, and racks would place other ones."""
        return self.nodes > 1 and self.plot is None

    @classmethod
    def draw(cls, seed: int, nodes: int = 1) -> Options:
        rng = Random(f"{seed}/options")
        drawn = cls(
            nodes=nodes,
            partitions=rng.randint(1, 3),
            producers=rng.randint(1, 2),
            consumers=rng.randint(1, 2),
            members=rng.randint(0, 2),
            duration_s=rng.uniform(0.5, 3.0),
            faults=rng.randint(1, 5),
            loss=rng.choice((0.0, 0.0, 0.01)),
        )
        if nodes == 1:
            return drawn
        # A cluster has to come up first, and to notice who is gone.
        drawn = replace(drawn, voters=nodes, duration_s=drawn.duration_s + 3, faults=drawn.faults + 2)
        drawn = replace(drawn, roll_ms=rng.choice((None, _ROLL_MS)))
        if rng.random() < _PLOTTED:
            return drawn.plotted(rng.choice(tuple(PLOTS)))
        if rng.random() < _OPERATED:
            drawn = replace(drawn, operated=True, voters=rng.choice((3, nodes)))
        return replace(drawn, lag_ms=rng.choice((_LAG_MS, 3 * _LAG_MS // 2)))

    def plotted(self, plot: str) -> Options:
        """With a plot instead of faults that are drawn.

        Of three partitions one is likely to have the leader that it needs; of three who write one is likely
        to leave something behind the high watermark. Nobody else changes who leads, and how long replicas may
        lag is what plots count on.
        """
        calm = replace(self, operated=False, voters=self.nodes, lag_ms=_LAG_MS)
        return replace(calm, plot=plot, partitions=3, producers=3)

    def with_operator(self) -> Options:
        """With somebody who changes the cluster, and no plot, which that would spoil."""
        return replace(self, plot=None, operated=True)

    def lengthened(self, seconds: float) -> Options:
        """As many faults per second for so long, with what only time brings: sealed segments, compaction."""
        return replace(
            self,
            plot=None,
            operated=self.operated or self.plot is not None,
            duration_s=seconds,
            faults=max(1, round(self.faults * seconds / self.duration_s)),
            members=max(1, self.members),
            roll_ms=_ROLL_MS,
            compaction=True,
        )


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


def _settings(node_id: int, options: Options) -> dict[str, str]:
    """A broker's settings; several brokers replicate, and vote, and lose nothing while two are in sync."""
    settings = {"penstock.flush": "group", "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)}
    if options.nodes > 1:
        name = f"node-{node_id}"
        voters = [f"{voter}@node-{voter}:{_INTERNAL_PORT}" for voter in range(1, options.voters + 1)]
        settings |= {
            "listeners": f"PLAINTEXT://{name}:{PORT},INTERNAL://{name}:{_INTERNAL_PORT}",
            "controller.quorum.voters": ",".join(voters),
            "leader.imbalance.check.interval.seconds": "2",
            "metadata.log.max.record.bytes.between.snapshots": "4000",
            "min.insync.replicas": "2",
            "replica.lag.time.max.ms": str(options.lag_ms),
            # Nothing goes by itself.
            "log.retention.ms": "-1",
        }
    if options.has_racks:
        settings |= {"broker.rack": _rack(node_id), "replica.selector.class": _RACK_AWARE}
    if options.operated:
        # Beside the operator, the cluster moves replicas by itself, and lets go of what is old.
        settings |= {
            "penstock.balance": "replicas",
            "penstock.balance.interval.seconds": "1",
            "log.retention.check.interval.ms": "400",
        }
    if options.roll_ms is not None:
        settings |= {
            "log.roll.ms": str(options.roll_ms),
            "log.flush.offset.checkpoint.interval.ms": "300",
            "penstock.scrub.interval.ms": "1500",
        }
    if options.compaction:
        settings |= {"log.cleaner.backoff.ms": "800", "log.cleaner.min.cleanable.ratio": "0.1"}
    return settings


def _rack(node_id: int) -> str:
    return f"rack-{node_id}"


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
            Node(self.loop, seed, node_id, _settings(node_id, options) | (settings or {}))
            for node_id in range(1, options.nodes + 1)
        ]
        self._observation: Observation | None = None
        if options.nodes > 1:
            # One alone may write again, in the same epoch, what it lost before it was acknowledged.
            self._observation = Observation(self.nodes, GROUP, self._coordinates)
            self.loop.after_step = self._observation.after_step
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
        limit_s = self.options.duration_s + _PATIENCE_S + (_PLOT_S if self.options.plot else 0)
        try:
            self.loop.run(self._main(), limit_s)
        except Violation as e:
            self.violation = e
        except Stuck as e:
            self.violation = self.violation or Violation("liveness", str(e))
        finally:
            virtual_s = self.loop.time()
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
        running = [client.process.spawn(self.loop, worker.run()) for client, worker in self.workers]
        await self._go_wrong()
        heal(self)
        for _, worker in self.workers:
            worker.stopping = True
        await asyncio.gather(*running)
        await self._settle()
        self.note("scenario", "reads everything")
        logs = {p: await admin.process.spawn(self.loop, read_all(admin, p)) for p in self.partitions}
        self.checker.finish(logs)

    async def _go_wrong(self) -> None:
        """What the plot has, or the schedule."""
        if self.options.plot is not None:
            self.note("scenario", f"plays {self.options.plot}")
            try:
                await PLOTS[self.options.plot](self)
            except CameToNothing:
                self.note("scenario", "the plot came to nothing")
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

    def _schedule(self) -> list[tuple[float, Fault]]:
        begin, end = self.loop.time(), self.options.duration_s
        moments = sorted(self.rng.uniform(begin, end) for _ in range(self.options.faults))
        return [(moment, FAULTS[self.rng.choice(self.options.allowed)]) for moment in moments]

    def _make_workers(self) -> list[tuple[Client, Producer | Consumer | GroupMember | Operator]]:
        made: list[tuple[Client, Producer | Consumer | GroupMember | Operator]] = []
        options, partitions = self.options, self.partitions
        for i in range(options.producers):
            client = self.client(f"producer-{i}")
            made.append((client, Producer(client, partitions, pause_s=0.15)))
        for i in range(options.consumers):
            client = self.client(f"consumer-{i}")
            rack = _rack(self.seed % options.nodes + 1) if i and options.has_racks else ""
            made.append((client, Consumer(client, partitions, rewind=0.1, rack=rack)))
        for i in range(options.members):
            client = self.client(f"member-{i}")
            made.append((client, GroupMember(client, GROUP, TOPIC, pause_s=0.2)))
        if options.operated:
            client = self.client("operator")
            brokers = {node.id: (node.name, _INTERNAL_PORT) for node in self.nodes}
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
    simulation = Simulation(seed, options or Options.draw(seed, brokers), settings)
    if prepare is not None:
        prepare(simulation)
    return simulation.run()
