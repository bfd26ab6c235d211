"""Metrics that clients push (KIP-714): subscriptions, client instances, and what is kept of the metrics.

Pure: requests in, error codes out. Everything that clients choose is bounded: the instances, the names of
metrics, and the values, of which only totals over all clients are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from penstock.model.config import CLIENT_METRICS_KEYS
from penstock.model.config.keys import as_integer, as_strings
from penstock.model.errors import ErrorCode
from penstock.observability.otlp import ClientMetric

__all__ = [
    "INSTANCES_MAX",
    "ClientAggregates",
    "ClientInstance",
    "ClientInstances",
    "Subscription",
    "subscriptions_of",
]

#: Kafka's bound of the instances that a broker knows
INSTANCES_MAX: Final = 16_384
#: names of metrics that are kept
NAMES_MAX: Final = 500
_NAME: Final = re.compile(r"[a-z][a-z0-9._\-]{0,199}", re.ASCII)
_EVERYTHING: Final = "*"
#: the characters of an attribute that patterns see: a client may name itself with 32,767
_MATCHED_MAX: Final = 255
_DEFAULT_INTERVAL_MS: Final = 300_000
#: for how long an instance is known after its last request, at least
_EXPIRY_MS: Final = 60_000
_NO_ID: Final = bytes(16)
#: ids that no client has: zero and Kafka's id of the metadata topic
RESERVED: Final = (_NO_ID, bytes(15) + b"\x01")


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    #: patterns of the whole value, by the attribute of the client
    match: Mapping[str, Any]

    def matches(self, client: Mapping[str, str]) -> bool:
        return all(
            pattern is not None and pattern.fullmatch(client.get(name, "")[:_MATCHED_MAX]) is not None
            for name, pattern in self.match.items()
        )


def subscriptions_of(
    configs: Iterable[Mapping[str, str]], compile_pattern: Callable[[str], Any]
) -> list[Subscription]:
    """The subscriptions of the cluster. `compile_pattern` returns None for a pattern that matches nothing."""
    found = []
    for texts in configs:
        values = {
            name: key.parse(texts[name]) if name in texts else key.default
            for name, key in CLIENT_METRICS_KEYS.items()
        }
        pairs = (each.partition("=") for each in as_strings(values["match"]))
        match = {name.strip(): compile_pattern(pattern.strip()) for name, _, pattern in pairs}
        metrics, interval_ms = as_strings(values["metrics"]), as_integer(values["interval.ms"])
        found.append(Subscription(tuple(metrics), interval_ms, match))
    return found


class ClientInstance:
    """The state of one client instance."""

    __slots__ = (
        "error",
        "generation",
        "id",
        "interval_ms",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "subscription_id",
        "terminating",
        "used_ms",
    )

    def __init__(self, id_: bytes, generation: int, metrics: Iterable[str], interval_ms: int) -> None:
        self.id = id_
        self.generation = generation
        self.metrics = sorted(metrics)
        self.interval_ms = interval_ms
        text = f"{self.metrics}{interval_ms}".encode() + id_
        self.subscription_id = crc32(text) - (1 << 31)
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.terminating = False
        self.error = ErrorCode.NONE
        self.used_ms = 0

    def may_get(self, now_ms: int) -> bool:
        last = max((t for t in (self.last_get_ms, self.last_push_ms) if t is not None), default=None)
        if last is not None and now_ms - last < self.interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Like Kafka, accept a push right after GetTelemetrySubscriptions: clients add jitter."""
        get, push = self.last_get_ms, self.last_push_ms
        accepted = push is None or (get is not None and get > push) or now_ms - push >= self.interval_ms
        if accepted:
            self.last_push_ms = now_ms
        return accepted


class ClientInstances:
    """The instances of clients that fetch subscriptions and push metrics, and the rules of both requests."""

    def __init__(self, token: Callable[[int], bytes], limit: int = INSTANCES_MAX) -> None:
        self._token = token
        self._limit = limit
        self._subscriptions: list[Subscription] = []
        self._generation = 0
        #: from the one that was used longest ago
        self._instances: dict[bytes, ClientInstance] = {}

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    def update(self, subscriptions: list[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._generation += 1

    def get(
        self, id_: bytes, client: Mapping[str, str], now_ms: int
    ) -> tuple[ErrorCode, ClientInstance | None]:
        """GetTelemetrySubscriptions: the instance, which is new if `id_` is zero."""
        instance = self._instance(id_ if id_ != _NO_ID else self._token(16), client, now_ms)
        renews = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if not instance.may_get(now_ms) and instance.error not in renews:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, None
        instance.error = ErrorCode.NONE
        return ErrorCode.NONE, instance

    def check_push(
        self, id_: bytes, subscription_id: int, terminating: bool, client: Mapping[str, str], now_ms: int
    ) -> tuple[ErrorCode, ClientInstance | None]:
        """PushTelemetry without a look at the metrics."""
        if id_ in RESERVED:
            return ErrorCode.INVALID_REQUEST, None
        instance = self._instance(id_, client, now_ms)
        if instance.terminating:
            error = ErrorCode.INVALID_REQUEST
        elif not instance.may_push(now_ms) and not terminating:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif not instance.metrics or subscription_id != instance.subscription_id:
            # Without a subscription no metrics were requested. Kafka's clients do not push then.
            error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        else:
            error = ErrorCode.NONE
        instance.terminating = terminating
        instance.error = error
        return error, instance

    def _instance(self, id_: bytes, client: Mapping[str, str], now_ms: int) -> ClientInstance:
        instance = self._instances.pop(id_, None)
        if instance is None or instance.generation != self._generation:
            instance = self._new_instance(id_, {**client, "client_instance_id": id_text(id_)})
        instance.used_ms = now_ms
        self._instances[id_] = instance
        self._expire(now_ms)
        return instance

    def _new_instance(self, id_: bytes, client: Mapping[str, str]) -> ClientInstance:
        interval_ms, metrics = _DEFAULT_INTERVAL_MS, set[str]()
        for subscription in self._subscriptions:
            if subscription.matches(client):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        return ClientInstance(
            id_, self._generation, [_EVERYTHING] if _EVERYTHING in metrics else metrics, interval_ms
        )

    def _expire(self, now_ms: int) -> None:
        """Forget instances that are not used any more; and the one used longest ago if there are too many."""
        while self._instances:
            id_, oldest = next(iter(self._instances.items()))
            lives_ms = max(_EXPIRY_MS, 3 * oldest.interval_ms)
            if len(self._instances) <= self._limit and now_ms - oldest.used_ms < lives_ms:
                return
            del self._instances[id_]


def id_text(id_: bytes) -> str:
    """A client instance id as Kafka writes uuids."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(id_).decode().rstrip("=")


class _Gauge:
    """Values of one metric in this window and in the one before."""

    __slots__ = ("before", "count", "largest", "total")

    def __init__(self) -> None:
        self.before: tuple[float, float] | None = None
        self.turn()

    def turn(self) -> None:
        self.count, self.total, self.largest = 0, 0.0, 0.0


class ClientAggregates:
    """Totals over all clients: sums since the start, and gauges over the pushes of the last minutes."""

    def __init__(self, window_ms: int = 60_000) -> None:
        self._window_ms = window_ms
        self._window_began_ms = 0
        #: delta sums since the start; they never fall
        self.sums: dict[str, float] = {}
        self._gauges: dict[str, _Gauge] = {}
        #: metrics that were left out: their names are invalid, or there are too many names
        self.left_out = 0

    def add(self, metrics: Iterable[ClientMetric], now_ms: int) -> None:
        self._turn(now_ms)
        for metric in metrics:
            if not self._is_kept(metric.name):
                self.left_out += 1
            elif metric.is_delta:
                self.sums[metric.name] = self.sums.get(metric.name, 0.0) + max(0.0, metric.total)
            else:
                gauge = self._gauges.setdefault(metric.name, _Gauge())
                gauge.largest = max(gauge.largest, metric.largest) if gauge.count else metric.largest
                gauge.count += 1
                gauge.total += metric.largest

    def gauges(self, now_ms: int) -> Iterator[tuple[str, float, float]]:
        """(name, mean, largest) over the clients that have pushed in this window or the one before."""
        self._turn(now_ms)
        for name, gauge in self._gauges.items():
            if gauge.before is not None:
                yield name, *gauge.before
            elif gauge.count:
                yield name, gauge.total / gauge.count, gauge.largest

    def _is_kept(self, name: str) -> bool:
        if name in self.sums or name in self._gauges:
            return True
        return len(self.sums) + len(self._gauges) < NAMES_MAX and _NAME.fullmatch(name) is not None

    def _turn(self, now_ms: int) -> None:
        """Begin a new window when this one is over. A metric that no client has pushed in it ends."""
        passed = now_ms - self._window_began_ms
        if 0 <= passed < self._window_ms:
            return
        self._window_began_ms = now_ms
        for name, gauge in list(self._gauges.items()):
            if not gauge.count or passed >= 2 * self._window_ms:
                del self._gauges[name]
            else:
                gauge.before = (gauge.total / gauge.count, gauge.largest)
                gauge.turn()
