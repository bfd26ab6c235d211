"""Streams groups (KIP-1071): the group protocol of Kafka Streams.

Imports: the ledger and the interface of groups of `groups`, and what `groups` may import.
Used by: the group shard.
"""
