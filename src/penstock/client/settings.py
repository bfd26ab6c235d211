"""Our arguments under librdkafka's names. Nothing here talks to anyone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from penstock.client.errors import MisusedClient
from penstock.client.partitioners import LIBRDKAFKA_NAMES, KeyHash
from penstock.model.sizes import batch_bytes

__all__ = [
    "Acks",
    "Compression",
    "DeliveryMode",
    "Protocol",
    "check_delivery",
    "check_threshold",
    "consumer_config",
    "producer_config",
    "security_of",
    "transactional_config",
]

Acks: TypeAlias = Literal[0, 1, -1, "all"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
DeliveryMode: TypeAlias = Literal["at_most_once", "at_least_once", "exactly_once"]
Protocol: TypeAlias = Literal["consumer", "classic"]


#: the largest batch of librdkafka's defaults, within the limit that brokers have by default
_BATCH_LIMIT: Final = 1_000_000


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
    max_message_size: int,
    key_hash: KeyHash,
    delivery_timeout: float,
    client_id: str,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Idempotence is on unless it was declined or cannot be: it needs acks of all replicas, and retries.

    A value of `max_message_size` bytes fits, with its key and headers. Batches of several messages stay below
    the limit that brokers have by default.
    """
    possible = acks in ("all", -1) and retries != 0
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
        "batch.size": min(batch_size, max(max_message_size, _BATCH_LIMIT)),
        "message.max.bytes": batch_bytes(max_message_size),
        "compression.type": compression,
        "message.timeout.ms": _milliseconds(delivery_timeout),
        "partitioner": LIBRDKAFKA_NAMES[key_hash],
        "socket.keepalive.enable": True,
        "log_level": 2,
    }
    if retries is not None:
        settings["retries"] = retries
    return settings | dict(config)


def transactional_config(
    settings: Mapping[str, Any], transactional_id: str | None, timeout: float, threshold: int
) -> dict[str, Any]:
    """The settings of a producer, extended if it has a transactional id.

    A message must not wait for longer than its transaction may last.
    """
    if transactional_id is None:
        return dict(settings)
    if not transactional_id:
        raise MisusedClient("transactional_id is empty: pass a name that no other running producer has")
    if not settings["enable.idempotence"]:
        raise MisusedClient("transactions need idempotence: leave acks, retries and idempotence out")
    if threshold:
        raise MisusedClient("compression_threshold does not work with transactions: leave one of them out")
    timeout_ms = _milliseconds(timeout)
    return {
        **settings,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": min(settings["message.timeout.ms"], timeout_ms),
    }


def check_threshold(threshold: int, compression: Compression, acks: Acks) -> None:
    """Raise MisusedClient if a compression threshold makes no sense with these settings."""
    if threshold and compression == "none":
        raise MisusedClient("compression_threshold needs a codec: pass compression, for example 'zstd'")
    if threshold and acks == 0:
        raise MisusedClient(
            "compression_threshold needs acknowledgements to keep the order: use acks=1 or 'all'"
        )


def check_delivery(
    delivery: str, auto_commit: bool, commit_interval: float, transaction_timeout: float
) -> None:
    """Raise MisusedClient if a consumer cannot deliver in this mode with these settings."""
    if delivery not in ("at_most_once", "at_least_once", "exactly_once"):
        raise MisusedClient(f"delivery={delivery!r} must be at_most_once, at_least_once or exactly_once")
    if delivery == "at_most_once" and not auto_commit:
        raise MisusedClient("at_most_once commits before delivery: leave auto_commit on")
    if delivery == "exactly_once" and not auto_commit:
        raise MisusedClient("exactly_once commits in transactions: leave auto_commit on")
    if delivery == "exactly_once" and transaction_timeout < 2 * commit_interval:
        raise MisusedClient(
            f"transaction_timeout={transaction_timeout:g} must be at least twice commit_interval="
            f"{commit_interval:g}"
        )


_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.ca.", "oauth")


def security_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The security settings in `settings`, for another client of the same cluster."""
    return {k: v for k, v in settings.items() if k.startswith(_SECURITY)}


def consumer_config(
    bootstrap: str,
    *,
    group: str,
    protocol: Protocol | None,
    reset: str,
    auto_commit: bool,
    commit_interval: float,
    session_timeout: float | None,
    heartbeat_interval: float | None,
    fetch_min_bytes: int | None,
    fetch_max_wait: float | None,
    client_id: str,
    instance_id: str | None,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Offsets are stored by us when messages are done, and committed by librdkafka if `auto_commit`."""
    member = {"session.timeout.ms": session_timeout, "heartbeat.interval.ms": heartbeat_interval}
    protocol = _protocol(protocol, member)
    times = {**member, "fetch.wait.max.ms": fetch_max_wait}
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": reset,
        "enable.auto.commit": auto_commit,
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": _milliseconds(commit_interval),
        # Like Java's consumers: the broker decides whether a subscribed topic is created automatically.
        "allow.auto.create.topics": True,
        "socket.keepalive.enable": True,
        "log_level": 2,
        **{name: _milliseconds(seconds) for name, seconds in times.items() if seconds is not None},
    }
    if fetch_min_bytes is not None:
        settings["fetch.min.bytes"] = fetch_min_bytes
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    return settings | dict(config)


def _protocol(protocol: Protocol | None, member: Mapping[str, float | None]) -> Protocol:
    """The group protocol: members choose their own timeouts in the classic one only."""
    chosen = [name for name, seconds in member.items() if seconds is not None]
    if protocol == "consumer" and chosen:
        raise MisusedClient(
            f"{chosen[0]} is a group config in protocol='consumer': leave protocol out, or set the group "
            f"config "
            f"consumer.{chosen[0]}"
        )
    return protocol or ("classic" if chosen else "consumer")
