"""The configs of archives: mounted backups, tiered storage, and their limits under Kafka's names."""

from __future__ import annotations

from penstock.model.config.keys import INT_MAX, LONG_MAX, ConfigKey, ConfigType, UpdateMode

__all__ = ["REMOTE_KEYS"]

_B, _S, _I, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG

REMOTE_KEYS = [
    ConfigKey(
        "penstock.mount",
        _S,
        None,
        "The backup that this broker serves, ARCHIVE or ARCHIVE@TIME. The broker is read-only and needs "
        "`penstock.memory`. `penstock up --mount ARCHIVE` sets both.",
    ),
    ConfigKey(
        "penstock.mount.store.config",
        _S,
        None,
        "A file with options of the object store of `penstock.mount`, one NAME=VALUE in a line.",
    ),
    ConfigKey(
        "penstock.mount.cache.bytes",
        _L,
        1 << 30,
        "The disk space for data that was read from `penstock.mount`. It is freed when the broker ends.",
        low=1 << 20,
    ),
    ConfigKey(
        "remote.log.reader.threads",
        _I,
        10,
        "Parallel reads of the archive of tiered storage, or of a mounted backup.",
        low=1,
    ),
    ConfigKey(
        "remote.log.reader.max.pending.tasks",
        _I,
        100,
        "Reads of an archive that may wait. Above it, fetches return no records of it.",
        low=1,
    ),
    ConfigKey(
        "remote.fetch.max.wait.ms",
        _I,
        500,
        "How long a fetch waits for an archive. The read goes on, and the next fetch has the records.",
        low=1,
        high=INT_MAX,
    ),
    ConfigKey(
        "remote.log.storage.system.enable",
        _B,
        False,
        "Whether topics may have `remote.storage.enable`: leaders copy their sealed segments to "
        "`penstock.remote.log.address`, and brokers free their disks by `local.retention.ms` and `.bytes`.",
    ),
    ConfigKey(
        "penstock.remote.log.address",
        _S,
        None,
        "The archive of tiered storage, the same for all brokers: a folder that all of them share, or "
        "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX.",
    ),
    ConfigKey(
        "penstock.remote.log.store.config",
        _S,
        None,
        "A file with options of the object store of `penstock.remote.log.address`, such as credentials, one "
        "NAME=VALUE in a line, instead of the environment.",
    ),
    ConfigKey(
        "penstock.remote.log.cache.bytes",
        _L,
        1 << 30,
        "The disk space, in the directory for temporary files, for data that was read from the archive of "
        "tiered storage. It is freed when the broker ends. With encryption at rest it is memory, and at most "
        "256 MiB.",
        low=1 << 20,
    ),
    ConfigKey(
        "remote.log.manager.task.interval.ms",
        _L,
        30_000,
        "How often leaders look for segments to copy.",
        low=1,
    ),
    ConfigKey(
        "remote.log.manager.copier.thread.pool.size",
        _I,
        2,
        "Parallel copies to the archive. Each takes up to 64 MiB of memory.",
        low=1,
    ),
    ConfigKey(
        "remote.log.manager.copy.max.bytes.per.second",
        _L,
        LONG_MAX,
        "The bytes per second that this broker copies to the archive. Every copy is also read once, to "
        "verify it.",
        low=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
]
