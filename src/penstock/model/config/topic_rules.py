"""Checks of topic configs, and the names of the broker configs that topics inherit."""

from __future__ import annotations

import re

from penstock.model.config.keys import Synonym

__all__ = ["check_gzip_level", "check_throttled_replicas", "cleaner_name", "log_name", "same_name"]

_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def check_gzip_level(level: int) -> str | None:
    """The error of a gzip level; None if it is valid."""
    return (
        None if level == -1 or 1 <= level <= 9 else "must be between 1 and 9, or -1 for the codec's default"
    )


def check_throttled_replicas(replicas: tuple[str, ...]) -> str | None:
    """The error of a list of throttled replicas; None if it is valid."""
    if replicas == ("*",) or all(_REPLICA.fullmatch(replica) for replica in replicas):
        return None
    return "must be '*' or a list of PARTITION:BROKER pairs"


def same_name(name: str) -> tuple[Synonym, ...]:
    """The broker config has the name of the topic config."""
    return (Synonym(name),)


def log_name(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"log.{name}"),)


def cleaner_name(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"log.cleaner.{name}"),)
