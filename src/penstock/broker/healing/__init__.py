"""Finds and repairs damaged replicas, and takes replicas in full or failed directories out of service.

Owns: the scrubber and its repair tasks, the comparison of replicas, the watch over data directories.
Imports: `broker.replica`, `broker.base`, and the packages `storage` and `replication`.
Used by: `broker.coordinators`, which loads a shard only after its log is repaired. `broker.app` composes it,
and passes `repair_soon` to `broker.replica`, which calls it for a replica that cannot serve its role.
"""
