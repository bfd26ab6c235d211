"""The broker configs of the metadata quorum, its log, and broker registration."""

from __future__ import annotations

from penstock.model.config.keys import COMPATIBLE_ONLY, ConfigKey, ConfigType, not_empty

_S, _I, _L, _LIST = (
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)
_WEEK_MS = 604_800_000

QUORUM_KEYS: list[ConfigKey] = [
    ConfigKey(
        "process.roles",
        _LIST,
        ("broker", "controller"),
        "The roles of this process: broker, controller (voter of the metadata quorum), or both.",
        choices=("broker", "controller"),
        check=not_empty,
    ),
    ConfigKey(
        "controller.listener.names",
        _LIST,
        ("INTERNAL",),
        "The listener for connections between the nodes of a cluster: the first of these names that "
        "`listeners` contains. A broker without such a listener is a cluster of its own.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        _LIST,
        (),
        "The voters that a new quorum starts with: ID@HOST:PORT of their internal listeners, "
        "comma-separated. Empty means this node alone.",
    ),
    ConfigKey(
        "penstock.cluster.id",
        _S,
        None,
        "The cluster's id, 22 characters. By default it is derived from controller.quorum.voters; a "
        "single broker generates its own.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        _LIST,
        (),
        "Addresses of the quorum. controller.quorum.voters replaces it: without "
        "controller.quorum.voters, any address but the node's own is refused.",
    ),
    ConfigKey(
        "controller.quorum.election.timeout.ms", _I, 1000, "How long a candidate waits for votes.", low=0
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        _I,
        2000,
        "How long a voter waits for its leader before it starts an election.",
        low=0,
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms", _I, 1000, "The longest pause between elections.", low=0
    ),
    ConfigKey(
        "controller.quorum.append.linger.ms",
        _I,
        25,
        "How long the quorum's leader gathers records before it writes them.",
        low=0,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "controller.quorum.fetch.max.bytes",
        _I,
        1048576,
        "The most bytes of the metadata log in one fetch of a voter.",
        low=1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "controller.quorum.fetch.snapshot.max.bytes",
        _I,
        1048576,
        "The most bytes of a metadata snapshot in one fetch.",
        low=1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "controller.quorum.auto.join.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a controller adds itself to the voters.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey("controller.quorum.request.timeout.ms", _I, 2000, "How long a quorum request may take.", low=0),
    ConfigKey(
        "controller.quorum.retry.backoff.ms",
        _I,
        20,
        "The pause before a quorum request is retried.",
        low=0,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        _I,
        500,
        "How often a broker sends a heartbeat to the controller.",
        low=1,
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        _I,
        3000,
        "The controller fences a broker whose heartbeats are missing for this long. A broker whose "
        "process has ended is fenced at once.",
        low=1,
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        _I,
        60_000,
        "How long the controller may refuse the registration of a new broker, for example because another "
        "process has its id, before the broker ends. Without a controller the broker waits.",
    ),
    ConfigKey(
        "metadata.log.dir", _S, None, "The directory of the metadata log.", without_effect=COMPATIBLE_ONLY
    ),
    ConfigKey(
        "metadata.log.segment.bytes",
        _I,
        1073741824,
        "The segment size of the metadata log.",
        low=8388608,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "metadata.log.segment.ms",
        _L,
        _WEEK_MS,
        "The segment age of the metadata log.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        _L,
        104857600,
        "The size of metadata log and snapshots to keep.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "metadata.max.retention.ms",
        _L,
        _WEEK_MS,
        "The age of metadata log and snapshots to keep.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _L,
        20971520,
        "A snapshot is written after this many bytes of new metadata records.",
        low=1,
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms",
        _L,
        3_600_000,
        "The longest time between two metadata snapshots.",
        low=0,
    ),
    ConfigKey(
        "metadata.max.idle.interval.ms",
        _I,
        500,
        "How often an idle quorum leader appends a no-op record.",
        low=0,
        without_effect=COMPATIBLE_ONLY,
    ),
]
