"""The TLS settings of one listener, or of the connections of one client, out of Kafka's config names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.model.errors import InvalidConfig
from penstock.security.tls_names import MappingRule, parse_mapping_rules

__all__ = ["TlsSettings", "tls_settings"]

#: returns the text of a config, None if it is not set
Lookup = Callable[[str], str | None]

_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings of a TLS context. `*_file` are paths, the others are PEM text."""

    keystore_file: str | None = None
    private_key: str | None = field(default=None, repr=False)
    certificate_chain: str | None = None
    key_password: str | None = field(default=None, repr=False)
    truststore_file: str | None = None
    trusted_certificates: str | None = None
    #: certificates that their authorities have revoked
    crl_file: str | None = None
    #: whether an expired revocation list refuses all certificates
    is_strict: bool = False
    #: none, requested or required
    client_auth: str = "none"
    versions: tuple[str, ...] = _VERSIONS
    cipher_suites: tuple[str, ...] = ()
    #: whether a client verifies the host name of the server
    verify_hostname: bool = True
    mapping_rules: tuple[MappingRule, ...] = (MappingRule(None),)
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the settings refer to, which are watched for changes."""
        return tuple(path for path in (self.keystore_file, self.truststore_file, self.crl_file) if path)

    @property
    def has_identity(self) -> bool:
        return bool(self.keystore_file or self.private_key)


def tls_settings(lookup: Lookup) -> TlsSettings:
    """The settings in configs under Kafka's names; InvalidConfig if they contradict each other."""
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        kind = lookup(name)
        if kind and kind.upper() != "PEM" and lookup(name.replace(".type", ".location")):
            raise InvalidConfig(f"{name} is {kind}: only PEM is supported, convert the store with openssl")
    versions = _list(lookup("ssl.enabled.protocols")) or _VERSIONS
    unknown = [version for version in versions if version not in _VERSIONS]
    if unknown:
        raise InvalidConfig(f"ssl.enabled.protocols has {', '.join(unknown)}: use TLSv1.2 and TLSv1.3")
    client_auth = (lookup("ssl.client.auth") or "none").lower()
    settings = TlsSettings(
        keystore_file=lookup("ssl.keystore.location") or None,
        private_key=lookup("ssl.keystore.key") or None,
        certificate_chain=lookup("ssl.keystore.certificate.chain") or None,
        key_password=lookup("ssl.key.password") or None,
        truststore_file=lookup("ssl.truststore.location") or None,
        trusted_certificates=lookup("ssl.truststore.certificates") or None,
        crl_file=lookup("ssl.crl.location") or None,
        is_strict=lookup("penstock.security.strict") == "true",
        client_auth=client_auth,
        versions=versions,
        cipher_suites=_list(lookup("ssl.cipher.suites")),
        verify_hostname=(_text(lookup, "ssl.endpoint.identification.algorithm", "https")) != "",
        mapping_rules=parse_mapping_rules(lookup("ssl.principal.mapping.rules") or "DEFAULT"),
        allow_dn_changes=lookup("ssl.allow.dn.changes") == "true",
        allow_san_changes=lookup("ssl.allow.san.changes") == "true",
    )
    if (settings.private_key is None) != (settings.certificate_chain is None):
        raise InvalidConfig("ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both")
    if settings.private_key and settings.keystore_file:
        raise InvalidConfig("ssl.keystore.key and ssl.keystore.location contradict each other: keep one")
    if settings.trusted_certificates and settings.truststore_file:
        raise InvalidConfig(
            "ssl.truststore.certificates and ssl.truststore.location contradict each other: keep one"
        )
    return settings


def _text(lookup: Lookup, name: str, default: str) -> str:
    text = lookup(name)
    return default if text is None else text.strip()


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
