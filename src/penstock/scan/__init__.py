"""Reads ranges of archived partitions directly from the object store, without a broker (ADR 118).

`parts` says what is read of a partition, and can be sent to other processes. `partition` goes through the
segments of a part: what is read of which one, and which transactions are hidden. `tiers` finds what leaders
have copied, `moments` the cuts of backups. `place` opens the store of an address, `blocking` is for callers
without an event loop: it reads ahead while they work.

Imports: `remote`, `objectstore`, `archive`, `storage`, `encryption`, `records`, `ports` and `model`.
Used by: `spark`.
"""
