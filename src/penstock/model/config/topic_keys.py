"""The topic configs: Kafka's names, defaults and limits.

The first synonym of a key is the broker config of the same meaning; the broker's table derives it from here.
"""

from __future__ import annotations

import re

from penstock.model.config.keys import INT_MAX, LONG_MAX, ConfigKey, ConfigType, Synonym, table

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MIB = 1024 * 1024

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def _gzip_level(level: int) -> str | None:
    return (
        None if level == -1 or 1 <= level <= 9 else "must be between 1 and 9, or -1 for the codec's default"
    )


def _throttled_replicas(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(_REPLICA.fullmatch(replica) for replica in replicas):
        return None
    return "must be '*' or a list of PARTITION:BROKER pairs"


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _log(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"log.{name}"),)


def _cleaner(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"log.cleaner.{name}"),)


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

TOPIC_KEYS: dict[str, ConfigKey] = table(
    [
        ConfigKey(
            "cleanup.policy",
            _LIST,
            ("delete",),
            "What happens to old data: `delete` drops whole segments by age and size, `compact` keeps the "
            "latest record of every key, both together do both, and an empty list keeps everything.",
            choices=("compact", "delete"),
            synonyms=_log("cleanup.policy"),
            repeatable=True,
        ),
        ConfigKey(
            "compression.gzip.level",
            _I,
            -1,
            "Level used when this topic's batches are recompressed with gzip; -1 for the codec's default.",
            check=_gzip_level,
            synonyms=_same("compression.gzip.level"),
        ),
        ConfigKey(
            "compression.lz4.level",
            _I,
            9,
            "Level used when this topic's batches are recompressed with lz4.",
            low=1,
            high=17,
            synonyms=_same("compression.lz4.level"),
        ),
        ConfigKey(
            "compression.type",
            _S,
            "producer",
            "The codec of stored batches. `producer` keeps each batch as it was sent; any other makes the "
            "broker recompress batches that arrive in another one.",
            choices=COMPRESSION_TYPES,
            synonyms=_same("compression.type"),
        ),
        ConfigKey(
            "compression.zstd.level",
            _I,
            3,
            "Level used when this topic's batches are recompressed with zstd.",
            low=-131072,
            high=22,
            synonyms=_same("compression.zstd.level"),
        ),
        ConfigKey(
            "delete.retention.ms",
            _L,
            _DAY_MS,
            "How long compaction keeps a tombstone, so that a reader that started at the beginning sees it.",
            low=0,
            synonyms=_cleaner("delete.retention.ms"),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _L,
            60_000,
            "How long the files of a dropped segment stay on disk before they are removed.",
            low=0,
            synonyms=_log("segment.delete.delay.ms"),
        ),
        ConfigKey(
            "flush.messages",
            _L,
            LONG_MAX,
            "Sync the log to disk after this many records; 1 syncs every append.",
            low=1,
            synonyms=_log("flush.interval.messages"),
        ),
        ConfigKey(
            "flush.ms",
            _L,
            LONG_MAX,
            "Sync the log to disk when data has waited this long. See also `penstock.flush`.",
            low=0,
            synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            _LIST,
            (),
            "Replicas whose fetching is throttled on the follower: PARTITION:BROKER pairs, or `*` for all.",
            check=_throttled_replicas,
            repeatable=True,
        ),
        ConfigKey(
            "index.interval.bytes",
            _I,
            4096,
            "One index entry for about this many bytes of log: less finds offsets faster, more saves space.",
            low=0,
            synonyms=_log("index.interval.bytes"),
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            _LIST,
            (),
            "Replicas whose fetches are throttled on the leader: PARTITION:BROKER pairs, or `*` for all.",
            check=_throttled_replicas,
            repeatable=True,
        ),
        ConfigKey(
            "local.retention.bytes",
            _L,
            -2,
            "With tiered storage, how many bytes stay local; -2 follows retention.bytes.",
            low=-2,
            synonyms=_log("local.retention.bytes"),
        ),
        ConfigKey(
            "local.retention.ms",
            _L,
            -2,
            "With tiered storage, how long data stays local; -2 follows retention.ms.",
            low=-2,
            synonyms=_log("local.retention.ms"),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            _L,
            LONG_MAX,
            "A compacted topic's record becomes due for compaction at this age, however clean the log is.",
            low=1,
            synonyms=_cleaner("max.compaction.lag.ms"),
        ),
        ConfigKey(
            "max.message.bytes",
            _I,
            _MIB + 12,
            "The largest record batch accepted, in bytes after compression.",
            low=0,
            synonyms=_same("message.max.bytes"),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _L,
            _HOUR_MS,
            "How far ahead of the broker's clock a record's timestamp may be. Ignored with LogAppendTime.",
            low=0,
            synonyms=_log("message.timestamp.after.max.ms"),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _L,
            LONG_MAX,
            "How far behind the broker's clock a record's timestamp may be. Ignored with LogAppendTime.",
            low=0,
            synonyms=_log("message.timestamp.before.max.ms"),
        ),
        ConfigKey(
            "message.timestamp.type",
            _S,
            "CreateTime",
            "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
            choices=("CreateTime", "LogAppendTime"),
            synonyms=_log("message.timestamp.type"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            _D,
            0.5,
            "A compacted log is cleaned when this share of it is uncompacted.",
            low=0,
            high=1,
            synonyms=_cleaner("min.cleanable.ratio"),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _L,
            0,
            "Records younger than this are left alone by compaction.",
            low=0,
            synonyms=_cleaner("min.compaction.lag.ms"),
        ),
        ConfigKey(
            "min.insync.replicas",
            _I,
            1,
            "How many replicas must be in sync for a write with acks=all to be accepted.",
            low=1,
            synonyms=_same("min.insync.replicas"),
        ),
        ConfigKey(
            "penstock.record.decompressed.bytes.max",
            _I,
            100 * _MIB,
            "The most bytes that the records of a compressed batch may take when decompressed: a producer's "
            "batch beyond it is refused. The broker never decompresses more than this.",
            low=1,
            synonyms=_same("penstock.record.decompressed.bytes.max"),
        ),
        ConfigKey(
            "penstock.record.validation",
            _S,
            "records",
            "How far a producer's batch is checked before it is stored. `header` checks the batch header and "
            "the checksum; `frame` also the first bytes of compressed records, and the decompressed size "
            "where they declare it; `records` also the structure of every record, as Apache Kafka does.",
            choices=("header", "frame", "records"),
            synonyms=_same("penstock.record.validation"),
        ),
        ConfigKey(
            "preallocate",
            _B,
            False,
            "Reserve a new segment's whole size on disk when it is made: a log ends where its file does. "
            "Accepted for compatibility; without effect here.",
            synonyms=_log("preallocate"),
        ),
        ConfigKey(
            "remote.log.copy.disable",
            _B,
            False,
            "With tiered storage, stop copying new data to the remote tier.",
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            _B,
            False,
            "Whether turning tiered storage off deletes what lies in the remote tier.",
        ),
        ConfigKey(
            "remote.storage.enable",
            _B,
            False,
            "Tiered storage for this topic. This broker has none, so only `false` is accepted.",
        ),
        ConfigKey(
            "retention.bytes",
            _L,
            -1,
            "The largest size of a partition before its oldest segments are dropped; -1 for no limit.",
            synonyms=_log("retention.bytes"),
        ),
        ConfigKey(
            "retention.ms",
            _L,
            7 * _DAY_MS,
            "How long records are kept before their segment is dropped; -1 for ever.",
            low=-1,
            synonyms=(
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", 60_000),
                Synonym("log.retention.hours", _HOUR_MS),
            ),
        ),
        ConfigKey(
            "segment.bytes",
            _I,
            1024 * _MIB,
            "A new segment is started at this size. Retention and compaction work on whole segments.",
            low=_MIB,
            synonyms=_log("segment.bytes"),
        ),
        ConfigKey(
            "segment.index.bytes",
            _I,
            10 * _MIB,
            "The largest size of a segment's offset index; a full index starts a new segment.",
            low=4,
            synonyms=_log("index.size.max.bytes"),
        ),
        ConfigKey(
            "segment.jitter.ms",
            _L,
            0,
            "Up to this much is taken off segment.ms at random, so that segments do not all roll at once.",
            low=0,
            synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "segment.ms",
            _L,
            7 * _DAY_MS,
            "A new segment is started when this much time has passed, even if the old one is not full.",
            low=1,
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            _B,
            False,
            "Whether a replica that is out of sync may lead when no other can, losing what it lacks.",
            synonyms=_same("unclean.leader.election.enable"),
        ),
        ConfigKey(
            "unclean.recovery.strategy",
            _S,
            "balanced",
            "Which replica leads when no replica in sync and no eligible one is left (KIP-966). `balanced` "
            "elects the most complete replica once every registered broker with a replica has reported; "
            "`aggressive` elects the most complete one among brokers that are up, and loses what only others "
            "have; `none` waits for an operator's election. unclean.leader.election.enable=true means "
            "`aggressive`.",
            choices=("none", "balanced", "aggressive"),
            synonyms=_same("unclean.recovery.strategy"),
        ),
        ConfigKey(
            "internal.segment.bytes",
            _I,
            None,
            "Overrides segment.bytes without its lower limit. For tests.",
            low=1,
            high=INT_MAX,
            internal=True,
        ),
    ]
)
