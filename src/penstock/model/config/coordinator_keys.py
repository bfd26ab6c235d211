"""The broker configs of groups, offsets, transactions, replication and the metadata quorum.

They are validated and shown from the start, so that a deployment's config loads; each takes effect with the
feature it belongs to.
"""

from __future__ import annotations

from penstock.model.config.balance_keys import BALANCE_KEYS
from penstock.model.config.keys import INT_MAX, ConfigKey, ConfigType, UpdateMode, not_empty

_B, _S, _I, _SHORT, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_PER_BROKER, _CLUSTER = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE
_WEEK_MS = 604_800_000

_REPLICATION = [
    ConfigKey(
        "replica.lag.time.max.ms",
        _L,
        30_000,
        "A follower that has not caught up for this long is out of sync.",
    ),
    ConfigKey("replica.fetch.max.bytes", _I, 1048576, "What a follower asks for per partition.", low=0),
    ConfigKey(
        "replica.fetch.response.max.bytes", _I, 10485760, "What a follower asks for in one fetch.", low=0
    ),
    ConfigKey("replica.fetch.min.bytes", _I, 1, "What a follower's fetch waits for."),
    ConfigKey("replica.fetch.wait.max.ms", _I, 500, "How long a follower's fetch waits."),
    ConfigKey("replica.fetch.backoff.ms", _I, 1000, "A follower's pause after a failed fetch.", low=0),
    ConfigKey("replica.socket.timeout.ms", _I, 30_000, "How long a follower waits for its leader."),
    ConfigKey("replica.socket.receive.buffer.bytes", _I, 65536, "SO_RCVBUF of a follower's socket."),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        _L,
        5000,
        "How often high watermarks are written down.",
    ),
    ConfigKey("replica.selector.class", _S, None, "How a replica to read from is chosen."),
    ConfigKey("num.replica.fetchers", _I, 1, "Connections to each leader.", low=1, update_mode=_CLUSTER),
    ConfigKey(
        "leader.replication.throttled.rate",
        _L,
        2**63 - 1,
        "Bytes a second that this broker sends to throttled replicas that catch up.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        _L,
        2**63 - 1,
        "Bytes a second that this broker fetches for throttled replicas that catch up.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey("num.replica.alter.log.dirs.threads", _I, None, "Moves between data directories at a time."),
    ConfigKey(
        "auto.leader.rebalance.enable", _B, True, "Whether leadership goes back to the preferred replica."
    ),
    ConfigKey("leader.imbalance.check.interval.seconds", _L, 300, "How often that is checked.", low=1),
    ConfigKey(
        "leader.imbalance.per.broker.percentage",
        _I,
        10,
        "The share of a broker's preferred partitions that others may lead before they are given back.",
        low=0,
    ),
    ConfigKey(
        "unclean.recovery.timeout.ms",
        _L,
        -1,
        "How long a `balanced` unclean recovery waits for the reports of all registered brokers before it "
        "elects the most complete replica among those that are up; -1 for no limit.",
        low=-1,
    ),
    ConfigKey(
        "controlled.shutdown.enable", _B, True, "Whether a stopping broker hands its partitions over first."
    ),
    ConfigKey("controller.socket.timeout.ms", _I, 30_000, "How long the controller waits for a broker."),
]

_QUORUM = [
    ConfigKey(
        "process.roles",
        _LIST,
        ("broker", "controller"),
        "What this process is: a broker, a controller of the metadata quorum, or both.",
        choices=("broker", "controller"),
        check=not_empty,
    ),
    ConfigKey(
        "controller.listener.names",
        _LIST,
        ("INTERNAL",),
        "The listener that the nodes of a cluster use among themselves; the first of these that `listeners` "
        "has. A broker that has none of them is a cluster of its own.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        _LIST,
        (),
        "The quorum's members at its start: ID@HOST:PORT of their internal listeners, comma-separated. None "
        "means this node alone.",
    ),
    ConfigKey(
        "penstock.cluster.id",
        _S,
        None,
        "The cluster's id, 22 characters; by default it follows from controller.quorum.voters, and a broker "
        "alone makes up its own.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        _LIST,
        (),
        "Where to find the quorum: controller.quorum.voters says so. Refused where that is not set, unless "
        "this names only the node itself.",
    ),
    ConfigKey(
        "controller.quorum.election.timeout.ms", _I, 1000, "How long a candidate waits for votes.", low=0
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        _I,
        2000,
        "How long without the leader before an election.",
        low=0,
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms", _I, 1000, "The longest pause between elections.", low=0
    ),
    ConfigKey("controller.quorum.append.linger.ms", _I, 25, "How long the leader gathers records.", low=0),
    ConfigKey("controller.quorum.request.timeout.ms", _I, 2000, "How long a quorum request may take.", low=0),
    ConfigKey(
        "controller.quorum.retry.backoff.ms", _I, 20, "The pause before a quorum request is retried.", low=0
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms", _I, 500, "How often a broker reports to the controller.", low=1
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        _I,
        3000,
        "A broker that hangs or is cut off for this long is fenced; one whose process ends, at once.",
        low=1,
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms", _I, 60_000, "How long a new broker tries to register."
    ),
    ConfigKey(
        "metadata.log.dir", _S, None, "Where the metadata log lies; the first data directory by default."
    ),
    ConfigKey("metadata.log.segment.bytes", _I, 1073741824, "Segment size of the metadata log.", low=8388608),
    ConfigKey("metadata.log.segment.ms", _L, _WEEK_MS, "Segment age of the metadata log."),
    ConfigKey("metadata.max.retention.bytes", _L, 104857600, "Metadata log and snapshots kept, in bytes."),
    ConfigKey("metadata.max.retention.ms", _L, _WEEK_MS, "Metadata log and snapshots kept, in time."),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _L,
        20971520,
        "A snapshot at this much new log.",
        low=1,
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms", _L, 3_600_000, "A snapshot at least this often.", low=0
    ),
    ConfigKey("metadata.max.idle.interval.ms", _I, 500, "How often an idle leader writes a record.", low=0),
]

_OFFSETS = [
    ConfigKey("offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets.", low=1),
    ConfigKey(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets; groups wait until so many brokers are registered. A broker that has "
        "no internal listener makes one.",
        low=1,
    ),
    ConfigKey("offsets.topic.segment.bytes", _I, 104857600, "Segment size of __consumer_offsets.", low=1),
    ConfigKey("offsets.topic.compression.codec", _I, 0, "Codec number of __consumer_offsets."),
    ConfigKey("offsets.retention.minutes", _I, 10_080, "How long an empty group's offsets are kept.", low=1),
    ConfigKey("offsets.retention.check.interval.ms", _L, 600_000, "How often that is checked.", low=1),
    ConfigKey("offsets.commit.timeout.ms", _I, 5000, "How long a commit waits for replicas.", low=1),
    ConfigKey("offsets.load.buffer.size", _I, 5242880, "Read size when offsets are loaded.", low=1),
    ConfigKey("offset.metadata.max.bytes", _I, 4096, "The largest note that a commit may carry."),
]

_GROUPS = [
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic", "consumer", "streams"),
        "The group protocols that are offered.",
        choices=("classic", "consumer", "share", "streams"),
        check=not_empty,
    ),
    ConfigKey("group.coordinator.threads", _I, 4, "Coordinator threads. Without effect here.", low=1),
    ConfigKey("group.coordinator.append.linger.ms", _I, -1, "How long group records are gathered.", low=-1),
    ConfigKey("group.min.session.timeout.ms", _I, 6000, "The shortest session a classic member may ask for."),
    ConfigKey(
        "group.max.session.timeout.ms", _I, 1_800_000, "The longest session a classic member may ask for."
    ),
    ConfigKey("group.initial.rebalance.delay.ms", _I, 3000, "How long a new group waits for more members."),
    ConfigKey("group.max.size", _I, INT_MAX, "Members of a classic group at most.", low=1),
    ConfigKey("group.consumer.session.timeout.ms", _I, 45_000, "When a silent member is out.", low=1),
    ConfigKey(
        "group.consumer.min.session.timeout.ms", _I, 45_000, "The least of a group's own setting.", low=1
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms", _I, 60_000, "The most of a group's own setting.", low=1
    ),
    ConfigKey("group.consumer.heartbeat.interval.ms", _I, 5000, "How often members report.", low=1),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms", _I, 5000, "The least of a group's own setting.", low=1
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms", _I, 15_000, "The most of a group's own setting.", low=1
    ),
    ConfigKey("group.consumer.max.size", _I, INT_MAX, "Members of a consumer group at most.", low=1),
    ConfigKey(
        "group.consumer.assignors", _LIST, ("uniform", "range"), "Assignors on offer.", check=not_empty
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        "Whether a live group may change between the classic and the consumer protocol.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    ConfigKey(
        "penstock.group.consumer.waiting.heartbeat.interval.ms",
        _I,
        500,
        "The heartbeat interval of a consumer group member that waits for partitions of its target, plus 1 "
        "ms per member of the group; the ordinary interval where that is less.",
        low=100,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "group.consumer.assignment.interval.ms",
        _I,
        1000,
        "The least time between two assignments of a group.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "group.consumer.min.assignment.interval.ms", _I, 0, "The least of a group's own setting.", low=0
    ),
    ConfigKey(
        "group.consumer.max.assignment.interval.ms", _I, 15_000, "The most of a group's own setting.", low=0
    ),
    ConfigKey("group.share.session.timeout.ms", _I, 45_000, "When a silent share member is out.", low=1),
    ConfigKey("group.share.heartbeat.interval.ms", _I, 5000, "How often share members report.", low=1),
    ConfigKey("group.share.max.size", _I, 200, "Members of a share group at most.", low=1, high=1000),
    ConfigKey(
        "share.coordinator.state.topic.num.partitions", _I, 50, "Partitions of the share state.", low=1
    ),
    ConfigKey(
        "share.coordinator.state.topic.replication.factor", _SHORT, 3, "Replicas of the share state.", low=1
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr", _SHORT, 2, "In-sync replicas of the share state.", low=1
    ),
]

_TRANSACTIONS = [
    ConfigKey(
        "transaction.max.timeout.ms", _I, 900_000, "The longest transaction a producer may ask for.", low=1
    ),
    ConfigKey("transaction.state.log.num.partitions", _I, 50, "Partitions of __transaction_state.", low=1),
    ConfigKey(
        "transaction.state.log.replication.factor", _SHORT, 3, "Replicas of __transaction_state.", low=1
    ),
    ConfigKey("transaction.state.log.min.isr", _I, 2, "In-sync replicas of __transaction_state.", low=1),
    ConfigKey(
        "transaction.state.log.segment.bytes", _I, 104857600, "Segment size of __transaction_state.", low=1
    ),
    ConfigKey("transaction.state.log.load.buffer.size", _I, 5242880, "Read size when it is loaded.", low=1),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _I,
        10_000,
        "How often timed-out transactions are looked for.",
        low=1,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _I,
        3_600_000,
        "How often expired transactional ids are looked for.",
        low=1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _B,
        True,
        "Check that a partition belongs to the transaction that writes to it.",
        update_mode=_CLUSTER,
    ),
    ConfigKey("transaction.two.phase.commit.enable", _B, False, "Whether an outside coordinator may commit."),
    ConfigKey(
        "transactional.id.expiration.ms", _I, _WEEK_MS, "An unused transactional id is forgotten.", low=1
    ),
]

_SECURITY = [
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        _L,
        60_000,
        "For Kerberos, which this broker does not speak; kept because admin tools set it.",
        update_mode=_PER_BROKER,
    ),
]

COORDINATOR_KEYS: list[ConfigKey] = [
    *_REPLICATION,
    *BALANCE_KEYS,
    *_QUORUM,
    *_OFFSETS,
    *_GROUPS,
    *_TRANSACTIONS,
    *_SECURITY,
]
