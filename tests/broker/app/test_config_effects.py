"""A config key that claims no effect is never read, and one with an effect is read by a running broker.

Simulated brokers under faults and a broker with real sockets record which configs their code reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from operator import attrgetter
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from penstock.groups.settings import GroupSettings
from penstock.model.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey
from penstock.model.config.audit_keys import AUDIT_KEYS
from penstock.model.config.encryption_keys import ENCRYPTION_KEYS
from penstock.model.config.monitoring_keys import MONITORING_KEYS
from penstock.model.config.remote_keys import REMOTE_KEYS
from penstock.model.config.security_keys import SECURITY_KEYS
from penstock.model.config.share_keys import SHARE_KEYS
from penstock.model.config.streams_keys import STREAMS_KEYS
from penstock.model.config.token_keys import TOKEN_KEYS
from penstock.storage.config import LogConfig
from penstock.testing import broker
from penstock.testing.simulation.scenario import Options, simulate

_TOPIC_DEFAULTS = {synonym.name for key in TOPIC_KEYS.values() for synonym in key.synonyms}
_BROKER_KEYS = [k for k in BROKER_KEYS.values() if k.name not in _TOPIC_DEFAULTS and not k.internal]
_TOPIC_KEYS = [key for key in TOPIC_KEYS.values() if not key.internal]
#: callers that read every config alike: copies, comparisons, descriptions
_INDISCRIMINATE = (
    "penstock.model.config",
    "penstock.groups.settings",
    "dataclasses",
    "collections",
    "_collections_abc",
)
#: settings whose fields are recorded when they are read
_FIELD_BY_FIELD = (GroupSettings, LogConfig)
_COMPARISONS = ("__eq__", "__hash__", "__repr__")

#: keys with an effect that the recorded runs do not reach
_NOT_REACHED = {
    # BrokerConfig reads them itself: it derives other attributes from them.
    *("broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map"),
    *("inter.broker.listener.name", "controller.listener.names", "process.roles", "log.dir", "log.dirs"),
    *("controller.quorum.voters", "controller.quorum.bootstrap.servers"),
    *("max.connections.per.ip.overrides", "queued.max.request.bytes"),
    "penstock.queued.max.request.bytes.per.ip",
    # They bound other configs of groups.
    *(f"group.consumer.{bound}.session.timeout.ms" for bound in ("min", "max")),
    *(f"group.consumer.{bound}.heartbeat.interval.ms" for bound in ("min", "max")),
    *(f"group.consumer.{bound}.assignment.interval.ms" for bound in ("min", "max")),
    *(key.name for key in SHARE_KEYS if key.name.startswith(("group.share.min.", "group.share.max."))),
    *(key.name for key in STREAMS_KEYS if key.name.startswith(("group.streams.min.", "group.streams.max."))),
    # Only a broker with share groups reads them: the runs have none.
    *("group.share.delivery.count.limit", "group.share.record.lock.duration.ms"),
    "group.share.partition.max.record.locks",
    *(f"share.coordinator.state.topic.{name}" for name in ("replication.factor", "min.isr", "segment.bytes")),
    *(f"errors.deadletterqueue.{name}" for name in ("auto.create.topics.enable", "topic.name.prefix")),
    *("errors.deadletterqueue.group.enable", "penstock.delay.source.enable", "penstock.delay.target"),
    *("penstock.delete.after.consumption", "penstock.delivery.delay.ms"),
    # Requests that the clients of the runs do not send, and states that they do not reach.
    *("request.timeout.ms", "max.request.partition.size.limit", "producer.id.expiration.ms"),
    *("replica.selector.class", "penstock.balance.exclude.brokers"),
    "replica.alter.log.dirs.io.max.bytes.per.second",
    # The controller reads it in the image, of all brokers.
    "penstock.reassignment.throttle",
    *("penstock.self.healing.delay.ms", "penstock.self.healing.partitions.max"),
    *("share.coordinator.state.topic.num.partitions", "transaction.state.log.num.partitions"),
    # Only a broker with transactions reads them: the runs have none.
    *(f"transaction.state.log.{name}" for name in ("replication.factor", "min.isr", "segment.bytes")),
    "transaction.partition.verification.enable",
    # Only a broker with an audit topic, file or syslog server reads them.
    *("penstock.audit.queue.events.max", "penstock.audit.checkpoint.ms", "penstock.audit.hash.key.file"),
    "penstock.audit.data.window.ms",
    *(key.name for key in AUDIT_KEYS if key.name.startswith("penstock.audit.file.")),
    *(key.name for key in AUDIT_KEYS if key.name.startswith("penstock.audit.syslog.")),
    *(f"penstock.audit.topic.{name}" for name in ("num.partitions", "replication.factor", "retention.ms")),
    # Only brokers that serve a backup (tests/backup/test_mounting.py), or have tiered storage
    # (tests/broker/app/test_copies.py), read them.
    *(key.name for key in REMOTE_KEYS if key.name != "penstock.mount"),
    # Only a broker with encrypted directories whose keys come from elsewhere reads them.
    *(key.name for key in ENCRYPTION_KEYS if key.name.startswith("penstock.encryption.key.")),
    *(key.name for key in ENCRYPTION_KEYS if key.name.startswith("penstock.encryption.vault.")),
    *(key.name for key in ENCRYPTION_KEYS if key.name.startswith("penstock.encryption.aws.")),
    # Only a broker with secured listeners reads them.
    *(key.name for key in SECURITY_KEYS if key.name.startswith(("ssl.", "sasl.", "penstock.sasl."))),
    *("connections.max.reauth.ms", "connection.failed.authentication.delay.ms", "penstock.internal.tls.mode"),
    # Only a broker with delegation tokens uses them (tests/broker/handlers/test_delegation_tokens.py).
    *(key.name for key in TOKEN_KEYS),
    # Only a broker with a monitoring port reads them.
    *(key.name for key in MONITORING_KEYS),
    # A report of health reads them (tests/broker/app/test_health.py).
    *("penstock.disk.free.min.ratio", "penstock.disk.free.min.bytes"),
    # Only a broker that exports spans, or gets metrics of clients, reads them.
    *("penstock.otlp.headers", "penstock.trace.requests.per.second", "telemetry.max.bytes"),
    # The server process reads them before it starts the broker.
    *("penstock.insecure.listeners.allow", "penstock.security.strict"),
    *("penstock.log.level", "penstock.log.format"),
    # A broker reads them when it compresses batches again.
    *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    # The controller reads them from the metadata of a topic.
    *("follower.replication.throttled.replicas", "leader.replication.throttled.replicas"),
    *(
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
    ),
    *("remote.storage.enable", "unclean.leader.election.enable", "unclean.recovery.strategy"),
}


def _recording(original: Callable[[Any, str], Any], names: set[str]) -> Callable[[Any, str], Any]:
    def read(config: Any, name: str) -> Any:
        caller = sys._getframe(1)
        module = str(caller.f_globals.get("__name__"))
        is_settings = module == "penstock.model.config.settings"
        if is_settings and caller.f_locals.get("settings") not in _FIELD_BY_FIELD:
            names.add(name.replace(".", "_"))
        if not module.startswith(_INDISCRIMINATE) and caller.f_code.co_name not in _COMPARISONS:
            names.add(name.replace(".", "_"))
        return original(config, name)

    return read


@pytest.fixture(scope="module")
def read() -> Iterator[set[str]]:
    """The names, with `_` for `.`, of the configs that brokers read."""
    names: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerConfig, "__getitem__", _recording(BrokerConfig.__getitem__, names))
        for owner in (BrokerConfig, LogConfig):
            patch.setattr(owner, "__getattribute__", _recording(owner.__getattribute__, names))
        # Faults differ by seed, and so does the code that they reach.
        for seed in (1, 3, 5):
            assert simulate(seed, Options.draw(seed, 3).lengthened(6.0)).violation is None
        with broker() as running:
            producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
            producer.produce("created", b"value")
            assert producer.flush(60) == 0
        yield names | _read_by_group_settings()


def _read_by_group_settings() -> set[str]:
    """`GroupSettings` copies the whole config: the configs whose values it then has."""
    values: dict[str, Any] = {name: 7919 + nth for nth, name in enumerate(BROKER_KEYS)}
    values |= {"group.consumer.assignors": ["range"], "group.consumer.migration.policy": "own"}
    settings = asdict(GroupSettings.of(cast(BrokerConfig, values))).values()
    found = {name for name, value in values.items() if value in settings}
    minutes = values["offsets.retention.minutes"] * 60_000
    found |= {"offsets.retention.minutes"} if minutes in settings else set()
    found |= {"group.consumer.assignors"} if ("range",) in settings else set()
    return {name.replace(".", "_") for name in found}


@pytest.mark.parametrize("key", [*_BROKER_KEYS, *_TOPIC_KEYS], ids=attrgetter("name"))
def test_a_config_has_an_effect_or_states_that_it_has_none(key: ConfigKey, read: set[str]) -> None:
    was_read = key.name.replace(".", "_") in read
    if key.without_effect:
        assert not was_read, "the broker reads this config: remove `without_effect`"
    else:
        assert was_read or key.name in _NOT_REACHED, "no code reads this config: say so in `without_effect`"


def test_the_rows_are_about_keys_with_an_effect() -> None:
    effective = {key.name for key in (*_BROKER_KEYS, *_TOPIC_KEYS) if not key.without_effect}
    assert effective >= _NOT_REACHED
