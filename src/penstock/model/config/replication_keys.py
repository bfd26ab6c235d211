"""The broker configs of replication and leader elections."""

from __future__ import annotations

from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    ConfigKey,
    ConfigType,
    UpdateMode,
)

_B, _S, _I, _L = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE

REPLICATION_KEYS: list[ConfigKey] = [
    ConfigKey(
        "replica.lag.time.max.ms",
        _L,
        30_000,
        "A follower that has not caught up for this long is out of sync.",
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        _I,
        1048576,
        "The most bytes per partition that a follower requests in one fetch.",
        low=0,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        _I,
        10485760,
        "The most bytes that a follower requests in one fetch.",
        low=0,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        _I,
        1,
        "The fewest bytes for which the leader answers a follower's fetch before replica.fetch.wait.max.ms.",
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        _I,
        500,
        "The longest time that a follower's fetch waits for new records.",
    ),
    ConfigKey("replica.fetch.backoff.ms", _I, 1000, "The pause of a follower after a failed fetch.", low=0),
    ConfigKey(
        "replica.socket.timeout.ms", _I, 30_000, "How long a follower waits for a response of its leader."
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes",
        _I,
        65536,
        "SO_RCVBUF of a follower's socket.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        _L,
        5000,
        "How often high watermarks are written to the checkpoint file.",
    ),
    ConfigKey(
        "replica.selector.class", _S, None, "How the leader chooses the replica that a consumer reads from."
    ),
    ConfigKey(
        "num.replica.fetchers",
        _I,
        1,
        "Connections from a follower to each leader.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "follower.fetch.last.tiered.offset.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether an empty follower begins behind the last offset of the archive.",
        update_mode=_CLUSTER,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "leader.replication.throttled.rate",
        _L,
        2**63 - 1,
        "Bytes per second that this broker sends to throttled replicas that are catching up.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        _L,
        2**63 - 1,
        "Bytes per second that this broker fetches for throttled replicas that are catching up.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _L,
        2**63 - 1,
        "Bytes per second that this broker copies while it moves replicas between its data directories.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "num.replica.alter.log.dirs.threads",
        _I,
        None,
        "Concurrent moves of replicas between data directories.",
        without_effect="Without effect: replicas are moved one after the other.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        _B,
        True,
        "Whether the controller moves leadership back to the preferred replica.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        _L,
        300,
        "How often the controller checks whether preferred replicas lead.",
        low=1,
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage",
        _I,
        10,
        "The share of a broker's preferred partitions that other brokers may lead before the "
        "controller moves them back.",
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
        "controlled.shutdown.enable", _B, True, "Whether a broker hands over its leaderships before it stops."
    ),
    ConfigKey(
        "controller.socket.timeout.ms",
        _I,
        30_000,
        "How long the controller waits for a response of a broker.",
        without_effect=COMPATIBLE_ONLY,
    ),
]
