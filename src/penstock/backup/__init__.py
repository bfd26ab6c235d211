"""Backups of any Kafka cluster to an archive, and restores from it.

The process speaks the wire protocol to brokers, and `penstock.ports.ObjectStore` to the store. The decisions
are in `penstock.archive`.
"""
