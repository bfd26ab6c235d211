"""The archived part of logs, as brokers read it: ranged reads with read-ahead, and a bounded cache on disk.

`chunks`, `residency` and `read_ahead` decide and do no I/O. `cache` has the files, `loading` the tasks,
`partition` is the `RemoteTier` of one log. The event loop's thread owns all of it; worker threads verify,
rewrite and write chunks.

Imports: `archive`, `storage`, `records`, `ports` and `model`.
Used by: the broker's metrics, and backups that are mounted.
"""
