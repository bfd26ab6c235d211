"""The common parts of group, transaction and share coordinators: shard, ledger, timers, outbox, partitioning.

A coordinator keeps its state in an internal topic. Each partition of the topic has a shard: a pure state
machine that decides on requests, writes records to a ledger, and replays the records of the log after a
restart.

Imports: `wire`. No I/O and no clock.
Used by: `groups` and the other coordinators, and by `broker.coordinators`, which runs shards over real logs.
"""
