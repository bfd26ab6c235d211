"""The rules of replication: leader, follower and in-sync replicas, without I/O.

Times are milliseconds of one monotonic clock and are passed in. Actions to send, append or truncate are
returned as values, and the caller reports their results.

Imports: `records`, `model`.
Used by: `broker.replica` and `broker.fetch`, which act on the decisions.
"""
