"""The broker configs of listeners, connections and requests."""

from __future__ import annotations

from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    INT_MAX,
    INTERNAL_LISTENER,
    ConfigKey,
    ConfigType,
    UpdateMode,
    not_empty,
)

_S, _I, _L, _LIST = (
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE

NETWORK_KEYS: list[ConfigKey] = [
    ConfigKey(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        "The addresses that the broker listens on: NAME://HOST:PORT, comma-separated. Without a host, "
        "every interface; port 0 is any free port.",
        check=not_empty,
    ),
    ConfigKey(
        "advertised.listeners",
        _LIST,
        None,
        "The addresses that the broker advertises to clients, by listener name, if they differ from "
        "`listeners`.",
        check=not_empty,
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _S,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name. PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    ConfigKey("inter.broker.listener.name", _S, None, "The listener for connections between brokers."),
    ConfigKey(
        "security.inter.broker.protocol",
        _S,
        "PLAINTEXT",
        "The security protocol between brokers, if inter.broker.listener.name is not set.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        without_effect=INTERNAL_LISTENER,
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        _I,
        -1,
        "SO_SNDBUF of accepted connections. With -1 the operating system adapts the buffer to each "
        "connection; Kafka's default is 102400.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        _I,
        -1,
        "SO_RCVBUF of accepted connections. With -1 the operating system adapts the buffer to each "
        "connection; Kafka's default is 102400.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _I,
        104857600,
        "The largest request. A larger one closes its connection.",
        low=1,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        _I,
        4096,
        "Connections that may wait to be accepted; the operating system may lower it. With Kafka's "
        "default of 50, clients that connect at the same moment wait for a second and more.",
        low=1,
    ),
    ConfigKey(
        "max.connections",
        _I,
        INT_MAX,
        "The most open connections of clients. `listener.name.NAME.max.connections` limits one listener. "
        "More connections wait until others are closed, as many as socket.listen.backlog.size. The internal "
        "listener has no limit but its own.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "max.connections.per.ip",
        _I,
        INT_MAX,
        "The most open connections per client address.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        _S,
        "",
        "Exceptions from max.connections.per.ip: ADDRESS:COUNT, comma-separated.",
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        _I,
        INT_MAX,
        "New connections of clients per second. `listener.name.NAME.max.connection.creation.rate` limits one "
        "listener. Connections above the rate are served later.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _L,
        600_000,
        "A connection that is idle for longer is closed; -1 for never.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _L,
        -1,
        "Memory for requests that are being read or are waiting, over all connections. Reading pauses "
        "while it is used up. -1 lets the broker choose.",
    ),
    ConfigKey(
        "penstock.queued.max.request.bytes.per.ip",
        _L,
        -1,
        "The part of queued.max.request.bytes that requests from one client address may use. Reading "
        "from that address pauses while it is used up. -1 stands for half.",
    ),
    ConfigKey(
        "penstock.request.read.timeout.ms",
        _L,
        30_000,
        "How long a request may be incomplete before its connection is closed. Each 16 KiB that "
        "arrive extend the limit by one second.",
        low=1000,
    ),
    ConfigKey(
        "queued.max.requests", _I, 500, "The most requests that wait.", low=1, without_effect=COMPATIBLE_ONLY
    ),
    ConfigKey(
        "num.network.threads",
        _I,
        3,
        "Network threads.",
        low=1,
        update_mode=_CLUSTER,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "num.io.threads",
        _I,
        8,
        "Request threads.",
        low=1,
        update_mode=_CLUSTER,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey("background.threads", _I, 10, "Worker threads for disk I/O.", low=1, update_mode=_CLUSTER),
    ConfigKey(
        "request.timeout.ms", _I, 30_000, "How long the broker waits for responses to its own requests."
    ),
]
