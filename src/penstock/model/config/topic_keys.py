"""The topic configs: Kafka's names, defaults and limits.

The first synonym of a key is the broker config of the same meaning; the broker's table derives it from here.
"""

from __future__ import annotations

from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Copies,
    Synonym,
    table,
)
from penstock.model.config.own_cluster_keys import OWN_CLUSTER_KEYS
from penstock.model.config.topic_rules import (
    check_gzip_level,
    cleaner_name,
    log_name,
    same_name,
)

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MIB = 1024 * 1024

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

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
            "How old data is removed. `delete` removes whole segments by age and size. `compact` keeps "
            "the latest record of every key. Both can be combined. An empty list keeps everything.",
            choices=("compact", "delete"),
            synonyms=log_name("cleanup.policy"),
            repeatable=True,
        ),
        ConfigKey(
            "compression.gzip.level",
            _I,
            -1,
            "The level for batches that the broker recompresses with gzip; -1 for the codec's default.",
            check=check_gzip_level,
            synonyms=same_name("compression.gzip.level"),
        ),
        ConfigKey(
            "compression.lz4.level",
            _I,
            9,
            "The level for batches that the broker recompresses with lz4.",
            low=1,
            high=17,
            synonyms=same_name("compression.lz4.level"),
        ),
        ConfigKey(
            "compression.type",
            _S,
            "producer",
            "The codec of stored batches. `producer` keeps each batch as it was sent. With any other "
            "value the broker recompresses batches that arrive in another codec.",
            choices=COMPRESSION_TYPES,
            synonyms=same_name("compression.type"),
        ),
        ConfigKey(
            "compression.zstd.level",
            _I,
            3,
            "The level for batches that the broker recompresses with zstd.",
            low=-131072,
            high=22,
            synonyms=same_name("compression.zstd.level"),
        ),
        ConfigKey(
            "delete.retention.ms",
            _L,
            _DAY_MS,
            "How long compaction keeps a tombstone, so that consumers that started at the beginning of "
            "the log see it.",
            low=0,
            synonyms=cleaner_name("delete.retention.ms"),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _L,
            60_000,
            "How long the files of a deleted segment stay on disk.",
            low=0,
            synonyms=log_name("segment.delete.delay.ms"),
        ),
        ConfigKey(
            "flush.messages",
            _L,
            LONG_MAX,
            "The log is synced to disk after this many records; 1 syncs every append.",
            low=1,
            synonyms=log_name("flush.interval.messages"),
        ),
        ConfigKey(
            "flush.ms",
            _L,
            LONG_MAX,
            "The log is synced to disk after data has waited this long. See also `penstock.flush`.",
            low=0,
            synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        ),
        *OWN_CLUSTER_KEYS,
        ConfigKey(
            "index.interval.bytes",
            _I,
            4096,
            "The number of log bytes per index entry. Smaller values find offsets faster, larger values "
            "save space.",
            low=0,
            synonyms=log_name("index.interval.bytes"),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            _L,
            LONG_MAX,
            "A record of a compacted topic becomes due for compaction at this age, whatever the dirty "
            "ratio is.",
            low=1,
            synonyms=cleaner_name("max.compaction.lag.ms"),
        ),
        ConfigKey(
            "max.message.bytes",
            _I,
            _MIB + 12,
            "The largest record batch, in bytes after compression.",
            low=0,
            synonyms=same_name("message.max.bytes"),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _L,
            _HOUR_MS,
            "How far a record's timestamp may be ahead of the broker's clock. Ignored with LogAppendTime.",
            low=0,
            synonyms=log_name("message.timestamp.after.max.ms"),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _L,
            LONG_MAX,
            "How far a record's timestamp may be behind the broker's clock. Ignored with LogAppendTime.",
            low=0,
            synonyms=log_name("message.timestamp.before.max.ms"),
        ),
        ConfigKey(
            "message.timestamp.type",
            _S,
            "CreateTime",
            "The clock that stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
            choices=("CreateTime", "LogAppendTime"),
            synonyms=log_name("message.timestamp.type"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            _D,
            0.5,
            "A compacted log is cleaned when this share of it is not compacted yet.",
            low=0,
            high=1,
            synonyms=cleaner_name("min.cleanable.ratio"),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _L,
            0,
            "Compaction ignores records that are younger than this.",
            low=0,
            synonyms=cleaner_name("min.compaction.lag.ms"),
        ),
        ConfigKey(
            "min.insync.replicas",
            _I,
            1,
            "The number of in-sync replicas that a write with acks=all requires.",
            low=1,
            synonyms=same_name("min.insync.replicas"),
            left_out=Copies.MIRROR,
        ),
        ConfigKey(
            "errors.deadletterqueue.group.enable",
            _B,
            False,
            "Whether brokers may write dead letters of share groups to the topic (KIP-1191).",
        ),
        ConfigKey(
            "penstock.delay.source.enable",
            _B,
            False,
            "Whether messages of delay topics may be moved to the topic. Only brokers with an authorizer "
            "require it: clients that may change a delay topic need no right to write to its target.",
        ),
        ConfigKey(
            "penstock.delay.target",
            _S,
            "",
            "Makes the topic a delay topic. A message is moved to the topic of this name at the time of its "
            "header `penstock-deliver-at` (milliseconds since 1970), or at once without one. Needs "
            "retention.ms=-1 and retention.bytes=-1: messages that are not due must not be deleted.",
            left_out=Copies.MOUNT,
        ),
        ConfigKey(
            "penstock.delete.after.consumption",
            _B,
            False,
            "Whether records are deleted once all share groups of the topic have finished them. Without a "
            "share group nothing is deleted. Retention applies as well. Consumer groups are not considered.",
        ),
        ConfigKey(
            "penstock.delivery.delay.ms",
            _L,
            0,
            "The age that a batch must have, by its largest timestamp, before share groups receive its "
            "records. Other consumers receive them at once.",
            low=0,
        ),
        ConfigKey(
            "penstock.record.decompressed.bytes.max",
            _I,
            100 * _MIB,
            "The largest decompressed size of a compressed batch. A larger batch is refused. The broker "
            "never decompresses more than this.",
            low=1,
            synonyms=same_name("penstock.record.decompressed.bytes.max"),
        ),
        ConfigKey(
            "penstock.record.validation",
            _S,
            "records",
            "How thoroughly a batch is validated before it is stored. `header` checks the batch header "
            "and the checksum. `frame` also checks the first bytes of compressed records, and the "
            "decompressed size if it is declared. `records` also checks the structure of every record, as "
            "Apache Kafka does.",
            choices=("header", "frame", "records"),
            synonyms=same_name("penstock.record.validation"),
        ),
        ConfigKey(
            "preallocate",
            _B,
            False,
            "Whether a new segment's whole size is reserved on disk. The end of a log is the end of its "
            "file.",
            synonyms=log_name("preallocate"),
            without_effect=COMPATIBLE_ONLY,
        ),
        ConfigKey(
            "retention.bytes",
            _L,
            -1,
            "The size of a partition above which its oldest segments are deleted; -1 for no limit.",
            synonyms=log_name("retention.bytes"),
        ),
        ConfigKey(
            "retention.ms",
            _L,
            7 * _DAY_MS,
            "How long records are kept before their segment is deleted; -1 for ever.",
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
            "The size at which a new segment is started. Retention and compaction work on whole segments.",
            low=_MIB,
            synonyms=log_name("segment.bytes"),
        ),
        ConfigKey(
            "segment.index.bytes",
            _I,
            10 * _MIB,
            "The largest size of a segment's offset index; a full index starts a new segment.",
            low=4,
            synonyms=log_name("index.size.max.bytes"),
        ),
        ConfigKey(
            "segment.jitter.ms",
            _L,
            0,
            "The largest random part that is subtracted from segment.ms, so that segments do not all roll "
            "at the same time.",
            low=0,
            synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "segment.ms",
            _L,
            7 * _DAY_MS,
            "The age at which a new segment is started, even if the old one is not full.",
            low=1,
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            _B,
            False,
            "Whether an out-of-sync replica may lead if no other replica can. Records that it lacks are "
            "lost.",
            synonyms=same_name("unclean.leader.election.enable"),
            left_out=Copies.MIRROR,
        ),
        ConfigKey(
            "unclean.recovery.strategy",
            _S,
            "balanced",
            "How a leader is elected if no in-sync and no eligible replica is left (KIP-966). `balanced` "
            "elects the most complete replica once every registered broker with a replica has reported. "
            "`aggressive` elects the most complete replica among brokers that are up; records that only "
            "other brokers have are lost. `none` waits for an operator's election. "
            "unclean.leader.election.enable=true means `aggressive`.",
            choices=("none", "balanced", "aggressive"),
            synonyms=same_name("unclean.recovery.strategy"),
            left_out=Copies.MIRROR,
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
