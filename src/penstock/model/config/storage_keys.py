"""The broker configs of data directories, retention, recovery and compaction."""

from __future__ import annotations

from penstock.model.config.encryption_keys import ENCRYPTION_KEYS
from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    UpdateMode,
    not_empty,
)

_B, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE

#: the free share of a volume below which it is low on space, by default
DISK_FREE_MIN = 0.2

STORAGE_KEYS: list[ConfigKey] = [
    ConfigKey(
        "log.dir",
        _LIST,
        ("penstock-data",),
        "The data directory, if log.dirs is not set.",
        check=not_empty,
    ),
    ConfigKey("log.dirs", _LIST, None, "The data directories, comma-separated.", check=not_empty),
    ConfigKey(
        "cordoned.log.dirs",
        _LIST,
        (),
        "Data directories that get no new replicas (KIP-1066), as they are named in log.dirs or log.dir; `*` "
        "for all. The controller places none on a broker all of whose directories are cordoned.",
        update_mode=UpdateMode.PER_BROKER,
    ),
    ConfigKey(
        "penstock.disk.free.min.ratio",
        _D,
        DISK_FREE_MIN,
        "A broker is Degraded (`disk_low`), and `PenstockDiskSpaceLow` fires, if the free share of a data "
        "directory's volume is below this, and the free bytes are below `penstock.disk.free.min.bytes`. "
        "0: no free space is too little.",
        low=0,
        high=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.disk.free.min.bytes",
        _L,
        LONG_MAX,
        "This many free bytes are enough, whatever share of the volume they are: for large volumes, and for "
        "those of which other programs use the most. By default, the share alone decides.",
        low=0,
        update_mode=_CLUSTER,
    ),
    *ENCRYPTION_KEYS,
    ConfigKey("log.retention.check.interval.ms", _L, 300_000, "How often retention is applied.", low=1),
    ConfigKey(
        "log.initial.task.delay.ms",
        _L,
        30_000,
        "Delay of the first retention and compaction pass. The first pass runs after one interval.",
        low=0,
        internal=True,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "How often recovery points are written to the checkpoint file.",
        low=0,
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "How often log start offsets are written to the checkpoint file. They are written with the "
        "recovery points.",
        low=0,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        _L,
        30_000,
        "How long a broker runs with a failed data directory that the controller does not know of.",
        low=1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        _I,
        2,
        "Logs that are recovered concurrently per data directory.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey("log.cleaner.enable", _B, True, "Whether compaction runs."),
    ConfigKey("log.cleaner.threads", _I, 1, "Concurrent compactions.", low=0, update_mode=_CLUSTER),
    ConfigKey(
        "log.cleaner.backoff.ms",
        _L,
        15_000,
        "The pause if no log is due for compaction.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        _L,
        134217728,
        "Memory for the keys of all compactions.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        _I,
        524288,
        "The size of read and write buffers. Compaction reads whole batches.",
        low=0,
        update_mode=_CLUSTER,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        _D,
        0.9,
        "How full the memory for keys may get. Compaction fills it.",
        update_mode=_CLUSTER,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        _D,
        1.7976931348623157e308,
        "The disk traffic of compaction, reads and writes together.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        _I,
        86_400_000,
        "The state of an idempotent producer that wrote nothing for this long is removed.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _I,
        600_000,
        "How often expired producer state is removed.",
        low=1,
        internal=True,
    ),
]
