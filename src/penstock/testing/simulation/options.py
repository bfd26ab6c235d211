"""Options of a run, which a seed draws before the first event, and the broker settings they imply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from penstock.testing.simulation.archives import tiered_settings
from penstock.testing.simulation.directed_faults import DIRECTED_FAULTS
from penstock.testing.simulation.disasters.catalog import SINGLE, choose
from penstock.testing.simulation.faults import FAULTS, OFFSETS_PARTITIONS
from penstock.testing.simulation.healing import HEALING, healing_settings
from penstock.testing.simulation.node import PORT
from penstock.testing.simulation.security import CLIENT_LISTENER, secured_settings
from penstock.testing.simulation.share_faults import SHARE_FAULTS
from penstock.testing.simulation.shares import share_settings
from penstock.testing.simulation.transaction_faults import TRANSACTION_FAULTS
from penstock.testing.simulation.transactions import transaction_settings

__all__ = ["INTERNAL_PORT", "Options", "broker_settings", "rack_of"]

INTERNAL_PORT: Final = 19092
#: how long replicas may lag, mostly
_LAG_MS: Final = 1000
#: how old segments get, where they are sealed at all
_ROLL_MS: Final = 700
_ROLL_OFTEN_MS: Final = 300
#: the share of clusters that a disaster strikes
_STRUCK: Final = 0.125
#: the share of clusters that get a directed fault
_DIRECTED: Final = 0.25
#: of the remaining runs, the share with an operator
_OPERATED: Final = 0.5
#: of the runs with an archive, the share with transactional clients
_TRANSACTIONAL: Final = 0.4
_DISK: Final = "/disk"
_RACK_AWARE: Final = "RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run."""

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
    #: the directed fault that replaces drawn faults
    directed_fault: str | None = None
    #: how old a segment gets before it is sealed; None for longer than any run
    roll_ms: int | None = None
    #: whether brokers compact `__consumer_offsets`: by default they do so too rarely for most runs
    compaction: bool = False
    #: how many of the nodes vote in the quorum
    voters: int = 1
    #: after which time a replica that lags is no longer in sync
    lag_ms: int = _LAG_MS
    #: whether an operator changes the cluster during the run
    operated: bool = False
    #: the disaster that destroys or damages copies, instead of drawn faults
    disaster: str | None = None
    #: data directories of each broker
    directories: int = 1
    #: whether transactional clients take part
    transactional: bool = False
    #: whether members of a share group take part
    shared: bool = False
    #: whether connections use TLS and SASL, brokers check ACLs, and disks are encrypted
    secured: bool = False
    #: whether topics are tiered, and a backup takes cuts that are restored at the end
    archived: bool = False

    @property
    def has_racks(self) -> bool:
        """Whether brokers have racks. Directed faults choose leaders, and racks would move the leaders."""
        return self.nodes > 1 and self.directed_fault is None and self.disaster is None

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
        # A cluster takes longer: it has to start, and to detect failed brokers.
        drawn = replace(drawn, voters=nodes, duration_s=drawn.duration_s + 3, faults=drawn.faults + 2)
        drawn = replace(drawn, roll_ms=rng.choice((None, _ROLL_MS)))
        if rng.random() < _DIRECTED:
            return drawn.with_directed_fault(rng.choice(tuple(DIRECTED_FAULTS)))
        if rng.random() < _OPERATED:
            drawn = replace(drawn, operated=True, voters=rng.choice((3, nodes)))
        return replace(drawn, lag_ms=rng.choice((_LAG_MS, 3 * _LAG_MS // 2)))

    @classmethod
    def choose(cls, seed: int, nodes: int = 1) -> Options:
        """As `draw`, but a disaster strikes some of the clusters."""
        drawn = cls.draw(seed, nodes)
        struck = nodes > 1 and Random(f"{seed}/struck").random() < _STRUCK
        return drawn.with_disaster(choose(seed)) if struck else drawn

    def with_directed_fault(self, name: str) -> Options:
        """These options with a directed fault instead of drawn faults.

        Of three partitions one is likely to have a suitable leader. Of three producers one is likely to leave
        records above the high watermark. No operator moves leaders, and replicas may lag for the time that
        directed faults assume.
        """
        calm = replace(self, operated=False, voters=self.nodes, lag_ms=_LAG_MS)
        return replace(calm, directed_fault=name, partitions=3, producers=3)

    def with_disaster(self, disaster: str) -> Options:
        """With a disaster instead of drawn faults, and logs of many segments."""
        calm = self.with_directed_fault("")
        nodes = 1 if disaster in SINGLE else self.nodes
        return replace(
            calm,
            directed_fault=None,
            disaster=disaster,
            nodes=nodes,
            voters=nodes,
            producers=2,
            members=max(1, self.members),
            loss=0.0,
            roll_ms=_ROLL_OFTEN_MS,
            # As good as drawn: how many consumers there are is the seed's choice.
            directories=2 if disaster.endswith("directory_rolled_back") else self.consumers,
        )

    @classmethod
    def draw_transactions(cls, seed: int, nodes: int) -> Options:
        """Options with transactional clients; a part of the clusters gets a directed fault."""
        rng = Random(f"{seed}/transaction-faults")
        directed = nodes > 1 and rng.random() < _DIRECTED
        fault = rng.choice(tuple(TRANSACTION_FAULTS)) if directed else None
        return cls.draw(seed, nodes).with_transactions(fault)

    def with_operator(self) -> Options:
        """These options with an operator that changes the cluster, and without a directed fault."""
        return replace(self, directed_fault=None, operated=True)

    def with_transactions(self, directed_fault: str | None = None) -> Options:
        """These options with transactional clients, under drawn faults or a directed one."""
        return replace(
            self,
            directed_fault=directed_fault,
            operated=False,
            voters=self.nodes,
            partitions=min(2, self.partitions),
            producers=1,
            consumers=1,
            members=min(1, self.members),
            duration_s=self.duration_s + 2,
            transactional=True,
        )

    @classmethod
    def draw_shares(cls, seed: int, nodes: int) -> Options:
        """Options with a share group; a part of the clusters gets a directed fault."""
        rng = Random(f"{seed}/share-faults")
        directed = nodes > 1 and rng.random() < _DIRECTED
        fault = rng.choice(tuple(SHARE_FAULTS)) if directed else None
        return cls.draw(seed, nodes).with_shares(fault)

    def with_shares(self, directed_fault: str | None = None) -> Options:
        """These options with members of a share group, under drawn faults or a directed one.

        With one partition, several members share it. `share_leader_behind` needs one for each leader.
        """
        return replace(
            self,
            directed_fault=directed_fault,
            operated=False,
            voters=self.nodes,
            partitions=1 if directed_fault == "share_leader_behind" else min(2, self.partitions),
            producers=1,
            consumers=1,
            members=0,
            duration_s=self.duration_s + 2,
            shared=True,
        )

    @classmethod
    def draw_archived(cls, seed: int, nodes: int) -> Options:
        """Options with tiered topics and a backup; some with transactional clients, some with an operator."""
        rng = Random(f"{seed}/archived")
        drawn = replace(cls.draw(seed, nodes), directed_fault=None, lag_ms=_LAG_MS)
        if rng.random() < _TRANSACTIONAL:
            drawn = drawn.with_transactions()
        return drawn.with_archive()

    def with_archive(self) -> Options:
        """These options with an archive, and consumers that commit offsets."""
        return replace(self, archived=True, members=max(1, self.members), roll_ms=_ROLL_OFTEN_MS)

    def with_security(self) -> Options:
        """These options on a secured cluster. Disasters read and damage files, which are then encrypted."""
        assert self.disaster is None, "disasters need files in plain text"
        return replace(self, secured=True)

    def lengthened(self, seconds: float) -> Options:
        """A longer run at the same rate of faults, long enough for sealed segments and compaction."""
        return replace(
            self,
            directed_fault=None,
            operated=self.operated or self.directed_fault is not None,
            duration_s=seconds,
            faults=max(1, round(self.faults * seconds / self.duration_s)),
            members=max(1, self.members),
            roll_ms=_ROLL_MS,
            compaction=True,
        )


def broker_settings(node_id: int, options: Options) -> dict[str, str]:
    """A broker's settings."""
    settings = {"penstock.flush": "group", "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)}
    if options.nodes > 1:
        settings |= _replication_settings(node_id, options)
    if options.secured:
        settings |= {
            "listeners": f"{CLIENT_LISTENER}://node-{node_id}:{PORT}",
            **settings,
            **secured_settings(),
        }
    if options.has_racks:
        settings |= {"broker.rack": rack_of(node_id), "replica.selector.class": _RACK_AWARE}
    if options.operated:
        # Beside the operator's changes, the cluster balances replicas and applies retention.
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
    settings |= tiered_settings(options.archived)
    if options.transactional:
        settings |= transaction_settings(options.nodes)
    if options.shared:
        settings |= share_settings(options.nodes)
    if options.disaster is not None:
        settings |= _disaster_settings(options)
    if options.directed_fault is not None and options.directed_fault in HEALING:
        settings |= healing_settings(options.directed_fault)
    if options.compaction:
        settings |= {"log.cleaner.backoff.ms": "800", "log.cleaner.min.cleanable.ratio": "0.1"}
    return settings


def _replication_settings(node_id: int, options: Options) -> dict[str, str]:
    """The quorum of several brokers, and topics that lose nothing while two replicas are in sync."""
    name = f"node-{node_id}"
    listener = CLIENT_LISTENER if options.secured else "PLAINTEXT"
    voters = [f"{voter}@node-{voter}:{INTERNAL_PORT}" for voter in range(1, options.voters + 1)]
    return {
        "listeners": f"{listener}://{name}:{PORT},INTERNAL://{name}:{INTERNAL_PORT}",
        "controller.quorum.voters": ",".join(voters),
        "leader.imbalance.check.interval.seconds": "2",
        "metadata.log.max.record.bytes.between.snapshots": "4000",
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": str(options.lag_ms),
        # Nothing goes by itself.
        "log.retention.ms": "-1",
    }


def _disaster_settings(options: Options) -> dict[str, str]:
    """Retention of a day, looked at all the time: only a wrong clock can make records that old."""
    paths = [_DISK, *(f"{_DISK}{i}" for i in range(2, options.directories + 1))]
    return {
        "log.dirs": ",".join(paths),
        "log.retention.ms": str(24 * 3600 * 1000),
        "log.retention.check.interval.ms": "400",
        "offsets.retention.check.interval.ms": "500",
    }


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"
