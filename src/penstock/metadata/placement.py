"""Chooses the brokers of new replicas.

A replica's place is chosen by these, in this order: the host that has fewest replicas of the partition, the
zone (`broker.rack`) that has fewest, a broker that is up before one that is fenced, the broker that carries
least of the topic, then least of the cluster; among equals, the highest rendezvous score, a hash of partition
and broker. Hosts come first because a host is in one zone: a zone that is not used yet has only hosts that
are not used yet. So replicas of one partition share a machine, or a zone, only if there is no other; load is
even without a counter; and a choice depends only on the image, hence every controller makes the same.

Brokers that are down count as places: a topic that is created meanwhile has the requested number of replicas,
and the broker catches up later. Only the preferred leader has to be up. Brokers that are excluded
(`penstock.balance.exclude.brokers`) are no places.

The host is the broker's `penstock.machine`, or else the host of its first registered listener, the internal
one (`BrokerImage.host`).

Invariant: no replica is placed on, or moved to, a `penstock.machine` that has another one of the partition,
unless a user assigns it so, as Kafka's tools must be able to. Plans move such replicas apart (`rebalance`).
Brokers that share only an address may hold replicas of one partition, as in a development cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from penstock.metadata.image import BrokerImage, ClusterImage
from penstock.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from penstock.model.ids import TopicId

__all__ = [
    "Load",
    "Placer",
    "check_assignment",
    "crowding",
    "is_no_closer",
    "may_receive",
    "rendezvous_score",
    "shares_machine",
]


def rendezvous_score(topic_id: TopicId, index: int, broker: int) -> int:
    """A number that looks random and is always the same: the broker with the highest wins the partition."""
    text = b"%b/%d/%d" % (topic_id, index, broker)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def check_assignment(image: ClusterImage, nodes: Sequence[int], factor: int | None = None) -> None:
    """Raise InvalidReplicaAssignment unless `nodes` may hold a partition; `factor` is what others have."""
    manual = "The manual partition assignment includes"
    if not nodes:
        raise InvalidReplicaAssignment(f"{manual} an empty replica list.")
    before = None
    for node in sorted(nodes):
        if node not in image.brokers:
            raise InvalidReplicaAssignment(f"{manual} broker {node}, but no such broker is registered.")
        if node == before:
            raise InvalidReplicaAssignment(f"{manual} the broker {node} more than once.")
        before = node
    if factor is not None and len(nodes) != factor:
        raise InvalidReplicaAssignment(
            f"{manual} a partition with {len(nodes)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s)."
        )


class Load:
    """The brokers that may hold new replicas, and how many each has; grows as replicas are placed.

    Topics that are made together share one.
    """

    __slots__ = ("brokers", "excluded", "leaders", "replicas", "sites", "up")

    def __init__(self, image: ClusterImage, excluded: Collection[int] = ()) -> None:
        """Brokers that are `excluded` receive no replicas."""
        self.excluded = sorted(image.brokers.keys() & set(excluded))
        self.brokers = {
            broker.id: broker
            for broker in image.brokers.values()
            if _may_hold(broker) and broker.id not in self.excluded
        }
        #: brokers by host and zone: those of one site are equally close to other replicas
        self.sites: dict[tuple[str, str | None], list[BrokerImage]] = {}
        for broker in self.brokers.values():
            self.sites.setdefault((broker.host, broker.rack), []).append(broker)
        self.up = [broker for broker in self.brokers.values() if not broker.fenced]
        self.replicas = {node: len(image.partitions_on(node)) for node in self.brokers}
        self.leaders = {node: image.preferred[node] for node in self.brokers}


class Placer:
    """Chooses places for the partitions of one topic, one after the other, and remembers what it chose."""

    __slots__ = (
        "_brokers",
        "_excluded",
        "_leaders",
        "_replicas",
        "_sites",
        "_topic_id",
        "_topic_leaders",
        "_topic_replicas",
        "_up",
    )

    def __init__(self, load: Load, topic_id: TopicId, present: Iterable[Sequence[int]] = ()) -> None:
        """`present` has the replicas of the partitions that the topic has already."""
        self._topic_id = topic_id
        self._brokers, self._up, self._sites = load.brokers, load.up, load.sites
        self._replicas, self._leaders = load.replicas, load.leaders
        self._excluded = load.excluded
        # Brokers that are gone may be among the present ones.
        self._topic_replicas = Counter(dict.fromkeys(load.brokers, 0))
        self._topic_leaders = Counter(dict.fromkeys(load.brokers, 0))
        for nodes in present:
            self._topic_leaders[nodes[0]] += 1
            self._topic_replicas.update(nodes)

    def place(self, index: int, factor: int) -> list[int]:
        """The replicas of partition `index`, its preferred leader first."""
        if not self._up:
            raise InvalidReplicationFactor(
                "No broker is up that accepts new replicas, so the partition would have no leader"
                + self._exclusion()
            )
        if factor > len(self._brokers):
            raise InvalidReplicationFactor(
                f"Unable to replicate the partition {factor} time(s): The target replication factor of "
                f"{factor} cannot be reached because only {len(self._brokers)} broker(s) are registered."
                + self._exclusion()
            )
        chosen = [self._leader(index)]
        while len(chosen) < factor:
            chosen.append(self._follower(index, chosen))
        nodes = [broker.id for broker in chosen]
        self._topic_leaders[nodes[0]] += 1
        self._leaders[nodes[0]] += 1
        self._topic_replicas.update(nodes)
        for node in nodes:
            self._replicas[node] += 1
        return nodes

    def _exclusion(self) -> str:
        """The end of an error message: the brokers that were left out, if there are any."""
        if not self._excluded:
            return ""
        ids = ", ".join(map(str, self._excluded))
        return f" (without those in penstock.balance.exclude.brokers: {ids})"

    def _leader(self, index: int) -> BrokerImage:
        return self._least(
            index,
            {
                broker.id: (
                    self._topic_leaders[broker.id],
                    self._topic_replicas[broker.id],
                    self._leaders[broker.id],
                    self._replicas[broker.id],
                )
                for broker in self._up
            },
        )

    def _follower(self, index: int, chosen: Collection[BrokerImage]) -> BrokerImage:
        taken = {broker.id for broker in chosen}
        machines = {broker.machine for broker in chosen} - {None}
        hosts, racks = Counter(broker.host for broker in chosen), Counter(broker.rack for broker in chosen)
        # By site first: with hundreds of brokers, a comparison of each with each replica takes most of the
        # time.
        crowds: dict[tuple[int, int], list[BrokerImage]] = {}
        for (host, rack), brokers in self._sites.items():
            free = brokers
            if host in hosts:
                free = [e for e in brokers if e.id not in taken and e.machine not in machines]
            if free:
                crowds.setdefault((hosts.get(host, 0), racks.get(rack, 0)), []).extend(free)
        if not crowds:
            raise InvalidReplicationFactor(
                f"Unable to find a place for replica {len(chosen) + 1} of the partition: replicas are on "
                f"different machines (penstock.machine), and the brokers of only {len(machines)} machine(s) "
                f"are registered." + self._exclusion()
            )
        return self._least(
            index,
            {
                broker.id: (
                    broker.fenced,
                    self._topic_replicas[broker.id],
                    self._replicas[broker.id],
                )
                for broker in crowds[min(crowds)]
            },
        )

    def _least(self, index: int, reasons: Mapping[int, tuple[int, ...]]) -> BrokerImage:
        """The broker with least reasons against it, by score where several have."""
        least = min(reasons.values())
        equals = [node for node, against in reasons.items() if against == least]
        if len(equals) == 1:
            return self._brokers[equals[0]]
        return self._brokers[max(equals, key=lambda node: rendezvous_score(self._topic_id, index, node))]


def may_receive(broker: BrokerImage) -> bool:
    """Whether replicas may be moved to a broker: it is up, stays, and has a directory that takes them."""
    return not broker.fenced and _may_hold(broker)


def _may_hold(broker: BrokerImage) -> bool:
    """Whether a broker is a place for a new replica, now or once it is back; not one that is just leaving."""
    leaving = broker.in_controlled_shutdown and not broker.fenced
    return not leaving and (not broker.cordoned or set(broker.cordoned) != set(broker.log_directories))


def shares_machine(broker: BrokerImage, others: Collection[BrokerImage]) -> bool:
    """Whether a broker has the `penstock.machine` of one of the brokers that hold the other replicas."""
    return broker.machine is not None and any(other.machine == broker.machine for other in others)


def is_no_closer(receiver: BrokerImage, donor: BrokerImage, others: Collection[BrokerImage]) -> bool:
    """Whether a replica may move to the receiver: no closer to the others, and to none of their machines."""
    return crowding(receiver, others) <= crowding(donor, others) and not shares_machine(receiver, others)


def crowding(broker: BrokerImage, others: Collection[BrokerImage]) -> tuple[int, int]:
    """How many of the brokers that hold the other replicas are on the same host, and in the same zone."""
    return (
        sum(other.host == broker.host for other in others),
        sum(other.rack == broker.rack for other in others),
    )
