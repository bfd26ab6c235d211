"""A broker's configuration: typed values and their sources. `broker_descriptions` describes them.

Invariants: every value in a `BrokerConfig` has been validated, alone and together with the others; a change
is applied whole or not at all. One object serves a broker for its life: dynamic updates change it in place,
so every reader sees current values. Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from penstock.model.config.broker_checks import check_dynamic_name, check_together, topic_default
from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.descriptions import ConfigTexts
from penstock.model.config.keys import ConfigKey, ConfigValue, as_integer, as_strings, find_key
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
from penstock.model.config.security_keys import (
    LISTENER_PREFIX,
    REQUIRE,
    check_listener_names,
    listener_name,
    nearest_listener_name,
)
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


class BrokerConfig(Mapping[str, ConfigValue]):
    """Broker config names to typed values; every name is also an attribute, with `_` for `.`.

    `static` is what the broker was started with; `dynamic` (this broker's) and `dynamic_default` (the
    cluster's) go before it, in that order.
    """

    # The attributes that the broker reads most, declared for the type checker; all other names exist as well.
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    background_threads: int
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    follower_replication_throttled_rate: int
    initial_broker_registration_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    leader_replication_throttled_rate: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_flush_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    min_insync_replicas: int
    node_id: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    penstock_audit_aggregation_ms: int
    penstock_audit_destination: str
    penstock_audit_events_per_second_max: int
    penstock_audit_overflow: str
    penstock_audit_queue_events_max: int
    penstock_audit_topic_num_partitions: int
    penstock_audit_topic_replication_factor: int
    penstock_audit_topic_retention_ms: int
    penstock_authentication_failures_per_ip_max: int
    penstock_authentication_failures_window_ms: int
    penstock_authentication_timeout_ms: int
    penstock_balance: str
    penstock_balance_bytes_per_second: int
    penstock_balance_exclude_brokers: tuple[str, ...]
    penstock_balance_interval_seconds: int
    penstock_balance_new_brokers: bool
    penstock_balance_tolerance_percent: int
    penstock_bootstrap_port: int
    penstock_clock_skew_max_ms: int
    penstock_cluster_id: str | None
    offsets_commit_timeout_ms: int
    penstock_flush: str
    penstock_flush_interval_ms: int
    penstock_insecure_listeners_allow: bool
    penstock_internal_tls_mode: str
    penstock_log_format: str
    penstock_log_level: str
    penstock_machine: str | None
    penstock_memory: bool
    penstock_quarantine_retention_ms: int
    penstock_request_read_timeout_ms: int
    penstock_scrub_bytes_per_second: int
    penstock_scrub_interval_ms: int
    penstock_self_healing_delay_ms: int
    penstock_self_healing_enable: bool
    request_timeout_ms: int
    penstock_self_healing_partitions_max: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    num_replica_fetchers: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    transaction_partition_verification_enable: bool
    unclean_leader_election_enable: bool
    unclean_recovery_strategy: str
    unclean_recovery_timeout_ms: int

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
