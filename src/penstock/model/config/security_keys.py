"""The broker configs of TLS and SASL, and their names for one listener.

`listener.name.<listener>.<key>` sets a key for one listener, `listener.name.<listener>.<mechanism>.<key>` for
one SASL mechanism of it. Both listener and mechanism are in lower case, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from penstock.model.config.keys import ConfigKey, ConfigType, UpdateMode
from penstock.model.config.network_keys import NETWORK_KEYS
from penstock.model.errors import InvalidConfig

__all__ = [
    "ALLOW",
    "LISTENER_PREFIX",
    "PREFER",
    "REQUIRE",
    "SECURITY_KEYS",
    "ListenerName",
    "check_listener_names",
    "listener_name",
    "nearest_listener_name",
]

LISTENER_PREFIX: Final = "listener.name."
#: values of `penstock.internal.tls.mode`
ALLOW: Final = "allow"
PREFER: Final = "prefer"
REQUIRE: Final = "require"
_MECHANISMS: Final = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")

_B, _S, _I, _L, _LIST, _SECRET = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
_BROKER = UpdateMode.PER_BROKER

_TLS: Final = [
    ConfigKey(
        "ssl.keystore.location",
        _S,
        None,
        "A PEM file with the private key and the certificates of this broker, its own first. The file is "
        "loaded again when it changes.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.type",
        _S,
        "PEM",
        "The format of the key store.",
        choices=("PEM",),
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.key",
        _SECRET,
        None,
        "The private key in PEM, instead of ssl.keystore.location.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain",
        _SECRET,
        None,
        "The certificates that belong to ssl.keystore.key, in PEM.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.key.password", _SECRET, None, "The password of an encrypted private key.", update_mode=_BROKER
    ),
    ConfigKey(
        "ssl.truststore.location",
        _S,
        None,
        "A PEM file with the certificates of the authorities that this broker trusts. The file is loaded "
        "again when it changes.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.type",
        _S,
        "PEM",
        "The format of the trust store.",
        choices=("PEM",),
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.certificates",
        _SECRET,
        None,
        "The trusted certificates in PEM, instead of ssl.truststore.location.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.client.auth",
        _S,
        "none",
        "Whether clients of a TLS listener need a certificate.",
        choices=("none", "requested", "required"),
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.principal.mapping.rules",
        _S,
        "DEFAULT",
        "Rules that turn the name in a client's certificate into a user: RULE:pattern/replacement/[LU] or "
        "DEFAULT, comma-separated. The first that matches applies.",
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        _LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are accepted.",
        choices=("TLSv1.2", "TLSv1.3"),
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.cipher.suites",
        _LIST,
        (),
        "The cipher suites of TLS 1.2, by Java's or OpenSSL's names. Without any, OpenSSL's default.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        _S,
        "https",
        "Whether this broker verifies the host names of other brokers: `https`, or empty for no.",
        update_mode=_BROKER,
    ),
    ConfigKey(
        "ssl.allow.dn.changes",
        _B,
        False,
        "Whether a reloaded certificate may have another subject.",
    ),
    ConfigKey(
        "ssl.allow.san.changes",
        _B,
        False,
        "Whether a reloaded certificate may lack alternative names of the old one.",
    ),
]

_SASL: Final = [
    ConfigKey(
        "sasl.enabled.mechanisms",
        _LIST,
        (),
        "The SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI is not "
        "supported.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        _S,
        "SCRAM-SHA-512",
        "The SASL mechanism that this broker uses as a client of other brokers. Kafka's default is GSSAPI, "
        "which is not supported.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    ),
    ConfigKey(
        "sasl.jaas.config",
        _SECRET,
        None,
        "Users and logins in Kafka's form, set for one mechanism of one listener: `…LoginModule required "
        'username="broker" password="…" user_alice="…";`. `user_NAME` defines a user of PLAIN or SCRAM; '
        "`username` and `password` are this broker's login at other brokers.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        _I,
        524288,
        "The largest request before a client is authenticated.",
        low=1024,
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        _L,
        0,
        "The longest time until a client has to authenticate again (KIP-368); 0 for no limit but that of its "
        "token.",
        low=0,
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        _I,
        100,
        "How long the answer to a failed authentication is delayed.",
        low=0,
    ),
    ConfigKey(
        "penstock.authentication.timeout.ms",
        _L,
        10_000,
        "How long a new connection may take for its TLS handshake and its authentication.",
        low=100,
    ),
    ConfigKey(
        "penstock.unauthenticated.connections.max",
        _I,
        2048,
        "How many connections of one listener may be in their TLS handshake or authentication. A new one "
        "closes the oldest of them.",
        low=1,
    ),
    ConfigKey(
        "penstock.unauthenticated.connections.max.per.ip",
        _I,
        1024,
        "How many connections of one address at one listener may be in their TLS handshake or "
        "authentication. A new one closes the oldest of them.",
        low=1,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        _S,
        None,
        "Where the keys are that sign tokens: an https, http or file URL of a JWKS.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        _L,
        3_600_000,
        "How often the JWKS is loaded again.",
        low=1000,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer", _S, None, "The issuer (`iss`) that tokens must have, if set."
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        _LIST,
        (),
        "The audiences (`aud`) of which tokens must have one, if set.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        _I,
        30,
        "How far the clock of the issuer of tokens may differ.",
        low=0,
    ),
    ConfigKey("sasl.oauthbearer.sub.claim.name", _S, "sub", "The claim that has the name of the user."),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        _S,
        None,
        "Where this broker gets its own token, if it logs in to other brokers with OAUTHBEARER: the https or "
        "http URL of a token endpoint, or the file URL of a token.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        _S,
        None,
        "The client id of this broker at the token endpoint.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        _SECRET,
        None,
        "The client secret of this broker at the token endpoint.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope", _S, None, "The scope of the tokens that this broker requests for itself."
    ),
    ConfigKey(
        "penstock.sasl.oauthbearer.groups.claim.name",
        _S,
        "groups",
        "The claim that has the groups of the user, for roles.",
    ),
    ConfigKey(
        "penstock.internal.tls.mode",
        _S,
        REQUIRE,
        "How an internal listener with TLS treats nodes without TLS, for the move of a running cluster: "
        "`allow` accepts both and connects without TLS, `prefer` accepts both and connects with TLS, "
        "`require` accepts TLS only.",
        choices=(ALLOW, PREFER, REQUIRE),
    ),
    ConfigKey(
        "penstock.insecure.listeners.allow",
        _B,
        False,
        "Whether a listener without TLS or SASL may bind an address other than loopback.",
    ),
]

SECURITY_KEYS: Final[list[ConfigKey]] = [*_TLS, *_SASL]
#: keys that cannot be set for one listener
_OF_ALL_LISTENERS: Final = (
    "penstock.insecure.listeners.allow",
    "penstock.internal.tls.mode",
    "penstock.authentication.timeout.ms",
    "penstock.unauthenticated.connections.max",
    "penstock.unauthenticated.connections.max.per.ip",
)
_OF_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")
#: keys that can be set for one listener
_BY_LISTENER: Final = {
    **{key.name: key for key in SECURITY_KEYS if key.name not in _OF_ALL_LISTENERS},
    **{key.name: key for key in NETWORK_KEYS if key.name in _OF_CONNECTIONS},
}


class ListenerName(NamedTuple):
    """The name of a key for one listener, in its parts; `mechanism` is empty if it is for all of them."""

    listener: str
    mechanism: str
    key: ConfigKey


def listener_name(name: str) -> ListenerName | None:
    """The parts of `listener.name.…`; None if the name is not one, or of a key that listeners do not have."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if not listener:
        return None
    if rest in _BY_LISTENER:
        return ListenerName(listener, "", _BY_LISTENER[rest])
    mechanism, _, rest = rest.partition(".")
    if mechanism in _MECHANISMS and rest in _BY_LISTENER:
        return ListenerName(listener, mechanism, _BY_LISTENER[rest])
    return None


def nearest_listener_name(name: str) -> str | None:
    """The name of a key for one listener that is nearest to a name that is none; None if none is near."""
    if not name.lower().startswith(LISTENER_PREFIX):
        return None
    from difflib import get_close_matches  # only a mistake pays for the import

    listener, _, rest = name[len(LISTENER_PREFIX) :].lower().partition(".")
    known = [*_BY_LISTENER, *(f"{mechanism}.{key}" for mechanism in _MECHANISMS for key in _BY_LISTENER)]
    nearest = get_close_matches(rest, known, n=1, cutoff=0.6)
    return f"{LISTENER_PREFIX}{listener}.{nearest[0]}" if nearest and listener else None


def check_listener_names(names: Iterable[str], listeners: Collection[str]) -> None:
    """Refuse keys for a listener that is not one of `listeners`: no listener would have them.

    A common cause are capitals: Kafka, too, looks for the listener's name in lower case.
    """
    known = [listener.lower() for listener in listeners]
    for name in names:
        parts = listener_name(name)
        if parts is None or parts.listener in known:
            continue
        from difflib import get_close_matches  # only a mistake pays for the import

        nearest = get_close_matches(parts.listener.lower(), known, n=1, cutoff=0.6)
        rest = name.removeprefix(f"{LISTENER_PREFIX}{parts.listener}.")
        meant = f"; did you mean {LISTENER_PREFIX}{nearest[0]}.{rest}?" if nearest else ""
        raise InvalidConfig(
            f"{name} is for a listener {parts.listener}, but the listeners are {', '.join(known)}{meant}"
        )
