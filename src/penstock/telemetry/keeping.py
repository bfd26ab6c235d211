"""Checks that a topic keeps a collector's samples: a recording may be older than the topic's retention.

Retention uses the timestamps of records. With `message.timestamp.type=CreateTime`, Kafka's default, these are
the times of samples: a cluster deletes samples of last month within minutes of acknowledging them. Collectors
create their topic with LogAppendTime, so that retention counts from the arrival of a sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from penstock.telemetry.message import format_timestamp

__all__ = ["TOPIC_CONFIGS", "KeepingWatch", "why_not_kept"]

#: of the topics that collectors create
TOPIC_CONFIGS: Final = {"message.timestamp.type": "LogAppendTime"}
_HOUR_MS: Final = 3_600_000


def why_not_kept(topic: str, configs: Mapping[str, str], sample_ms: int, now_ms: int) -> str | None:
    """A warning for a sample of this time, with the remedy; None if the topic keeps it."""
    policies = [policy.strip() for policy in configs.get("cleanup.policy", "delete").split(",")]
    if "compact" in policies:
        return (
            f"topic {topic} is compacted (cleanup.policy={configs['cleanup.policy']}), and samples have "
            f"their GPU as key: it will keep one sample of each GPU. Set cleanup.policy=delete"
        )
    retention_ms = int(configs.get("retention.ms", "-1"))
    is_by_arrival = configs.get("message.timestamp.type") == "LogAppendTime"
    if is_by_arrival or retention_ms < 0 or sample_ms >= now_ms - retention_ms:
        return None
    return (
        f"topic {topic} keeps records for {retention_ms / _HOUR_MS:g} h by their own time, and samples of "
        f"{format_timestamp(sample_ms)} are older: it will delete them soon after they are acknowledged. Set "
        f"message.timestamp.type=LogAppendTime or a longer retention.ms, or replay with --restamp"
    )


class KeepingWatch:
    """Gets the times of sent samples; warns once, of the first that the topic will not keep."""

    def __init__(
        self,
        topic: str,
        configs: Mapping[str, str],
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topic = topic
        self._configs = configs
        self._warn = warn
        self._clock = clock
        self.warning: str | None = None

    def __call__(self, sample_ms: int) -> None:
        if self.warning is None:
            self.warning = why_not_kept(self._topic, self._configs, sample_ms, int(self._clock() * 1000))
            if self.warning is not None:
                self._warn(self.warning)
