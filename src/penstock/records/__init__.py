"""Kafka's record batch (magic 2): its header, its checksum, its records.

The broker reads headers only; records are decoded for compaction, for tools and for tests.

Imports: `ports`, `model`.
Used by: `storage`, `wire`, `raft`, the coordinators and the Spark source.
"""
