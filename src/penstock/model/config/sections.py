"""The short names of config files: sections `broker`, `cluster`, `storage`, `performance`, `replication`.

Each sets one of Kafka's configs, or is combined with others by `layers` (where to listen, which brokers are
in the cluster), or is refused with a reason that names the setting to use instead. Kafka's names may stand
beside them. A file may contain refused settings: the broker starts without them and logs the reason.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.foreign_keys import reason_to_ignore
from penstock.model.config.listener_names import listener_name, nearest_listener_name
from penstock.model.config.units import Unit, plain
from penstock.model.errors import InvalidConfig

__all__ = [
    "BOOTSTRAP_SERVERS",
    "HOST",
    "INTERNAL_PORT_OFFSET",
    "PORT",
    "SECTION_KEYS",
    "SectionKey",
    "interpret",
    "nearest_name",
]

HOST: Final = "broker.host"
PORT: Final = "broker.port"
BOOTSTRAP_SERVERS: Final = "cluster.bootstrap_servers"
INTERNAL_PORT_OFFSET: Final = "cluster.internal_port_offset"


class SectionKey(NamedTuple):
    """A short name. `config` is the config that it sets, or None if it is refused: `note` has the reason."""

    name: str
    config: str | None
    unit: Unit = Unit.NONE
    note: str = ""


_KEYS: Final = (
    SectionKey("broker.id", "node.id"),
    SectionKey(HOST, HOST, note="address to listen on; use `listeners` for several listeners"),
    SectionKey(PORT, PORT, note="port to listen on"),
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
        note="the port for connections between brokers is the client port plus this (10000)",
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
    SectionKey("performance.socket_send_buffer", "socket.send.buffer.bytes", Unit.SIZE),
    SectionKey("performance.socket_receive_buffer", "socket.receive.buffer.bytes", Unit.SIZE),
    SectionKey(
        "performance.max_message_size",
        "message.max.bytes",
        Unit.MESSAGE_SIZE,
        "the largest message value; the limit of a batch is 1/64 and 1 KB more, for key, headers and framing",
    ),
    SectionKey(
        "performance.batch_size",
        None,
        Unit.SIZE,
        "producers make the batches: pass `batch_size` to `Producer`, or set `batch.size` of another client",
    ),
    SectionKey(
        "performance.linger_time",
        None,
        Unit.DURATION,
        "producers gather the batches: pass `linger` to `Producer`, or set `linger.ms` of another client",
    ),
    SectionKey("replication.default_replication_factor", "default.replication.factor"),
    SectionKey("replication.min_insync_replicas", "min.insync.replicas"),
    SectionKey("replication.replica_lag_time_max", "replica.lag.time.max.ms", Unit.DURATION),
    SectionKey(
        "replication.replica_lag_records_max",
        None,
        note="a burst of records would remove healthy replicas from the ISR (Kafka removed it for that, "
        "KIP-16): set `replication.replica_lag_time_max`, the lag in time",
    ),
)
SECTION_KEYS: Final = {key.name: key for key in _KEYS}


def interpret(name: str, text: str) -> tuple[str, str] | None:
    """The config and the value that a setting by either kind of name stands for; None if it is refused.

    Raises InvalidConfig for an unknown name, and for a size or duration that is none.
    """
    key = SECTION_KEYS.get(name)
    if key is None:
        if name not in BROKER_KEYS and listener_name(name) is None:
            reason = reason_to_ignore(name, text)
            if reason is not None:
                raise InvalidConfig(f"{name} has no effect: {reason}. Leave it out")
            raise InvalidConfig(f"Unknown broker config name: {name}{nearest_name(name)}")
        return name, text
    try:
        value = plain(text, key.unit)
    except InvalidConfig as error:
        raise InvalidConfig(f"{name}: {error}") from None
    return None if key.config is None else (key.config, value)


def nearest_name(name: str) -> str:
    """A hint at the setting that was meant; empty where none is near."""
    of_listener = nearest_listener_name(name)
    if of_listener is not None:
        return f"; did you mean {of_listener}?"
    from difflib import get_close_matches  # only a mistake pays for the import

    nearest = get_close_matches(name, [*SECTION_KEYS, *BROKER_KEYS], n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""
