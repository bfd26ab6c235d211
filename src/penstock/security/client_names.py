"""Security settings of clients: names of Kafka's Java clients, and of librdkafka, in each other's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.model.errors import InvalidConfig
from penstock.security.sasl_users import parse_jaas

__all__ = ["SECURITY_PREFIXES", "java_names", "librdkafka_names"]

#: how the names of security settings begin
SECURITY_PREFIXES: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.")
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
        "ssl.key.password",
        "ssl.key.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        *_RENAMED.values(),
    }
)
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"


def librdkafka_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for librdkafka, without security settings that it does not have."""
    renamed = {_RENAMED.get(name, name): value for name, value in settings.items()}
    found = {name: value for name, value in renamed.items() if _is_known(name)}
    if "ssl.keystore.location" in settings:
        found["ssl.certificate.location"] = found["ssl.key.location"] = settings["ssl.keystore.location"]
    if settings.get(_ALGORITHM) == "":
        found[_ALGORITHM] = "none"
    login = parse_jaas(settings["sasl.jaas.config"]) if "sasl.jaas.config" in settings else {}
    for name in ("username", "password"):
        if name in login:
            found[f"sasl.{name}"] = login[name]
    return found


def _is_known(name: str) -> bool:
    return (
        name in _LIBRDKAFKA or name.startswith("sasl.oauthbearer.") or not name.startswith(SECURITY_PREFIXES)
    )


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
    return found
