"""Cordoned data directories (KIP-1066): they keep their replicas and get no new ones.

An operator cordons a directory before its disk is taken away. The controller places no replicas on a broker
all of whose directories are cordoned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.model.config import BrokerConfig
from penstock.storage.directory import DataDirectory

__all__ = ["cordoned", "places"]

#: in the config: all directories
_ALL: Final = "*"


def cordoned(config: BrokerConfig, directories: Iterable[DataDirectory]) -> list[DataDirectory]:
    """The directories that the config cordons. Entries that are no data directory have no effect."""
    names = set(config.cordoned_log_dirs)
    return [each for each in directories if _ALL in names or each.path in names]


def places(config: BrokerConfig, counts: Mapping[DataDirectory, int]) -> dict[DataDirectory, int]:
    """The directories for new replicas, with the numbers of their logs.

    Directories that are full or have failed, and cordoned ones, are places only if there is no other.
    """
    closed = set(cordoned(config, counts))
    well = {each: number for each, number in counts.items() if each.health.is_well}
    return {each: number for each, number in well.items() if each not in closed} or well or dict(counts)
