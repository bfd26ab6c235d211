"""Configs that Apache Kafka's brokers have and Penstock's have not: the one table of them.

A `server.properties` file of Kafka is read as it is. Its configs in `IGNORED` have nothing to act on here:
the broker starts without them, and logs the reason of each. Those in `REFUSED` guard something, so that a
broker without them would be less safe than its operator believes: they stop the start, unless they have a
value with which Kafka does what Penstock does.

Invariant: no name of the table is in `BROKER_KEYS`. `tests/model/config/kafka_broker_configs.txt` has the
names that Kafka 4.3.1 knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.model.config.listener_names import LISTENER_PREFIX
from penstock.model.errors import InvalidConfig

__all__ = ["IGNORED", "IGNORED_PREFIXES", "REFUSED", "Guard", "reason_to_ignore"]


class Guard(NamedTuple):
    """A config that is refused: the reason, and the values that need nothing that Penstock lacks."""

    reason: str
    harmless: tuple[str, ...] = ()


_NO_JVM: Final = "it configures the Java process of a broker"
_METRICS: Final = "metrics are scraped from penstock.metrics.listener, without reporters in the broker"
_ARCHIVE: Final = "tiered storage has no plugins: penstock.remote.log.address says where the archive is"
_ARCHIVE_WORK: Final = "one process copies and expires archived segments, in the order in which they are due"
_KERBEROS: Final = "GSSAPI is not supported"
_LOGIN: Final = "the login of this broker at other brokers needs no refresh thread and no plugin"
_ASSERTION: Final = (
    "this broker gets its own tokens with sasl.oauthbearer.client.credentials.client.id and ….client.secret"
)
_KEYS_RETRY: Final = "the keys of the token's issuer are fetched again at the next login that needs them"
_QUOTAS: Final = "throttles of replication are measured over one second"
_QUEUES: Final = "requests that wait are removed when they are answered, not in intervals"
_INTERNAL: Final = "it is internal to the brokers of Apache Kafka"
_REMOVED: Final = "Kafka 4 has no such config"


def _each(reason: str, *names: str) -> Iterator[tuple[str, str]]:
    return ((name, reason) for name in names)


#: names to the reason why they have nothing to act on
IGNORED: Final[Mapping[str, str]] = dict(
    [
        *_each(
            _METRICS,
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "kafka.metrics.reporters",
            "kafka.metrics.polling.interval.secs",
            "auto.include.jmx.reporter",
        ),
        *_each(
            _ARCHIVE,
            "remote.log.storage.manager.class.name",
            "remote.log.storage.manager.class.path",
            "remote.log.storage.manager.impl.prefix",
            "remote.log.metadata.manager.class.name",
            "remote.log.metadata.manager.class.path",
            "remote.log.metadata.manager.impl.prefix",
            "remote.log.metadata.manager.listener.name",
            "remote.log.metadata.custom.metadata.max.bytes",
        ),
        *_each(
            _ARCHIVE_WORK,
            "remote.list.offsets.request.timeout.ms",
            "remote.log.index.file.cache.total.size.bytes",
            "remote.log.index.file.cache.ttl.ms",
            "remote.log.manager.copy.quota.window.num",
            "remote.log.manager.copy.quota.window.size.seconds",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.manager.fetch.max.bytes.per.second",
            "remote.log.manager.fetch.quota.window.num",
            "remote.log.manager.fetch.quota.window.size.seconds",
            "remote.log.manager.follower.thread.pool.size",
            "remote.log.manager.task.retry.backoff.max.ms",
            "remote.log.manager.task.retry.backoff.ms",
            "remote.log.manager.task.retry.jitter",
            "remote.log.manager.thread.pool.size",
        ),
        *_each(
            _KERBEROS,
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.principal.to.local.rules",
            "sasl.kerberos.service.name",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        *_each(
            _LOGIN,
            "sasl.client.callback.handler.class",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
        ),
        (
            "sasl.mechanism.controller.protocol",
            "controllers have no listener of their own: see sasl.mechanism.inter.broker.protocol",
        ),
        *_each(
            _ASSERTION,
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.jwt.retriever.class",
        ),
        *_each(
            _KEYS_RETRY,
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ),
        (
            "sasl.oauthbearer.scope.claim.name",
            "the scopes of a client's token give it no rights: ACLs and groups do",
        ),
        ("ssl.protocol", "ssl.enabled.protocols has the versions that a handshake may choose"),
        ("ssl.keymanager.algorithm", _NO_JVM),
        ("ssl.secure.random.implementation", "random numbers are those of the operating system"),
        *_each(
            _QUOTAS,
            "alter.log.dirs.replication.quota.window.num",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "replication.quota.window.num",
            "replication.quota.window.size.seconds",
        ),
        *_each(
            _QUEUES,
            "delete.records.purgatory.purge.interval.requests",
            "share.fetch.purgatory.purge.interval.requests",
        ),
        *_each(
            "transactions are verified over one connection between brokers, without a pause of its own",
            "add.partitions.to.txn.retry.backoff.max.ms",
            "add.partitions.to.txn.retry.backoff.ms",
        ),
        *_each(
            "connections between brokers have timeouts of their own",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        ),
        (
            "config.providers",
            "${file:PATH:KEY}, ${file:PATH} and ${env:NAME} are replaced without a provider, and no others",
        ),
        ("early.start.listeners", "clients are accepted once this broker is unfenced"),
        *_each(
            _INTERNAL,
            "controller.performance.always.log.threshold.ms",
            "controller.performance.sample.period.ms",
            "group.share.initialize.retry.interval.ms",
            "group.share.persister.class.name",
            "internal.metadata.delete.delay.millis",
            "internal.metadata.log.segment.bytes",
            "internal.metadata.max.batch.size.in.bytes",
            "server.max.startup.time.ms",
            "unclean.leader.election.interval.ms",
            "unstable.api.versions.enable",
            "unstable.feature.versions.enable",
        ),
        *_each(
            _REMOVED,
            "broker.id.generation.enable",
            "control.plane.listener.name",
            "inter.broker.protocol.version",
            "log.message.downconversion.enable",
            "log.message.format.version",
            "log.message.timestamp.difference.max.ms",
            "reserved.broker.max.id",
        ),
    ]
)
#: of whole families of names, to the reason
IGNORED_PREFIXES: Final[Mapping[str, str]] = {
    "config.providers.": IGNORED["config.providers"],
    "rsm.config.": _ARCHIVE,
    "rlmm.config.": _ARCHIVE,
    "zookeeper.": "there is no ZooKeeper",
    "password.encoder.": "secrets are not stored in ZooKeeper",
}
_PEM: Final = (
    "keystores and truststores are PEM files: convert it; ssl.key.password is that of an encrypted key"
)
REFUSED: Final[Mapping[str, Guard]] = {
    "client.quota.callback.class": Guard(
        "its limits would not be enforced: set quotas of users, client ids and addresses instead"
    ),
    "delegation.token.master.key": Guard("its name in Kafka 4 is delegation.token.secret.key"),
    "principal.builder.class": Guard(
        "other principals would have the rights: ssl.principal.mapping.rules maps those of certificates",
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    ),
    "sasl.oauthbearer.jwt.validator.class": Guard(
        "its checks of tokens would be missing: sasl.oauthbearer.expected.issuer and ….audience are checked",
        (
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
        ),
    ),
    "sasl.server.callback.handler.class": Guard(
        "it decides which clients may log in, and Java classes are not loaded here",
        ("org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",),
    ),
    "security.providers": Guard("OpenSSL does the encryption: configure its providers, for example for FIPS"),
    "ssl.engine.factory.class": Guard(
        "its checks of certificates would be missing, and Java classes are not loaded here",
        ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    ),
    "ssl.keystore.password": Guard(_PEM),
    "ssl.provider": Guard("OpenSSL does the encryption: configure its providers, for example for FIPS"),
    "ssl.trustmanager.algorithm": Guard(
        "its checks of certificates would be missing: chains are checked as with PKIX", ("PKIX",)
    ),
    "ssl.truststore.password": Guard(_PEM),
}
_DEFAULT: Final = "this value is what every broker of Penstock does"


def reason_to_ignore(name: str, text: str) -> str | None:
    """Why a config of Kafka has nothing to act on here; None for a name that is not in the table.

    Raises InvalidConfig, without the value, for one that is refused.
    """
    for key in _own_names(name):
        if key in IGNORED:
            return IGNORED[key]
        guard = REFUSED.get(key)
        if guard is not None:
            if text.strip() in ("", *guard.harmless):
                return _DEFAULT
            raise InvalidConfig(f"{name} is refused: {guard.reason}")
    return next((why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None)


def _own_names(name: str) -> Iterable[str]:
    """The name, and that of its key if it is for one listener, or for one mechanism of it."""
    yield name
    if name.startswith(LISTENER_PREFIX):
        _, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
        yield rest
        yield rest.partition(".")[2]
