"""The short names of config files: sections `broker`, `cluster`, `storage`, `performance`, `replication`.

Each stands for one of Kafka's names, or is put together with others by `layers` (where to listen, who is in
the cluster), or is accepted without effect, for a reason that is told. Kafka's names may stand beside them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.units import Unit, plain
from penstock.model.errors import InvalidConfig

__all__ = [
    "BOOTSTRAP_SERVERS",
    "HOST",
    "INTERNAL_PORT_OFFSET",
    "PORT",
    "SECTIONS",
    "SECTION_KEYS",
    "SectionKey",
    "interpret",
    "nearest_name",
]

HOST: Final = "broker.host"
PORT: Final = "broker.port"
BOOTSTRAP_SERVERS: Final = "cluster.bootstrap_servers"
INTERNAL_PORT_OFFSET: Final = "cluster.internal_port_offset"

_SOCKET_BUFFER: Final = "the system sizes the buffers of each connection, and better"
_PRODUCERS: Final = "a producer's setting: batches are made before the broker sees them"


class SectionKey(NamedTuple):
    """A short name. `config` is what it sets; None where it has no effect, and `note` says why."""

    name: str
    config: str | None
    unit: Unit = Unit.NONE
    note: str = ""


_KEYS: Final = (
    SectionKey("broker.id", "node.id"),
    SectionKey(HOST, HOST, note="where to listen; `listeners` says it all where there is more than one"),
    SectionKey(PORT, PORT, note="where to listen"),
    SectionKey("broker.data_dir", "log.dirs"),
    SectionKey(
        BOOTSTRAP_SERVERS,
        BOOTSTRAP_SERVERS,
        note="all brokers, HOST:PORT for clients: the first is broker 1, the first five vote; together with "
        "`broker.id` this makes a cluster",
    ),
    SectionKey(
        INTERNAL_PORT_OFFSET,
        INTERNAL_PORT_OFFSET,
        note="brokers talk to each other at their port plus this (10000)",
    ),
    SectionKey("cluster.id", "penstock.cluster.id"),
    SectionKey("storage.segment_size", "log.segment.bytes", Unit.SIZE),
    SectionKey("storage.segment_time", "log.roll.ms", Unit.DURATION),
    SectionKey("storage.retention_time", "log.retention.ms", Unit.DURATION),
    SectionKey("storage.retention_size", "log.retention.bytes", Unit.SIZE, "of each partition"),
    SectionKey(
        "storage.fsync_interval",
        "penstock.flush.interval.ms",
        Unit.DURATION,
        "while `penstock.flush` is `interval`, as it is by default",
    ),
    SectionKey("performance.max_connections", "max.connections"),
    SectionKey("performance.socket_send_buffer", None, Unit.SIZE, _SOCKET_BUFFER),
    SectionKey("performance.socket_receive_buffer", None, Unit.SIZE, _SOCKET_BUFFER),
    SectionKey(
        "performance.max_message_size",
        "message.max.bytes",
        Unit.SIZE,
        "of a batch, as it is after compression",
    ),
    SectionKey("performance.batch_size", None, Unit.SIZE, _PRODUCERS),
    SectionKey("performance.linger_time", None, Unit.DURATION, _PRODUCERS),
    SectionKey("replication.default_replication_factor", "default.replication.factor"),
    SectionKey("replication.min_insync_replicas", "min.insync.replicas"),
    SectionKey("replication.replica_lag_time_max", "replica.lag.time.max.ms", Unit.DURATION),
    SectionKey(
        "replication.replica_lag_records_max",
        None,
        note="a burst of records would put healthy replicas out of sync (Kafka dropped it, too: KIP-16); "
        "`replica_lag_time_max` finds the slow ones",
    ),
)
SECTION_KEYS: Final = {key.name: key for key in _KEYS}
SECTIONS: Final = frozenset(key.name.partition(".")[0] for key in _KEYS)


def interpret(name: str, text: str) -> tuple[str, str] | None:
    """What a setting by either kind of name says, as a config and its value; None where it has no effect.

    Raises InvalidConfig for an unknown name, and for a size or duration that is none.
    """
    key = SECTION_KEYS.get(name)
    if key is None:
        if name not in BROKER_KEYS:
            raise InvalidConfig(f"Unknown broker config name: {name}{nearest_name(name)}")
        return name, text
    try:
        value = plain(text, key.unit)
    except InvalidConfig as error:
        raise InvalidConfig(f"{name}: {error}") from None
    return None if key.config is None else (key.config, value)


def nearest_name(name: str) -> str:
    """A hint at the setting that was meant; empty where none is near."""
    from difflib import get_close_matches  # only a mistake pays for the import

    nearest = get_close_matches(name, [*SECTION_KEYS, *BROKER_KEYS], n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""
