"""Finds the reason why no broker accepts a client: its login, a certificate, or the protocol of a listener.

librdkafka reports refused logins and failed TLS handshakes to `error_cb`, and tries again. It does not report
that a listener expects TLS or a login which the client does not use: the broker only closes the connection.
`examined` connects to the listener then, and looks.

Used by: the clients, and the command line.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

from penstock.model.addresses import parse_address

__all__ = ["Cause", "Causes", "Kind"]

#: how long one attempt to find out may take
_LOOK_S: Final = 1.0
#: what librdkafka adds to its messages: the broker in front, and the state at the end
_WHERE: Final = re.compile(r"^(?:\w+://)?(?P<address>\S+)/\w+: ")
_WHEN: Final = re.compile(r" \(after \d+ms in state [^)]*\)$")
_WHAT: Final = re.compile(r"^(SASL authentication error|SSL handshake failed): ")
_UNTRUSTED: Final = "certificate verify failed"
#: in front of the errors of connections that are not librdkafka's
_HANDSHAKE_FAILED: Final = "TLS handshake failed: "
_NO_LOGIN: Final = "not valid in current SASL state"
#: SaslHandshake version 0 of the mechanism PLAIN: header with the client id "probe", then the mechanism
_HANDSHAKE: Final = struct.pack(">hhih5sh5s", 17, 0, 0, 5, b"probe", 5, b"PLAIN")
_ILLEGAL_SASL_STATE: Final = 34
_LARGEST_RESPONSE: Final = 64 * 1024
_MECHANISMS: Final = 16


class Kind(Enum):
    """What does not fit; the remedy depends on it."""

    LOGIN = auto()
    CERTIFICATE = auto()
    TLS = auto()
    TLS_MISSING = auto()
    TLS_UNEXPECTED = auto()
    LOGIN_MISSING = auto()
    LOGIN_UNEXPECTED = auto()


class Cause(NamedTuple):
    """The reason, with the address of the broker, and librdkafka's code for it."""

    kind: Kind
    text: str
    code: int


class Causes:
    """The reasons of one client. `settings` are its settings under librdkafka's names."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self._addresses = [address.strip() for address in bootstrap.split(",")]
        self._settings = settings
        self._protocol = str(settings.get("security.protocol", "plaintext")).lower()
        #: the first reason that librdkafka has reported
        self.reported: Cause | None = None
        #: whether it says why a certificate is not valid
        self._is_detailed = False

    def note(self, error: KafkaError) -> None:
        """Take an error of `error_cb`."""
        if self.reported is None:
            self.reported = _reported(error, str(self._settings.get("sasl.username", "")))

    def note_own(self, text: str, *, is_login: bool) -> None:
        """Take the error of a connection that is not one of librdkafka's, which begins with its address."""
        if self.reported is not None:
            return
        address, _, detail = text.partition(": ")
        if is_login:
            self.reported = Cause(
                Kind.LOGIN, f"{address} refuses the login: {detail}", KafkaError._AUTHENTICATION
            )
        else:
            self.reported = _of_tls(address, detail)
            self._is_detailed = True

    def examined(self, look_s: float = _LOOK_S) -> Cause | None:
        """The reason, if one can be found; connects to the bootstrap addresses, so it takes some time."""
        if self.reported is not None and self.reported.kind is Kind.CERTIFICATE:
            return self.reported if self._is_detailed else self._with_detail(self.reported, look_s)
        if self.reported is not None and self.reported.kind is not Kind.TLS:
            return self.reported
        found = (self._mismatch(address, look_s) for address in self._addresses)
        return next((cause for cause in found if cause is not None), self.reported)

    def _mismatch(self, address: str, look_s: float) -> Cause | None:
        """What the listener expects and the client does not use."""
        if "ssl" in self._protocol:
            if _mechanisms(address, look_s) is None:
                return None
            text = f"{address} does not use TLS, and the client does"
            return Cause(Kind.TLS_UNEXPECTED, text, KafkaError._SSL)
        if _speaks_tls(address, look_s):
            text = f"{address} expects TLS, and the client connects without it"
            return Cause(Kind.TLS_MISSING, text, KafkaError._SSL)
        mechanisms = _mechanisms(address, look_s)
        if "sasl" in self._protocol:
            # One that has a login reports itself what it does not accept.
            text = f"{address} has no login, and the client uses SASL"
            unexpected = Cause(Kind.LOGIN_UNEXPECTED, text, KafkaError._AUTHENTICATION)
            return unexpected if mechanisms == [] else None
        if mechanisms:
            text = f"{address} expects a login ({', '.join(mechanisms)}), and the client has none"
            return Cause(Kind.LOGIN_MISSING, text, KafkaError._AUTHENTICATION)
        return None

    def _with_detail(self, cause: Cause, look_s: float) -> Cause:
        """Why the certificate is not valid: librdkafka does not say whether it is the issuer or the host."""
        authority = self._settings.get("ssl.ca.location")
        if self._settings.get("ssl.ca.pem") is not None:
            return cause
        checks_host = self._settings.get("ssl.endpoint.identification.algorithm") != "none"
        for address in self._addresses:
            complaint = _certificate_complaint(address, authority, checks_host, look_s)
            if complaint is not None:
                return cause._replace(text=f"the certificate of {address} is not valid: {complaint}")
        return cause


def _reported(error: KafkaError, user: str) -> Cause | None:
    code, text = error.code(), _WHEN.sub("", error.str())
    where = _WHERE.match(text)
    address = "the broker" if where is None else where["address"]
    detail = _WHAT.sub("", _WHERE.sub("", text))
    if code == KafkaError._AUTHENTICATION:
        if _NO_LOGIN in detail:
            return Cause(Kind.LOGIN_UNEXPECTED, f"{address} has no login, and the client uses SASL", code)
        of_user = f" of user {user}" if user else ""
        return Cause(Kind.LOGIN, f"{address} refuses the login{of_user}: {detail}", code)
    if code in (KafkaError._SSL, KafkaError._TRANSPORT):
        return _of_tls(address, detail)
    return None


def _of_tls(address: str, detail: str) -> Cause | None:
    """The reason of a failed handshake; None for errors of another kind."""
    if _UNTRUSTED in detail.lower():
        _, _, why = detail.removeprefix(_HANDSHAKE_FAILED).partition(f"{_UNTRUSTED}: ")
        why = why if detail.startswith(_HANDSHAKE_FAILED) else ""
        reason = why or "no authority that the client trusts has issued it"
        text = f"the certificate of {address} is not valid: {reason}"
        return Cause(Kind.CERTIFICATE, text, KafkaError._SSL)
    if "SSL" in detail or "TLS" in detail:
        return Cause(Kind.TLS, f"no TLS connection to {address}: {detail}", KafkaError._SSL)
    return None


def _speaks_tls(address: str, look_s: float) -> bool:
    """Whether a TLS handshake succeeds, or fails with an alert of the other side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is not about trust, and nothing is sent
    try:
        with socket.create_connection(parse_address(address), look_s) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False


def _certificate_complaint(address: str, authority: Any, checks_host: bool, look_s: float) -> str | None:
    """What a verification of the broker's certificate complains about; None if it does not."""
    try:
        context = ssl.create_default_context(cafile=authority)
        context.check_hostname = checks_host
        host, port = parse_address(address)
        with socket.create_connection((host, port), look_s) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return str(error.verify_message)
    except (OSError, ValueError):
        return None
    return None


def _mechanisms(address: str, look_s: float) -> list[str] | None:
    """The SASL mechanisms of a listener without TLS, which may have none; None if it does not respond."""
    try:
        with socket.create_connection(parse_address(address), look_s) as plain:
            plain.sendall(struct.pack(">i", len(_HANDSHAKE)) + _HANDSHAKE)
            with plain.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                content = stream.read(min(size, _LARGEST_RESPONSE))
        _, code, count = struct.unpack_from(">ihi", content)
        if code == _ILLEGAL_SASL_STATE:
            return []
        names, at = [], 10
        for _ in range(min(count, _MECHANISMS)):
            (length,) = struct.unpack_from(">H", content, at)
            names.append(content[at + 2 : at + 2 + length].decode())
            at += 2 + length
    except (OSError, ValueError, struct.error):  # no broker, or another protocol
        return None
    return names
