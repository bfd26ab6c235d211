"""The broker configs of transactions."""

from __future__ import annotations

from penstock.model.config.keys import ConfigKey, ConfigType, UpdateMode

_B, _I, _SHORT = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.SHORT,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE
_WEEK_MS = 604_800_000

TRANSACTION_KEYS: list[ConfigKey] = [
    ConfigKey(
        "transaction.max.timeout.ms",
        _I,
        900_000,
        "The longest transaction timeout that a producer may request.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        _I,
        50,
        "Partitions of __transaction_state. A change has no effect once the topic exists.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "Replicas of __transaction_state.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        _I,
        2,
        "The min.insync.replicas of __transaction_state.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _I,
        104857600,
        "The segment size of __transaction_state.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        _I,
        5242880,
        "The read size when __transaction_state is loaded.",
        low=1,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _I,
        10_000,
        "How often timed-out transactions are aborted.",
        low=1,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _I,
        3_600_000,
        "How often expired transactional ids are removed.",
        low=1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _B,
        True,
        "Whether a broker verifies that a partition belongs to the transaction that writes to it.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        _B,
        False,
        "Whether producers may have transactions without a timeout, for an external coordinator.",
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _I,
        _WEEK_MS,
        "A transactional id that is unused for this long is removed.",
        low=1,
    ),
]
