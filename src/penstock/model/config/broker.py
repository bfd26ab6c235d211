"""A broker's configuration: typed values and their sources. `broker_descriptions` describes them.

Invariants: every value in a `BrokerConfig` has been validated, alone and together with the others; a change
is applied whole or not at all. One object serves a broker for its life: dynamic updates change it in place,
so every reader sees current values. Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from penstock.model.config.broker_checks import check_dynamic_name, check_together, topic_default
from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.broker_values import BrokerValues
from penstock.model.config.descriptions import ConfigTexts
from penstock.model.config.keys import ConfigKey, ConfigValue, as_integer, as_strings, find_key
from penstock.model.config.listener_names import (
    LISTENER_PREFIX,
    check_listener_names,
    listener_name,
    nearest_listener_name,
)
from penstock.model.config.listeners import (
    Endpoint,
    check_roles,
    is_loopback,
    listener_names,
    parse_connection_overrides,
    parse_endpoints,
    parse_internal_endpoint,
    parse_voters,
)
from penstock.model.config.monitoring_keys import MetricsAddress, metrics_address
from penstock.model.config.security_keys import REQUIRE
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.errors import InvalidConfig

__all__ = ["BrokerConfig", "broker_key", "parse_broker_config"]

#: The least memory for requests if `queued.max.request.bytes` is -1. There is always a bound.
_DEFAULT_REQUEST_MEMORY = 256 * 1024 * 1024


def parse_broker_config(name: str, text: str) -> ConfigValue:
    """The typed value of a broker config; raises InvalidConfig for an unknown name or a bad value."""
    return broker_key(name).parse(text)


def broker_key(name: str) -> ConfigKey:
    """The key of a name, which may be that of a key for one listener; InvalidConfig if it is unknown."""
    of_listener = listener_name(name)
    if of_listener is not None:
        return of_listener.key._replace(name=name)
    nearest = nearest_listener_name(name)
    if nearest is not None:
        raise InvalidConfig(f"Unknown broker config name: {name}; did you mean {nearest}?")
    return find_key(BROKER_KEYS, name, "broker")


class BrokerConfig(BrokerValues, Mapping[str, ConfigValue]):
    """Broker config names to typed values; every name is also an attribute (`BrokerValues`).

    `static` is what the broker was started with; `dynamic` (this broker's) and `dynamic_default` (the
    cluster's) go before it, in that order.
    """

    #: The data directories: log.dirs, else log.dir.
    data_dirs: tuple[str, ...]
    #: The clients' listeners with what they bind and what they advertise.
    endpoints: tuple[Endpoint, ...]
    #: The listener that nodes use among themselves; None where the broker is a cluster of its own.
    internal_endpoint: Endpoint | None
    #: max.connections.per.ip.overrides: addresses and how many connections each may have.
    max_connections_by_ip: Mapping[str, int]
    #: The voters that the quorum starts with: where the internal listener of each node is.
    quorum_voters: Mapping[int, tuple[str, int]]
    #: Memory for requests in flight over all connections; always a bound.
    request_memory_bytes: int
    request_memory_bytes_per_ip: int
    #: Topic config names to the values that a topic without overrides has.
    topic_defaults: Mapping[str, ConfigValue]

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        *,
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
    ) -> None:
        self._static = _same_ids(dict(static or {}))
        self._apply(dict(dynamic or {}), dict(dynamic_default or {}))
        self.endpoints = parse_endpoints(self._values)
        self.internal_endpoint = parse_internal_endpoint(self._values)
        self.quorum_voters = parse_voters(self._values)
        check_roles(self._values, self.internal_endpoint, self.quorum_voters)
        names = listener_names(self._values, self._static)
        metrics = self.metrics_address
        has_own = metrics is not None and not metrics.optional
        check_listener_names(self._static, [*names, "metrics"] if has_own else names)

    def __getitem__(self, name: str) -> ConfigValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def for_listener(self, listener: str, mechanism: str = "") -> Callable[[str], str | None]:
        """A function that returns the text of a key for one listener, and one mechanism of it if given."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        prefixes = (f"{prefix}{mechanism.lower()}.", prefix, "") if mechanism else (prefix, "")

        def lookup(name: str) -> str | None:
            for each in prefixes:
                value = self._values.get(each + name)
                if value is not None:
                    return BROKER_KEYS[name].format(value)
            return None

        return lookup

    def by_listener(self, name: str) -> dict[str, int]:
        """The value of a number for each listener that has one of its own."""
        endpoints = [*self.endpoints, *([self.internal_endpoint] if self.internal_endpoint else [])]
        found = {e.name: self._values.get(f"{LISTENER_PREFIX}{e.name.lower()}.{name}") for e in endpoints}
        return {listener: as_integer(value) for listener, value in found.items() if value is not None}

    def insecure_listeners(self) -> list[str]:
        """The listeners that other machines can reach without TLS or SASL, as NAME://HOST:PORT.

        Between brokers TLS alone is not enough: a client without a certificate could replicate and vote.
        """
        found = [e for e in self.endpoints if e.protocol == "PLAINTEXT"]
        internal = self.internal_endpoint
        if internal is not None and (
            internal.protocol == "PLAINTEXT"
            or (internal.protocol.endswith("SSL") and self._values["penstock.internal.tls.mode"] != REQUIRE)
            or (
                internal.protocol == "SSL"
                and self.for_listener(internal.name)("ssl.client.auth") != "required"
            )
        ):
            found.append(internal)
        insecure = [f"{e.name}://{e.host or '*'}:{e.port}" for e in found if not is_loopback(e.host)]
        metrics = self.metrics_address
        is_guarded = metrics is None or (metrics.tls and self._values["penstock.metrics.token"] is not None)
        if metrics is not None and not is_guarded and not is_loopback(metrics.host):
            insecure.append(f"METRICS://{metrics.host or '*'}:{metrics.port}")
        return insecure

    def weak_listeners(self) -> dict[str, str]:
        """The risks of reachable listeners that have encryption or authentication, but not both."""
        found = {}
        for endpoint in self.all_endpoints:
            if is_loopback(endpoint.host):
                continue
            address = f"{endpoint.name}://{endpoint.host or '*'}:{endpoint.port}"
            client_auth = self.for_listener(endpoint.name)("ssl.client.auth")
            is_open = client_auth != "required" and not self._values["authorizer.class.name"]
            if endpoint.protocol == "SASL_PLAINTEXT":
                found[address] = "the network can read all records, and passwords and tokens of clients"
            elif endpoint.protocol == "SSL" and is_open and endpoint != self.internal_endpoint:
                found[address] = "clients need no certificate, and every client may do everything"
        return found

    @property
    def metrics_address(self) -> MetricsAddress | None:
        """The address of the monitoring port; None if there is none."""
        return metrics_address(str(self._values["penstock.metrics.listener"]))

    @property
    def is_secured(self) -> bool:
        """Whether a client needs to authenticate, or needs rights."""
        return bool(self._values["authorizer.class.name"]) or any(
            endpoint.protocol != "PLAINTEXT" for endpoint in self.all_endpoints
        )

    @property
    def all_endpoints(self) -> tuple[Endpoint, ...]:
        """The listeners for clients and the one for other nodes."""
        return (*self.endpoints, *([self.internal_endpoint] if self.internal_endpoint else ()))

    @property
    def is_broker(self) -> bool:
        """Whether this node holds partitions and serves clients."""
        return "broker" in as_strings(self._values["process.roles"])

    @property
    def may_vote(self) -> bool:
        """Whether this node may be a voter of the metadata quorum."""
        return "controller" in as_strings(self._values["process.roles"])

    @property
    def static(self) -> Mapping[str, str]:
        """The configs that the broker was started with, as text."""
        return self._static

    @property
    def texts(self) -> ConfigTexts:
        """The configs as they were given, by source."""
        return self._texts

    @property
    def dynamic(self) -> Mapping[str, str]:
        """This broker's dynamic configs, as text."""
        return self._texts.dynamic

    @property
    def dynamic_default(self) -> Mapping[str, str]:
        """The cluster's dynamic broker configs, as text."""
        return self._texts.dynamic_default

    def settings_without_effect(self) -> list[ConfigKey]:
        """The keys that the broker was started with and that have no effect."""
        keys = (broker_key(name) for name in self._static)
        return [key for key in keys if key.without_effect]

    def check_dynamic(
        self, dynamic: Mapping[str, str] | None = None, dynamic_default: Mapping[str, str] | None = None
    ) -> None:
        """Raise InvalidConfig if `set_dynamic` would; change nothing."""
        self._checked(*self._replacements(dynamic, dynamic_default))

    def set_dynamic(
        self, dynamic: Mapping[str, str] | None = None, dynamic_default: Mapping[str, str] | None = None
    ) -> None:
        """Replace this broker's and the cluster's dynamic configs (None keeps them); all of it or nothing."""
        self._apply(*self._replacements(dynamic, dynamic_default))

    def _replacements(
        self, dynamic: Mapping[str, str] | None, dynamic_default: Mapping[str, str] | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        return (
            dict(self._texts.dynamic if dynamic is None else dynamic),
            dict(self._texts.dynamic_default if dynamic_default is None else dynamic_default),
        )

    def _checked(self, dynamic: dict[str, str], dynamic_default: dict[str, str]) -> dict[str, ConfigValue]:
        for name in dynamic:
            check_dynamic_name(name, cluster_wide=False)
        for name in dynamic_default:
            check_dynamic_name(name, cluster_wide=True)
        values = {name: key.default for name, key in BROKER_KEYS.items()}
        for name, text in self._static.items():
            values[name] = parse_broker_config(name, text)
        for source in (dynamic_default, dynamic):
            for name, text in source.items():
                if name in BROKER_KEYS or listener_name(name) is not None:
                    values[name] = parse_broker_config(name, text)
        if values["broker.id"] == BROKER_KEYS["broker.id"].default:
            values["broker.id"] = values["node.id"]
        check_together(values)
        return values

    def _apply(self, dynamic: dict[str, str], dynamic_default: dict[str, str]) -> None:
        values = self._checked(dynamic, dynamic_default)
        self._values = values
        self._texts = ConfigTexts(dynamic, dynamic_default, self._static)
        # Plain instance attributes: the hot path reads them at the price of one dictionary look-up.
        self.__dict__.update((name.replace(".", "_"), value) for name, value in values.items())
        self.data_dirs = as_strings(values["log.dirs"]) or as_strings(values["log.dir"])
        self.max_connections_by_ip = parse_connection_overrides(values)
        limit = as_integer(values["queued.max.request.bytes"])
        self.request_memory_bytes = (
            limit if limit > 0 else max(_DEFAULT_REQUEST_MEMORY, 2 * self.socket_request_max_bytes)
        )
        per_ip = as_integer(values["penstock.queued.max.request.bytes.per.ip"])
        self.request_memory_bytes_per_ip = per_ip if per_ip > 0 else self.request_memory_bytes // 2
        self.topic_defaults = {name: topic_default(key, values) for name, key in TOPIC_KEYS.items()}


def _same_ids(static: dict[str, str]) -> dict[str, str]:
    """node.id and broker.id are two names of one number: each sets the other, too."""
    for name, twin in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in static:
            static.setdefault(twin, static[name])
    return static
