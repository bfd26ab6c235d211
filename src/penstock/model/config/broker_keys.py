"""The broker configs: Kafka's names, defaults and limits, and Penstock's own under `penstock.`.

Keys of groups, transactions and the cluster are in `coordinator_keys`. Kafka's thread counts are accepted
because deployments set them, and say so: one broker is one process with one event loop.
"""

from __future__ import annotations

from penstock.model.config.coordinator_keys import COORDINATOR_KEYS
from penstock.model.config.keys import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Synonym,
    UpdateMode,
    not_empty,
    table,
)
from penstock.model.config.topic_keys import TOPIC_KEYS

__all__ = ["BROKER_KEYS", "SYNONYM_GROUPS"]

_B, _S, _I, _L, _D, _LIST, _CLASS = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.CLASS,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE
_UNUSED = " Accepted for compatibility; without effect here."


def _topic_defaults() -> list[ConfigKey]:
    """The broker keys that give topics their defaults.

    Where a topic key has several synonyms, only the last, coarsest one has a default: the others are null.
    """
    return [
        key._replace(
            name=key.synonyms[0].name,
            default=key.default if len(key.synonyms) == 1 else None,
            doc=f"Default of the topic config {key.name}: {key.doc}",
            update_mode=_CLUSTER,
            synonyms=(),
        )
        for key in TOPIC_KEYS.values()
        if key.synonyms
    ]


_TIME_FALLBACKS = [
    ConfigKey("log.roll.hours", _I, 168, "Segment age in hours; log.roll.ms goes before it.", low=1),
    ConfigKey(
        "log.roll.jitter.hours", _I, 0, "Segment jitter in hours; log.roll.jitter.ms goes before it.", low=0
    ),
    ConfigKey("log.retention.minutes", _I, None, "Retention in minutes; log.retention.ms goes before it."),
    ConfigKey(
        "log.retention.hours", _I, 168, "Retention in hours; log.retention.ms and .minutes go before it."
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        _L,
        LONG_MAX,
        "How often a flusher looks for logs to sync, where log.flush.interval.ms is not set.",
    ),
]

_IDENTITY = [
    ConfigKey("node.id", _I, 1, "This broker's number, unique in its cluster.", low=0),
    ConfigKey("broker.id", _I, -1, "The older name of node.id; the two always agree."),
    ConfigKey("broker.rack", _S, None, "The zone this broker runs in; replicas are spread over zones."),
    ConfigKey(
        "penstock.machine",
        _S,
        None,
        "The machine this broker runs on; replicas are spread over machines. By default the address of its "
        "internal listener.",
    ),
]

_NETWORK = [
    ConfigKey(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        "Where the broker listens: NAME://HOST:PORT, comma-separated. No host means every interface, port 0 "
        "any free port.",
        check=not_empty,
    ),
    ConfigKey(
        "advertised.listeners",
        _LIST,
        None,
        "The addresses that clients are told to use, by listener name, where they differ from `listeners`.",
        check=not_empty,
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _S,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name. Only PLAINTEXT can be used so far.",
    ),
    ConfigKey("inter.broker.listener.name", _S, None, "The listener that brokers use among themselves."),
    ConfigKey(
        "security.inter.broker.protocol",
        _S,
        "PLAINTEXT",
        "The security protocol among brokers, where inter.broker.listener.name is not set.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        _I,
        -1,
        "SO_SNDBUF of the sockets that listeners accept. -1 leaves it to the operating system, which adapts "
        "it to each connection; Kafka's default is 102400.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        _I,
        -1,
        "SO_RCVBUF of the sockets that listeners accept. -1 leaves it to the operating system, which adapts "
        "it to each connection; Kafka's default is 102400.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _I,
        104857600,
        "The largest request; a larger one ends its connection.",
        low=1,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        _I,
        4096,
        "Connections that may wait to be accepted; the operating system may lower it. Kafka's default is 50, "
        "with which clients that connect at the same moment wait for a second and more.",
        low=1,
    ),
    ConfigKey("max.connections", _I, INT_MAX, "Open connections at most.", low=0, update_mode=_CLUSTER),
    ConfigKey(
        "max.connections.per.ip",
        _I,
        INT_MAX,
        "Open connections per client address.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        _S,
        "",
        "Exceptions from max.connections.per.ip: ADDRESS:COUNT, comma-separated.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        _I,
        INT_MAX,
        "New connections per second; those that come faster are heard later.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "connections.max.idle.ms", _L, 600_000, "A connection idle for longer is closed; -1 for never."
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _L,
        -1,
        "Memory for requests being read or waiting, over all connections; reading pauses when it is used up. "
        "-1 lets the broker choose.",
    ),
    ConfigKey(
        "penstock.queued.max.request.bytes.per.ip",
        _L,
        -1,
        "The part of queued.max.request.bytes that the requests of one client address may take; reading from "
        "that address pauses when it is used up. -1 stands for half.",
    ),
    ConfigKey(
        "penstock.request.read.timeout.ms",
        _L,
        30_000,
        "How long a request may arrive in part before its connection is closed; each 16 KiB that arrive give "
        "another second.",
        low=1000,
    ),
    ConfigKey("queued.max.requests", _I, 500, "Requests that may wait." + _UNUSED, low=1),
    ConfigKey("num.network.threads", _I, 3, "Network threads." + _UNUSED, low=1, update_mode=_CLUSTER),
    ConfigKey("num.io.threads", _I, 8, "Request threads." + _UNUSED, low=1, update_mode=_CLUSTER),
    ConfigKey("background.threads", _I, 10, "Worker threads for disk work.", low=1, update_mode=_CLUSTER),
    ConfigKey(
        "request.timeout.ms", _I, 30_000, "How long the broker waits for an answer to its own requests."
    ),
]

_FETCHING = [
    ConfigKey("fetch.max.bytes", _I, 57671680, "The most that one fetch response carries.", low=1024),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots", _I, 1000, "Fetch sessions kept; 0 turns them off.", low=0
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _I,
        2000,
        "Partitions in one DescribeTopicPartitions response.",
        low=1,
    ),
    ConfigKey("fetch.purgatory.purge.interval.requests", _I, 1000, "Upkeep of waiting fetches." + _UNUSED),
    ConfigKey(
        "producer.purgatory.purge.interval.requests", _I, 1000, "Upkeep of waiting produces." + _UNUSED
    ),
]

_TOPICS = [
    ConfigKey("num.partitions", _I, 1, "Partitions of a topic that is created without a number.", low=1),
    ConfigKey(
        "default.replication.factor", _I, 1, "Replicas of a topic that is created without a number.", low=1
    ),
    ConfigKey(
        "auto.create.topics.enable", _B, True, "Create a topic when a client asks for one that is missing."
    ),
    ConfigKey("delete.topic.enable", _B, True, "Whether topics can be deleted."),
    ConfigKey("create.topic.policy.class.name", _CLASS, None, "A policy for new topics." + _UNUSED),
    ConfigKey("alter.config.policy.class.name", _CLASS, None, "A policy for config changes." + _UNUSED),
]

_STORAGE = [
    ConfigKey(
        "log.dir",
        _LIST,
        ("penstock-data",),
        "The data directory, where log.dirs is not set.",
        check=not_empty,
    ),
    ConfigKey("log.dirs", _LIST, None, "The data directories, comma-separated.", check=not_empty),
    ConfigKey("log.retention.check.interval.ms", _L, 300_000, "How often retention is applied.", low=1),
    ConfigKey(
        "log.initial.task.delay.ms",
        _L,
        30_000,
        "Delay of the first retention and cleaning pass: an interval." + _UNUSED,
        low=0,
        internal=True,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "How often recovery points are written down.",
        low=0,
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "How often log starts are written down: with the recovery points." + _UNUSED,
        low=0,
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms", _L, 30_000, "Patience with a failed data directory." + _UNUSED, low=1
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        _I,
        2,
        "Logs recovered at a time per directory.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey("log.cleaner.enable", _B, True, "Whether compaction runs."),
    ConfigKey("log.cleaner.threads", _I, 1, "Compactions at a time.", low=0, update_mode=_CLUSTER),
    ConfigKey("log.cleaner.backoff.ms", _L, 15_000, "Pause when no log is due.", low=0, update_mode=_CLUSTER),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        _L,
        134217728,
        "Memory for the keys of all compactions together.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        _I,
        524288,
        "Read and write buffers: a batch is read whole." + _UNUSED,
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        _D,
        0.9,
        "How full the key memory may get: to the brim." + _UNUSED,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        _D,
        1.7976931348623157e308,
        "Disk traffic of compaction, read and written together.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        _I,
        86_400_000,
        "An idempotent producer that wrote nothing for this long is forgotten.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _I,
        600_000,
        "How often that is checked.",
        low=1,
        internal=True,
    ),
]

_PENSTOCK = [
    ConfigKey(
        "penstock.flush",
        _S,
        "interval",
        "When acknowledged data is on disk: `interval` syncs every penstock.flush.interval.ms, `group` "
        "answers only after a sync that many requests share, `os` leaves it to the operating system.",
        choices=("interval", "os", "group"),
    ),
    ConfigKey("penstock.flush.interval.ms", _L, 1000, "The interval of `penstock.flush=interval`.", low=1),
    ConfigKey(
        "penstock.quarantine.retention.ms",
        _L,
        604_800_000,
        "How long logs that were set aside are kept, counted while the broker runs; -1 keeps them for ever.",
        low=-1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.scrub.interval.ms",
        _L,
        86_400_000,
        "Pause between rounds in which every sealed segment is read and its checksums are checked.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.scrub.bytes.per.second",
        _L,
        10 << 20,
        "How fast those rounds read, all partitions together.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.clock.skew.max.ms",
        _L,
        300_000,
        "How far a broker's wall clock may differ from the clock that most brokers agree on. Beyond that the "
        "broker deletes nothing by time, and other in-sync replicas lead its partitions.",
        low=10_000,
        update_mode=_CLUSTER,
    ),
    ConfigKey("penstock.memory", _B, False, "Keep all data in memory; it is gone when the broker ends."),
    ConfigKey(
        "penstock.log.level",
        _S,
        "info",
        "The least severe event that is logged.",
        choices=("debug", "info", "warning", "error"),
    ),
    ConfigKey(
        "penstock.log.format",
        _S,
        "auto",
        "How events are logged: `human` for people, `text` as key=value pairs, `json` as objects. `auto` is "
        "`human` on a terminal, `text` elsewhere.",
        choices=("auto", "human", "text", "json"),
    ),
]

BROKER_KEYS: dict[str, ConfigKey] = table(
    [
        *_IDENTITY,
        *_NETWORK,
        *_FETCHING,
        *_TOPICS,
        *_STORAGE,
        *_topic_defaults(),
        *_TIME_FALLBACKS,
        *COORDINATOR_KEYS,
        *_PENSTOCK,
    ]
)


def _synonym_groups() -> dict[str, tuple[Synonym, ...]]:
    """Broker keys that stand for one another, finest unit first, by the name of each member.

    log.flush.scheduler.interval.ms backs log.flush.interval.ms but also means something of its own.
    """
    groups = {}
    for key in TOPIC_KEYS.values():
        if len(key.synonyms) > 1:
            members = key.synonyms[:1] if key.name == "flush.ms" else key.synonyms
            groups.update({synonym.name: key.synonyms for synonym in members})
    return groups


SYNONYM_GROUPS = _synonym_groups()
