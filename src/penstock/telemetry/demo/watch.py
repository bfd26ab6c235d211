"""The state of the demo as clients see it: the pipeline's metrics, the topics, and the brokers' metadata.

Nothing here is needed for the demo itself, so a process that does not respond is shown in its last known
state.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from penstock.telemetry.demo.show import PARTITIONS, Setting
from penstock.telemetry.message import TOPIC
from penstock.telemetry.pipeline.names import ALERTS, VERDICTS

__all__ = ["Sight", "Watcher", "read_metrics"]

_ANSWER_S: Final = 1.0
_ALERTS_SHOWN: Final = 8
#: rows per second are a mean over this time
_RATE_S: Final = 15.0
_PREFIX: Final = "penstock_pipeline_"

#: The state of the cluster: a row per broker, and under-replicated partitions; None without a response.
Overview: TypeAlias = Callable[[], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Sight:
    """All that is seen at one moment."""

    elapsed_s: float = 0.0
    cluster: Mapping[str, Any] | None = None
    produced: int = 0
    #: counts of messages by outcome; empty until the pipeline responds
    rows: Mapping[str, int] = field(default_factory=dict)
    rows_per_s: float = 0.0
    batch_id: int | None = None
    batch_s: float = 0.0
    #: None before the first valid sample
    freshness_s: float | None = None
    #: changes of alerts, the newest first, and how many are open
    alerts: tuple[Mapping[str, Any], ...] = ()
    open_alerts: int = 0
    #: of the pipeline's start, each with its time
    steps: tuple[str, ...] = ()

    @property
    def step(self) -> str:
        """The state of the pipeline before its first batch."""
        return self.steps[-1] if self.steps else "Spark is starting"

    @property
    def read(self) -> int:
        return sum(self.rows.values())

    @property
    def lag(self) -> int:
        return max(0, self.produced - self.read)


class Watcher:
    """Polls the state. `overview` returns the state of the brokers, which no client API has."""

    def __init__(
        self, setting: Setting, overview: Overview, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics_port = setting.metrics_port
        self._overview = overview
        self._clock = clock
        self._began_s = clock()
        self._last = Sight()
        #: (when, rows read by then)
        self._reads: deque[tuple[float, int]] = deque()
        #: (batches by then, their seconds together)
        self._batches = (0.0, 0.0)
        self._alerts: deque[Mapping[str, Any]] = deque(maxlen=_ALERTS_SHOWN)
        self._open: set[tuple[str, str]] = set()
        self._follows_alerts = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": setting.bootstrap,
                "group.id": "penstock-demo",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                # A broker may be killed for the sake of the show: its successors must be known soon.
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 2,
            }
        )

    def look(self) -> Sight:
        now_s = self._clock()
        seen = replace(
            self._last,
            elapsed_s=now_s - self._began_s,
            cluster=self._overview() or self._last.cluster,
            produced=self._ends() or self._last.produced,
        )
        metrics = read_metrics(self._metrics_port)
        if metrics:
            seen = self._measured(seen, metrics, now_s)
        self._follow_alerts(seen)
        self._last = replace(seen, alerts=tuple(self._alerts), open_alerts=len(self._open))
        return self._last

    def close(self) -> None:
        self._consumer.close()

    def _measured(self, seen: Sight, metrics: Mapping[str, float], now_s: float) -> Sight:
        rows = {verdict: int(metrics.get(f"rows_total/{verdict}", 0)) for verdict in VERDICTS}
        self._reads.append((now_s, sum(rows.values())))
        while now_s - self._reads[0][0] > _RATE_S:
            self._reads.popleft()
        (first_s, before), (last_s, after) = self._reads[0], self._reads[-1]
        count, seconds = metrics.get("batch_seconds_count", 0.0), metrics.get("batch_seconds_sum", 0.0)
        done = count - self._batches[0]
        batch_s = (seconds - self._batches[1]) / done if done > 0 else seen.batch_s
        self._batches = (count, seconds)
        freshness_s = metrics.get("freshness_seconds", math.nan)
        return replace(
            seen,
            rows=rows,
            rows_per_s=(after - before) / (last_s - first_s) if last_s > first_s else 0.0,
            batch_id=int(metrics["batch_id"]) if count else None,
            batch_s=batch_s,
            freshness_s=None if math.isnan(freshness_s) else freshness_s,
        )

    def _ends(self) -> int:
        """How many messages there are; 0 without an answer. The topic is new, so each log begins at 0."""
        try:
            ends = [
                self._consumer.get_watermark_offsets(TopicPartition(TOPIC, number), _ANSWER_S)
                for number in range(PARTITIONS)
            ]
        except KafkaException:
            return 0
        return sum(end[1] for end in ends if end is not None)

    def _follow_alerts(self, seen: Sight) -> None:
        if not self._follows_alerts:
            if not seen.read:
                # The pipeline makes the topic; it is there when something was read.
                return
            self._consumer.subscribe([ALERTS])
            self._follows_alerts = True
        while (message := self._consumer.poll(0)) is not None:
            if message.error() is None:
                self._take(msgspec.json.decode(message.value()))

    def _take(self, alert: Mapping[str, Any]) -> None:
        self._alerts.appendleft(alert)
        key = (alert["rule"], alert["subject"])
        if alert["state"] == "open":
            self._open.add(key)
        else:
            self._open.discard(key)


def read_metrics(port: int) -> dict[str, float]:
    """The pipeline's metrics, by name and verdict, without their prefix; empty while it does not respond."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, HTTPException):
        return {}
    finally:
        connection.close()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            verdict = sample.labels.get("verdict")
            name = sample.name.removeprefix(_PREFIX)
            found[f"{name}/{verdict}" if verdict else name] = float(sample.value)
    return found
