"""The broker configs of TLS and SASL. Most can be set for one listener: `listener_names`."""

from __future__ import annotations

from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType, UpdateMode

__all__ = ["ALLOW", "DEFAULT_MECHANISM", "PREFER", "REQUIRE", "SECURITY_KEYS"]

#: values of `penstock.internal.tls.mode`
ALLOW: Final = "allow"
PREFER: Final = "prefer"
REQUIRE: Final = "require"

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
        "ssl.crl.location",
        _S,
        None,
        "A PEM file with a certificate revocation list of each authority that issues certificates of clients "
        "or brokers. The file is loaded again when it changes, and connections of revoked certificates end.",
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

#: SASL mechanism of brokers, clients and new clusters that name none; the object of this name is in
#: `security.mechanisms`
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"

_SASL: Final = [
    ConfigKey(
        "sasl.enabled.mechanisms",
        _LIST,
        (),
        f"The SASL mechanisms of a listener, for example {DEFAULT_MECHANISM},OAUTHBEARER. "
        "GSSAPI is not supported.",
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        _S,
        DEFAULT_MECHANISM,
        "The SASL mechanism that this broker uses as a client of other brokers. Kafka's default is GSSAPI, "
        "which is not supported.",
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
        "penstock.sasl.oauthbearer.token.bytes.max",
        _I,
        65536,
        "The largest bearer token. A client with a larger one is refused before the token is looked at.",
        low=1024,
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
        "penstock.security.strict",
        _B,
        False,
        "Whether risks are errors instead of warnings: a file with secrets that other users can read keeps "
        "the broker from starting, and an expired certificate revocation list refuses all certificates.",
    ),
    ConfigKey(
        "penstock.insecure.listeners.allow",
        _B,
        False,
        "Whether a listener without TLS or SASL may bind an address other than loopback.",
    ),
]

SECURITY_KEYS: Final[list[ConfigKey]] = [*_TLS, *_SASL]
