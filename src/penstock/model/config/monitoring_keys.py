"""The broker configs of the monitoring port, and the address in one of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.model.config.keys import ConfigKey, ConfigType

__all__ = ["AUTO", "AUTO_TLS", "MONITORING_KEYS", "MetricsAddress", "metrics_address", "metrics_token"]

_ADDRESS: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:/\[\]]*)):(?P<plus>\+?)(?P<port>[0-9]{1,5})",
    re.ASCII,
)
_PORT_MAX: Final = 65535
#: the default: a port of its own on loopback
AUTO: Final = "auto"
AUTO_TLS: Final = "https://auto"


class MetricsAddress(NamedTuple):
    """The address of the monitoring port. With `relative`, the port is to be added to that of clients.

    `optional` is the address of `auto`: a broker whose port is taken uses another one.
    """

    host: str
    port: int
    tls: bool
    relative: bool
    optional: bool = False

    def port_beside(self, client_port: int) -> int:
        """The port to bind, given that of the first listener; 0 for any free one."""
        if not self.relative:
            return self.port
        port = client_port + self.port if client_port else 0
        return port if port <= _PORT_MAX else 0


#: a port below the ephemeral ones, and far from those of other brokers on the machine
_AUTO: Final = MetricsAddress("127.0.0.1", 20_000, tls=False, relative=True, optional=True)


def metrics_address(text: str) -> MetricsAddress | None:
    """The address in `penstock.metrics.listener`; None if it is off. ValueError if it is malformed."""
    if not text:
        return None
    if text in (AUTO, AUTO_TLS):
        return _AUTO._replace(tls=text == AUTO_TLS)
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        raise ValueError(text)
    host = found["v6"] or found["host"] or ""
    return MetricsAddress(host, int(found["port"]), found["scheme"] == "https", bool(found["plus"]))


def metrics_token(given: str | None, is_secured: bool, new: Callable[[], str]) -> str | None:
    """The token that requests need; None if every client may read.

    Without a given one, a secured broker gets a new one that no client has: it serves liveness and readiness
    alone. An empty one opens the port of a secured broker, too.
    """
    if given is not None:
        return given or None
    return new() if is_secured else None


def _check(text: str) -> str | None:
    try:
        metrics_address(text)
    except ValueError:
        return (
            "must be auto, HOST:PORT, HOST:+OFFSET, https://auto or https://HOST:PORT, or empty for no port"
        )
    return None


MONITORING_KEYS: list[ConfigKey] = [
    ConfigKey(
        "penstock.metrics.listener",
        ConfigType.STRING,
        AUTO,
        "The address of the HTTP port for metrics and health, such as `127.0.0.1:9404`. Empty: no port. "
        "`auto`: the first client port plus 20000 on 127.0.0.1, or any free port if that one is taken. A "
        "broker that is part of another process, as in tests, has no port then. "
        "`127.0.0.1:+1000` is the first client port plus 1000, which suits several brokers on one machine. "
        "`https://` uses TLS with the configs `ssl.*`, or `listener.name.metrics.ssl.*`; `https://auto` is "
        "`auto` with TLS.",
        check=_check,
    ),
    ConfigKey(
        "penstock.metrics.token",
        ConfigType.PASSWORD,
        None,
        "The bearer token that requests to the HTTP port need, except those to `/healthz` and `/readyz`. Not "
        "set: a broker with TLS, SASL or an authorizer serves only these two paths, and any other broker "
        "serves every client that reaches the port. Empty: every client may read, also of a secured broker.",
    ),
    ConfigKey(
        "penstock.metrics.connections.max",
        ConfigType.INT,
        16,
        "The most connections of the HTTP port. A new one closes the one that has been idle for longest.",
        low=1,
        high=1000,
    ),
]
