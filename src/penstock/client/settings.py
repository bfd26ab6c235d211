"""Our arguments under librdkafka's names. Nothing here talks to anyone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from penstock.client.errors import MisusedClient

__all__ = ["Acks", "Compression", "Protocol", "consumer_config", "producer_config", "security_of"]

Acks: TypeAlias = Literal[0, 1, "all"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Protocol: TypeAlias = Literal["consumer", "classic"]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def producer_config(
    bootstrap: str,
    *,
    acks: Acks,
    idempotence: bool | None,
    retries: int | None,
    retry_backoff: float,
    linger: float,
    batch_size: int,
    compression: Compression,
    delivery_timeout: float,
    client_id: str,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Idempotence is on unless it was declined or cannot be: it needs every replica's word, and retries."""
    possible = acks == "all" and retries != 0
    if idempotence and not possible:
        raise MisusedClient(
            "idempotence needs acks='all' and retries: change those, or pass idempotence=False"
        )
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "acks": acks,
        "enable.idempotence": possible if idempotence is None else idempotence,
        "retry.backoff.ms": _milliseconds(retry_backoff),
        "retry.backoff.max.ms": _milliseconds(max(1.0, retry_backoff * 10)),
        "linger.ms": _milliseconds(linger),
        "batch.size": batch_size,
        "compression.type": compression,
        "message.timeout.ms": _milliseconds(delivery_timeout),
        # The hash of Java's clients, and like theirs no hash for messages without a key.
        "partitioner": "murmur2_random",
        "log_level": 2,
    }
    if retries is not None:
        settings["retries"] = retries
    return settings | dict(config)


def security_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What another client needs of `settings` to be let in to the same cluster."""
    return {k: v for k, v in settings.items() if k.startswith(("security.", "sasl.", "ssl.", "oauth"))}


def consumer_config(
    bootstrap: str,
    *,
    group: str,
    protocol: Protocol,
    reset: str,
    auto_commit: bool,
    commit_interval: float,
    client_id: str,
    instance_id: str | None,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Offsets are stored by us when messages are done, and committed by librdkafka if `auto_commit`."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": reset,
        "enable.auto.commit": auto_commit,
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": _milliseconds(commit_interval),
        # As Java's consumers ask: whether a topic that is subscribed to comes to be is for the broker to say.
        "allow.auto.create.topics": True,
        "log_level": 2,
    }
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    return settings | dict(config)
