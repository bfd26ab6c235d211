"""Cluster links: topics of another cluster, mirrored at the same offsets.

Owns: which topics and groups a link mirrors, the mirror of one partition, rules of committed offsets, ACLs
and quotas.
Imports: `model`, `quotas`, `records`, `replication`, `security`.
Used by: `broker.links`, which has the connections and the logs.
"""
