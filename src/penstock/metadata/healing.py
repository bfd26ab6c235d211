"""Self-healing: which reassignments the controller starts and cancels by itself.

Three reasons to start one. A broker has been gone for longer than `delay_ms`: its replicas are rebuilt on
other brokers (`Origin.REBUILD`). A data directory of a broker that is up has failed for as long: the replicas
in it are rebuilt in the same way. A broker that is up has far fewer replicas than the others, as one that was
just added: it receives its share (`Origin.SHARE`). Planning is `rebalance`, execution is `reassignment`: the
old replicas stay until the new ones are in sync, so no copy is lost by a rebuild that does not end.

Invariants:
- A reassignment that was requested, or that balances load, is never changed.
- No rebuild starts while fewer brokers are up than the partition has replicas.
- No rebuild starts for a partition without a leader: there is nothing to copy from.
- A rebuild is cancelled when the broker that it replaces is back, with that replica. Where new replicas are
  in sync already, without which the ISR would be below the minimum, the cancellation waits for the old ones.
- At most `partitions_max` reassignments of both kinds are under way.
- Shares converge. Each move brings the brokers' numbers of replicas closer together, or replicas apart that
  a user has assigned to one machine. A share begins below
  the tolerance and ends within half of it, so small differences move nothing.

Pure: the active controller decides, once in a while (`broker.healer`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from penstock.metadata.balance import begin_step
from penstock.metadata.image import NO_LEADER, RECOVERED, ClusterImage, Origin, PartitionImage
from penstock.metadata.placement import may_receive, shares_machine
from penstock.metadata.policy import Policy, min_isr
from penstock.metadata.reassignment import cancel_reassignment
from penstock.metadata.rebalance import Move, Planned, plan_evacuation, rebalance_steps
from penstock.model.errors import ApiError
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.steps import SLICE, Steps
from penstock.wire.schema import Struct

__all__ = [
    "Cancel",
    "Decision",
    "Replica",
    "Settings",
    "Situation",
    "Start",
    "decide",
    "obstacles",
    "plan_share",
    "records_of",
]

#: several brokers are started one after the other, and an operator may move replicas to a new broker, too
_QUIET_MS: Final = 60_000
#: the difference of two brokers' numbers of replicas that one move can lower
_DIFFERENCE_MIN: Final = 2
_OURS: Final = frozenset({Origin.REBUILD, Origin.SHARE})


#: broker, topic id and index of a replica
Replica: TypeAlias = tuple[int, TopicId, int]


class Settings(NamedTuple):
    """As the active controller is configured."""

    #: `penstock.self.healing.enable`
    rebuild: bool
    #: `penstock.balance.new.brokers`
    share: bool
    delay_ms: float
    partitions_max: int
    #: how far below the mean a broker's number of replicas may be
    tolerance: float = 0.2
    #: brokers that receive nothing
    excluded: Collection[int] = ()

    @property
    def quiet_ms(self) -> float:
        """How long brokers must have been as they are before a share begins."""
        return min(_QUIET_MS, self.delay_ms)


class Situation(NamedTuple):
    """The controller's knowledge besides the image."""

    #: for how many milliseconds brokers have been gone
    gone: Mapping[int, float]
    #: for how long no broker has come or gone, and no requested reassignment has begun or ended
    quiet_ms: float
    #: brokers with a data directory that is full or has failed
    full: Collection[int] = ()
    #: whether a share has begun and not ended, and what is left of its plan
    sharing: bool = False
    planned: Sequence[Planned] = ()
    #: the brokers' numbers of replicas with which the last plan found nothing to move
    settled: Mapping[int, int] | None = None
    #: for how many milliseconds replicas have been in failed data directories of brokers that are up
    failed: Mapping[Replica, float] = {}


class Start(NamedTuple):
    """A reassignment to start."""

    move: Move
    origin: Origin


class Cancel(NamedTuple):
    """A reassignment to cancel, and why."""

    partition: TopicPartition
    reason: str


class Decision(NamedTuple):
    """The actions to take now; `sharing`, `planned` and `settled` are for the next situation."""

    start: list[Start]
    cancel: list[Cancel]
    sharing: bool = False
    planned: Sequence[Planned] = ()
    settled: Mapping[int, int] | None = None
    #: whether a share has to be planned before it goes on (`plan_share`)
    needs_plan: bool = False


def decide(image: ClusterImage, settings: Settings, situation: Situation) -> Decision:
    """Cancellations first; what they make possible is started by the next decision."""
    healing = _Healing(image, settings, situation)
    cancel = list(healing.cancellations())
    if cancel:
        return Decision([], cancel, situation.sharing)
    start = [Start(move, Origin.REBUILD) for move in healing.rebuilds()]
    if start or not healing.may_share():
        return Decision(start, [], situation.sharing)
    return healing.share()


def plan_share(image: ClusterImage, settings: Settings, situation: Situation) -> Steps[Decision]:
    """Plan a share; the result is the basis of the next decision. The image may change between two slices."""
    healing = _Healing(image, settings, situation)
    held, tolerance = healing.held(), min(0.1, settings.tolerance / 2)
    planned = yield from rebalance_steps(image, {}, excluded=healing.closed, tolerance=tolerance)
    return Decision([], [], bool(planned), planned) if planned else Decision([], [], settled=held)


def records_of(image: ClusterImage, policy: Policy, decision: Decision) -> tuple[list[Struct], Decision]:
    """The records that carry out a decision, and that part of it which can be carried out."""
    records: list[Struct] = []
    start, cancel = [], []
    for each in decision.start:
        try:
            found = begin_step(image, policy, each.move, each.origin)
        except ApiError:
            # A broker was unregistered since: the next decision knows.
            continue
        if found:
            records += found
            start.append(each)
    for one in decision.cancel:
        partition = _find(image, one.partition)
        try:
            record = cancel_reassignment(image, policy, partition)
        except ApiError:
            # Only new replicas are in sync: the reassignment has to end as it was begun.
            continue
        if record is not None:
            records.append(record)
            cancel.append(one)
    return records, decision._replace(start=start, cancel=cancel)


def obstacles(image: ClusterImage, settings: Settings, situation: Situation) -> list[str]:
    """The obstacles to rebuilding the replicas of missing brokers."""
    return list(_Healing(image, settings, situation).obstacles())


class _Healing:
    def __init__(self, image: ClusterImage, settings: Settings, situation: Situation) -> None:
        self._image = image
        self._settings = settings
        self._situation = situation
        self._up = [broker.id for broker in image.brokers.values() if broker.active]
        self._due = [node for node, ms in situation.gone.items() if ms >= settings.delay_ms]
        #: by topic id and index: the brokers whose data directory with that replica has failed for too long
        self._failed_due: dict[tuple[TopicId, int], set[int]] = {}
        for (node, topic_id, index), ms in situation.failed.items():
            if ms >= settings.delay_ms:
                self._failed_due.setdefault((topic_id, index), set()).add(node)
        self.closed = {*settings.excluded, *situation.full}
        self._receivers = {
            broker.id
            for broker in image.brokers.values()
            if may_receive(broker) and broker.id not in self.closed
        }
        self._ours = [p for p in image.reassigning.values() if p.origin in _OURS]
        self._places = max(0, settings.partitions_max - len(self._ours))

    # -- cancellations

    def cancellations(self) -> Iterator[Cancel]:
        for partition in self._ours:
            reason = self._reason_against(partition)
            if reason and not self._is_needed(partition):
                yield Cancel(self._name(partition), reason)

    def _is_needed(self, partition: PartitionImage) -> bool:
        """Whether the ISR would fall below the minimum without new replicas that are in sync already."""
        left = [node for node in partition.isr if node not in partition.adding]
        name = self._image.topics_by_id[partition.topic_id].name
        return len(left) < min(len(partition.isr), min_isr(self._image, name, len(partition.replicas)))

    def _reason_against(self, partition: PartitionImage) -> str:
        rebuilds = partition.origin == Origin.REBUILD
        if not (self._settings.rebuild if rebuilds else self._settings.share):
            return "switched off"
        if rebuilds and (back := [node for node in partition.removing if self._is_back(node, partition)]):
            return f"broker {back[0]} is back"
        behind = [node for node in partition.adding if node not in partition.isr]
        if lost := [node for node in behind if node in self._due or node not in self._image.brokers]:
            return f"broker {lost[0]} is gone"
        if closed := [node for node in behind if node in self.closed]:
            return f"broker {closed[0]} takes no replicas"
        return ""

    def _is_back(self, node: int, partition: PartitionImage) -> bool:
        broker = self._image.brokers.get(node)
        return broker is not None and not broker.fenced and not self._has_failed(node, partition)

    def _has_failed(self, node: int, partition: PartitionImage) -> bool:
        return (node, partition.topic_id, partition.index) in self._situation.failed

    # -- rebuilds

    def rebuilds(self) -> list[Move]:
        """Lost replicas, on other brokers: first where the fewest replicas are in sync."""
        if not self._settings.rebuild or not (self._due or self._failed_due) or not self._places:
            return []
        found = [partition for partition in self._unhealed() if not self._obstacle(partition)]
        found.sort(key=lambda partition: (len(partition.isr), partition.key))
        moves: list[Move] = []
        for first in range(0, len(found), self._places):
            for lost, some in self._by_lost(found[first : first + self._places]).items():
                moves += plan_evacuation(self._image, some, lost, excluded=self.closed)
            if len(moves) >= self._places:
                break
        return moves[: self._places]

    def _by_lost(self, partitions: Iterable[PartitionImage]) -> dict[frozenset[int], list[PartitionImage]]:
        """Partitions by the brokers that have lost their replicas of them."""
        found: dict[frozenset[int], list[PartitionImage]] = {}
        for partition in partitions:
            found.setdefault(self._lost(partition), []).append(partition)
        return found

    def _lost(self, partition: PartitionImage) -> frozenset[int]:
        """The brokers that have lost their replica of a partition for too long."""
        failed = self._failed_due.get((partition.topic_id, partition.index), ())
        return frozenset({*self._due, *failed}.intersection(partition.replicas))

    def _unhealed(self) -> Iterable[PartitionImage]:
        """Partitions with a replica that has been lost for too long."""
        found = {p.key: p for node in self._due for p in self._image.partitions_on(node)}
        for (topic_id, index), nodes in self._failed_due.items():
            topic = self._image.topics_by_id.get(topic_id)
            partition = None if topic is None else topic.partitions.get(index)
            if partition is not None and nodes.intersection(partition.replicas):
                found[partition.key] = partition
        return [partition for partition in found.values() if not partition.reassigning]

    def _obstacle(self, partition: PartitionImage) -> str:
        if partition.leader == NO_LEADER:
            return "have no leader to copy from"
        if partition.leader_recovery != RECOVERED:
            return "have a leader that recovers"
        if self._has_failed(partition.leader, partition):
            return "have a leader whose data directory has failed"
        if len(partition.replicas) > len(self._up):
            return f"have more replicas than brokers are up ({len(self._up)})"
        # The first free broker is nearly always enough: do not copy the set of all for each partition.
        free = (node for node in self._receivers if node not in partition.replicas)
        first = next(free, None)
        if first is None:
            return "have no broker left that takes a replica"
        brokers, lost = self._image.brokers, self._lost(partition)
        kept = [brokers[node] for node in partition.replicas if node in brokers and node not in lost]
        if all(shares_machine(brokers[node], kept) for node in chain((first,), free)):
            return "have no machine left that takes a replica"
        return ""

    def obstacles(self) -> Iterator[str]:
        if not self._settings.rebuild:
            return
        counts: dict[str, int] = {}
        for partition in self._unhealed():
            obstacle = self._obstacle(partition)
            if obstacle:
                counts[obstacle] = counts.get(obstacle, 0) + 1
        for obstacle, count in counts.items():
            yield f"{count} partition(s) with lost replicas {obstacle}"

    # -- shares

    def may_share(self) -> bool:
        """Whether all that has replicas is up, and nothing else moves or has just changed."""
        image = self._image
        return (
            self._settings.share
            and set(image.replica_nodes) <= set(self._up)
            and not image.leaderless
            and all(p.origin == Origin.SHARE for p in image.reassigning.values())
            and self._situation.quiet_ms >= self._settings.quiet_ms
        )

    def share(self) -> Decision:
        """Moves to brokers with far fewer replicas than the mean.

        A plan takes time for each partition of the cluster, so it is made once, in slices, and carried out
        piece by piece. It is given up when a broker comes or goes: nothing is shared then for a while.
        """
        situation, is_moving = self._situation, bool(self._ours)
        planned = [each for each in situation.planned if self._is_open(each)]
        if not planned:
            held = self.held()
            is_wanted = situation.sharing or self._is_uneven(held.values())
            if is_moving or not is_wanted or held == situation.settled:
                return Decision([], [], is_moving, settled=situation.settled)
            return Decision([], [], situation.sharing, settled=situation.settled, needs_plan=True)
        copies = [each for each in planned if set(each.move.replicas) != set(each.before)]
        if copies:
            chosen = [each for each in copies if self._is_in_sync(each)][: self._places]
        else:
            # Other preferred leaders move no data: last, when the replicas are where they stay.
            chosen = [] if is_moving else planned[:SLICE]
        moving = {each.move.partition for each in chosen}
        left = [each for each in planned if each.move.partition not in moving]
        start = [Start(each.move, Origin.SHARE) for each in chosen]
        return Decision(start, [], bool(planned), left)

    def held(self) -> dict[int, int]:
        """How many replicas the brokers have that may receive some."""
        return {node: len(self._image.partitions_on(node)) for node in sorted(self._receivers)}

    def _is_open(self, planned: Planned) -> bool:
        """Whether the partition is there, and as it was when this was planned."""
        name = planned.move.partition
        topic = self._image.topics.get(name.topic)
        if topic is None or name.partition not in topic.partitions:
            return False
        return tuple(topic.partitions[name.partition].replicas) == tuple(planned.before)

    def _is_in_sync(self, planned: Planned) -> bool:
        return set(_find(self._image, planned.move.partition).isr) == set(planned.before)

    def _is_uneven(self, held: Collection[int]) -> bool:
        if not held or max(held) - min(held) < _DIFFERENCE_MIN:
            return False
        mean = sum(held) / len(held)
        return min(held) < mean * (1 - self._settings.tolerance)

    def _name(self, partition: PartitionImage) -> TopicPartition:
        return TopicPartition(self._image.topics_by_id[partition.topic_id].name, partition.index)


def _find(image: ClusterImage, name: TopicPartition) -> PartitionImage:
    return image.topics[name.topic].partitions[name.partition]
