"""Features with levels: what this broker can do, so that a cluster raises a level only when all can.

`metadata.version` is Kafka's name for the level of the metadata records; clients use it to tell what a
cluster supports. `group.version` 1 stands for the consumer protocol of groups (KIP-848). Levels are Kafka's,
as far as we implement what they stand for.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INITIAL_FEATURES", "SUPPORTED_FEATURES"]

#: name to (lowest, highest) level that this broker can work at
SUPPORTED_FEATURES: Final = {"group.version": (0, 1), "metadata.version": (7, 30)}
#: what a new cluster starts with
INITIAL_FEATURES: Final = {"group.version": 1, "metadata.version": 30}
