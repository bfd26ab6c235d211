"""The broker configs of the log of slow requests, of traces, and of the metrics that clients push."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType, UpdateMode

__all__ = ["TRACING_KEYS"]

_ENDPOINT: Final = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?", re.ASCII)


def _check_endpoint(text: str) -> str | None:
    return None if not text or _ENDPOINT.fullmatch(text) else "must be http://HOST:PORT or https://HOST:PORT"


TRACING_KEYS: list[ConfigKey] = [
    ConfigKey(
        "penstock.slow.request.ms",
        ConfigType.INT,
        1000,
        "Requests that take at least this long are logged as `request_slow`, with the time of each stage. "
        "The time for which a client lets Fetch wait, and a rebalance, do not count. -1: none are logged.",
        low=-1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "penstock.slow.request.events.per.minute.max",
        ConfigType.INT,
        60,
        "The most events `request_slow` per minute. The next event has the number of those left out.",
        low=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "penstock.otlp.endpoint",
        ConfigType.STRING,
        "",
        "The address of an OpenTelemetry receiver (OTLP over HTTP), such as `http://127.0.0.1:4318`. It gets "
        "spans of requests, and the metrics that clients push (KIP-714). Empty: nothing is exported.",
        check=_check_endpoint,
    ),
    ConfigKey(
        "penstock.otlp.headers",
        ConfigType.PASSWORD,
        None,
        "HTTP headers for the OpenTelemetry receiver: NAME=VALUE, comma-separated.",
    ),
    ConfigKey(
        "penstock.trace.requests.per.second",
        ConfigType.INT,
        1,
        "Requests per second that are sampled for spans. Slow requests have spans in any case. Only a broker "
        "with penstock.otlp.endpoint has spans.",
        low=0,
        high=1000,
    ),
    ConfigKey(
        "telemetry.max.bytes",
        ConfigType.INT,
        1 << 20,
        "The most bytes of metrics in one PushTelemetry request of a client (KIP-714), also uncompressed.",
        low=1,
    ),
]
