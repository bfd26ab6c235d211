"""Builds TLS contexts out of settings, and replaces them when files or configs change.

A new context is built aside, from the certificate, the key and the trusted certificates together, and then
swapped in: connections that exist keep the old one, and half a change never takes effect.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from penstock.model.errors import InvalidConfig
from penstock.security.revocation_lists import RevocationLists, parse_revocation_lists
from penstock.security.tls_names import alternative_names, expiry_of, subject_name
from penstock.security.tls_settings import TlsSettings

__all__ = ["RevocableContext", "TlsContexts", "client_context", "server_context"]

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: bytes of a file with revocation lists
_CRL_BYTES_MAX: Final = 32 << 20
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class RevocableContext(ssl.SSLContext):
    """A context with the revocation lists that certificates of its peers must not be on."""

    revocations: RevocationLists | None = None


def server_context(settings: TlsSettings) -> RevocableContext:
    """The context of a listener; InvalidConfig if a file is missing or malformed."""
    if not settings.has_identity:
        raise InvalidConfig(
            "a TLS listener needs a certificate: set ssl.keystore.location to a PEM file with the private "
            "key and its certificates, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    context = RevocableContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    _configure(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if context.verify_mode is not ssl.CERT_NONE:
        if not (settings.truststore_file or settings.trusted_certificates):
            raise InvalidConfig(
                f"ssl.client.auth is {settings.client_auth}, which needs ssl.truststore.location or "
                f"ssl.truststore.certificates"
            )
        # A ticket outlives the removal of the authority that had signed the client's certificate.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    else:
        # A client needs one ticket to resume its session; OpenSSL would make two.
        context.num_tickets = 1
    return context


def client_context(settings: TlsSettings) -> RevocableContext:
    """The context of connections to other nodes; without trusted certificates, the system's are used."""
    context = RevocableContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_hostname
    if not (settings.truststore_file or settings.trusted_certificates):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _configure(context, settings)
    return context


def _configure(context: RevocableContext, settings: TlsSettings) -> None:
    wanted = [_VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    # TLS 1.3 suites have names of their own and are all sound; the list selects those of TLS 1.2.
    suites = [suite for suite in settings.cipher_suites if not suite.startswith(("TLS_AES", "TLS_CHACHA"))]
    if suites:
        try:
            context.set_ciphers(":".join(_openssl_name(suite) for suite in suites))
        except ssl.SSLError as e:
            raise InvalidConfig(f"ssl.cipher.suites: none of {', '.join(suites)} is known to OpenSSL") from e
    try:
        if settings.truststore_file:
            context.load_verify_locations(cafile=settings.truststore_file)
        elif settings.trusted_certificates:
            context.load_verify_locations(cadata=_with_line_breaks(settings.trusted_certificates))
    except (OSError, ValueError) as e:
        where = settings.truststore_file or "ssl.truststore.certificates"
        raise InvalidConfig(f"{where} has no PEM certificates that can be read: {_reason(e)}") from e
    if settings.has_identity:
        _load_identity(context, settings)
    if settings.crl_file:
        _load_revocations(context, settings)


def _load_revocations(context: RevocableContext, settings: TlsSettings) -> None:
    """Check the certificates of peers against the lists.

    OpenSSL checks in the handshake, with the signatures of the lists. It refuses every certificate once a
    list has expired; then, unless strict, only the check after the handshake goes on.
    """
    path = settings.crl_file
    assert path is not None
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(_CRL_BYTES_MAX + 1)
        if len(text) > _CRL_BYTES_MAX:
            raise ValueError(f"it has more than {_CRL_BYTES_MAX} bytes")
        context.revocations = lists = parse_revocation_lists(text)
        if lists.is_expired(time.time()) and not settings.is_strict:
            return
        # Not the file itself, which may have changed by now.
        with tempfile.NamedTemporaryFile("w", prefix="penstock-", suffix=".crl") as copy:
            copy.write(lists.pem)
            copy.flush()
            context.load_verify_locations(cafile=copy.name)
    except (OSError, ValueError) as e:
        reason = str(e) if isinstance(e, ValueError) and not isinstance(e, ssl.SSLError) else _reason(e)
        raise InvalidConfig(f"ssl.crl.location {path} cannot be used: {reason}") from e
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_identity(context: ssl.SSLContext, settings: TlsSettings) -> None:
    password = settings.key_password or ""
    where = settings.keystore_file or "ssl.keystore.key"
    try:
        with _identity_file(settings) as path:
            # Without a password OpenSSL would prompt on the terminal.
            context.load_cert_chain(path, password=lambda: password)
    except (OSError, ValueError) as e:
        raise InvalidConfig(
            f"{where} has no PEM private key with its certificate that can be read: {_reason(e)}"
        ) from None


@contextmanager
def _identity_file(settings: TlsSettings) -> Iterator[str]:
    """The file with key and certificates: OpenSSL loads a key only from a file. A new one has mode 0600."""
    if settings.keystore_file:
        yield settings.keystore_file
        return
    descriptor, path = tempfile.mkstemp(prefix="penstock-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(_with_line_breaks(settings.private_key or ""))
            file.write("\n")
            file.write(_with_line_breaks(settings.certificate_chain or ""))
        yield path
    finally:
        os.unlink(path)


def _with_line_breaks(pem: str) -> str:
    """PEM as a properties file may have it, on one line, in the form that OpenSSL reads."""
    if "\n" in pem.strip():
        return pem
    for mark in ("-----BEGIN ", "-----END "):
        pem = pem.replace(mark, "\n" + mark)
    return "\n".join(
        line.replace("----- ", "-----\n")
        if line.startswith("-----BEGIN")
        else line.replace(" ", "\n")
        if not line.startswith("-----")
        else line
        for line in pem.splitlines()
    )


def _openssl_name(suite: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`, as Java writes it, in OpenSSL's form."""
    if not suite.startswith("TLS_"):
        return suite
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES")
    name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return name.replace("_", "-").removeprefix("RSA-")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "malformed").replace("_", " ").lower()
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "malformed"


class _Built(NamedTuple):
    """A context, and what it was built of."""

    context: RevocableContext
    settings: TlsSettings
    stamp: tuple[tuple[str, int, int, int], ...]
    certificate: bytes | None
    #: whether a revocation list had expired
    is_expired: bool


class TlsContexts:
    """The current context of a listener or of a client, and how it is replaced."""

    def __init__(self, settings: TlsSettings, *, server: bool) -> None:
        self._build = server_context if server else client_context
        self._built = self._new(settings)

    @property
    def settings(self) -> TlsSettings:
        return self._built.settings

    @property
    def current(self) -> ssl.SSLContext:
        return self._built.context

    def context(self) -> ssl.SSLContext:
        return self._built.context

    @property
    def revocations(self) -> RevocationLists | None:
        """The revocation lists in use."""
        return self._built.context.revocations

    @property
    def has_expired_list(self) -> bool:
        lists = self.revocations
        return lists is not None and lists.is_expired(time.time())

    def _new(self, settings: TlsSettings) -> _Built:
        stamp = _stamp(settings)
        context = self._build(settings)
        lists = context.revocations
        is_expired = lists is not None and lists.is_expired(time.time())
        return _Built(context, settings, stamp, _certificate(settings), is_expired)

    def check(self, settings: TlsSettings) -> None:
        """Raise InvalidConfig if `replace` would; change nothing."""
        self.prepare(settings)

    def prepare(self, settings: TlsSettings) -> _Built:
        """A context for `install`, from files as they are now; InvalidConfig if they cannot be used.

        Takes as long as the revocation lists are large: not on the event loop.
        """
        built = self._new(settings)
        _check_names(settings, self._built.certificate, built.certificate)
        return built

    def install(self, built: _Built) -> None:
        """Use a context for new connections."""
        self._built = built

    def replace(self, settings: TlsSettings) -> None:
        """Use `settings` for new connections, read anew; InvalidConfig keeps the old context."""
        self.install(self.prepare(settings))

    @property
    def expiry(self) -> float | None:
        """When its certificate expires, in seconds since 1970; None if there is none that can be read."""
        try:
            certificate = self._built.certificate
            return None if certificate is None else expiry_of(certificate)
        except ValueError:
            return None

    def has_changed(self) -> bool:
        """Whether a file was modified since it was loaded, or a revocation list has expired since."""
        return _stamp(self.settings) != self._built.stamp or self.has_expired_list != self._built.is_expired


def _stamp(settings: TlsSettings) -> tuple[tuple[str, int, int, int], ...]:
    """Identifies the content of the files without reading them."""
    found = []
    for path in settings.files:
        try:
            status = os.stat(path)
        except OSError:
            found.append((path, -1, -1, -1))
        else:
            found.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _certificate(settings: TlsSettings) -> bytes | None:
    """This side's own certificate in DER: the first of its chain."""
    text = settings.certificate_chain
    if settings.keystore_file:
        # Lines outside of PEM may have any bytes, such as the friendly name of a PKCS#12 export.
        with open(settings.keystore_file, encoding="ascii", errors="replace") as file:
            text = file.read()
    if not text:
        return None
    text = _with_line_breaks(text)
    begin, end = text.find(_BEGIN), text.find(_END)
    return ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)])


def _check_names(settings: TlsSettings, before: bytes | None, after: bytes | None) -> None:
    """Refuse another subject, or fewer host names than the certificate in use has, as Kafka does."""
    if before is None or after is None:
        return
    if not settings.allow_dn_changes and subject_name(before) != subject_name(after):
        raise InvalidConfig("the new certificate has another subject: set ssl.allow.dn.changes to allow it")
    if not settings.allow_san_changes and not alternative_names(before) <= alternative_names(after):
        raise InvalidConfig(
            "the new certificate lacks alternative names of the old one: "
            "set ssl.allow.san.changes to allow it"
        )
