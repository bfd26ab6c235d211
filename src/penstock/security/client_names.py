"""Security settings of clients: names of Kafka's Java clients, and of librdkafka, in each other's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.model.errors import InvalidConfig
from penstock.security.mechanisms import uses_tokens
from penstock.security.sasl_users import parse_jaas

__all__ = ["SECURITY_PREFIXES", "java_names", "librdkafka_names"]

#: how the names of security settings begin
SECURITY_PREFIXES: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.", "https.ca.")
#: names of Kafka's Java clients, and of librdkafka
_RENAMED: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
#: the security settings of librdkafka, beside those of OAUTHBEARER; it refuses the others of Java clients
_LIBRDKAFKA: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.key.password",
        "ssl.key.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "https.ca.pem",
        *_RENAMED.values(),
    }
)
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"
_BEARER: Final = "sasl.oauthbearer."
#: settings of OAUTHBEARER by the names of Java clients, and of librdkafka; options of the login module
_BEARER_NAMES: Final = {
    "client.credentials.client.id": ("client.id", "clientId"),
    "client.credentials.client.secret": ("client.secret", "clientSecret"),
    "scope": ("scope", "scope"),
    "token.endpoint.url": ("token.endpoint.url", ""),
}
#: those of Java clients that librdkafka refuses
_ONLY_OF_JAVA: Final = (
    "header.urlencode",
    "jwt.",
    "jwks.",
    "expected.",
    "clock.",
    "sub.claim.",
    "scope.claim.",
)


def librdkafka_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for librdkafka, without security settings that it does not have."""
    renamed = {_RENAMED.get(name, name): value for name, value in settings.items()}
    found = {name: value for name, value in renamed.items() if _is_known(name)}
    if "ssl.keystore.location" in settings:
        found["ssl.certificate.location"] = found["ssl.key.location"] = settings["ssl.keystore.location"]
    if settings.get(_ALGORITHM) == "":
        found[_ALGORITHM] = "none"
    login = parse_jaas(settings["sasl.jaas.config"]) if "sasl.jaas.config" in settings else {}
    if login.get("tokenauth", "").lower() == "true":
        raise InvalidConfig(
            "librdkafka cannot log in with a delegation token (tokenauth in sasl.jaas.config): use a client "
            "in Java, or a password"
        )
    for name in ("username", "password"):
        if name in login:
            found[f"sasl.{name}"] = login[name]
    if uses_tokens(settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))):
        found |= _bearer_names(settings, login)
    return found


def _bearer_names(settings: Mapping[str, str], login: Mapping[str, str]) -> dict[str, str]:
    """How librdkafka gets tokens from an endpoint, unless `settings` has its own names."""
    if f"{_BEARER}token.endpoint.url" not in settings:
        return {}
    found = {f"{_BEARER}method": "oidc"}
    for java, (own, option) in _BEARER_NAMES.items():
        value = settings.get(f"{_BEARER}{own}") or settings.get(f"{_BEARER}{java}") or login.get(option)
        if value:
            found[f"{_BEARER}{own}"] = value
    extensions = [
        f"{name.removeprefix('extension_')}={value}"
        for name, value in login.items()
        if name.startswith("extension_")
    ]
    if extensions:
        found[f"{_BEARER}extensions"] = ",".join(extensions)
    if "ssl.truststore.location" in login:
        found["https.ca.location"] = login["ssl.truststore.location"]
    return found


def _is_known(name: str) -> bool:
    if name.startswith(_BEARER):
        return not name.removeprefix(_BEARER).startswith(_ONLY_OF_JAVA)
    return name in _LIBRDKAFKA or not name.startswith(SECURITY_PREFIXES)


def java_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings under the names of Java clients; `sasl.username` and `sasl.password` stay as they are.

    Raises InvalidConfig if a private key and its certificate are in two files.
    """
    back = {librdkafka: java for java, librdkafka in _RENAMED.items()}
    found = {back.get(name, name): value for name, value in settings.items()}
    if "ssl.key.location" in found and "ssl.certificate.location" in found:
        if found["ssl.key.location"] != found["ssl.certificate.location"]:
            raise InvalidConfig(
                "ssl.key.location and ssl.certificate.location are two files: put the private key and the "
                "certificates into one PEM file, and set ssl.keystore.location to it"
            )
        found.setdefault("ssl.keystore.location", found.pop("ssl.certificate.location"))
        del found["ssl.key.location"]
    if "sasl.mechanisms" in found:
        found.setdefault("sasl.mechanism", found["sasl.mechanisms"])
    if found.get(_ALGORITHM) == "none":
        found[_ALGORITHM] = ""
    for java, (own, _) in _BEARER_NAMES.items():
        if own != java and f"{_BEARER}{own}" in found:
            found.setdefault(f"{_BEARER}{java}", found.pop(f"{_BEARER}{own}"))
    return found
