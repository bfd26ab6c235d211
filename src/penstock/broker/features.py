"""Features with levels: what this broker can do, so that a cluster raises a level only when all can.

`metadata.version` is Kafka's name for the level of the metadata records; clients use it to tell what a
cluster supports. `group.version` 1 stands for the consumer protocol of groups (KIP-848). Levels of both are
Kafka's, as far as we implement what they stand for. `penstock.version` is ours: 1 stands for the fields that
our brokers add to Kafka's messages among themselves (docs/internals/node.md), which whoever does not know
them skips; what older brokers would not skip waits for a level of its own.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INITIAL_FEATURES", "SUPPORTED_FEATURES"]

#: name to (lowest, highest) level that this broker can work at
SUPPORTED_FEATURES: Final = {"group.version": (0, 1), "metadata.version": (7, 30), "penstock.version": (0, 1)}
#: what a new cluster starts with
INITIAL_FEATURES: Final = {"group.version": 1, "metadata.version": 30, "penstock.version": 1}
