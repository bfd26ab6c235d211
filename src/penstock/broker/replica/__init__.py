"""The replicas on this broker: partitions, roles, ISR changes, follower fetchers, flushing, data directories.

Owns the hosted partitions and their data directories. Imports `broker.base` and the packages below the broker
(storage, replication, metadata, net, wire). Called by node, healing, fetch, coordinators, produce, handlers
and the composition root.
"""
