"""The table: for each listener and mechanism, the wrong things that a client may do, and the outcome.

An outcome is `served`, `refused` (a TLS handshake), `closed` (without an answer), `error N` and, if the
connection stays open after an error, `error N, open`.
"""

from __future__ import annotations

import ssl
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from differential.negative.credentials import PASSWORD, USER, Credentials
from differential.negative.line import CLOSED, Line, Scram
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.messages import encode_request

__all__ = ["MECHANISMS", "SASL", "TLS", "Cell", "Ports", "cells"]

SASL: Final = "SASL"
TLS: Final = "TLS"
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
#: `sasl.server.max.receive.size`
_RECEIVE_MAX: Final = 524_288

Probe = Callable[[Line], str]


class Ports(NamedTuple):
    """Where the listeners of a broker are."""

    tls: int
    sasl: int


class Cell(NamedTuple):
    """One wrong thing, or one right one. `probe` returns its outcome and the text of the error."""

    listener: str
    mechanism: str
    wrong: str
    probe: Callable[[Ports], tuple[str, str | None]]

    @property
    def name(self) -> str:
        return f"{self.listener}/{self.mechanism}/{self.wrong}"


def cells(credentials: Credentials) -> Iterator[Cell]:
    """All cells of the matrix."""
    yield from _tls_cells(credentials)
    for mechanism in MECHANISMS:
        wrongs: dict[str, Probe] = {**_of_every(mechanism, credentials)}
        if mechanism == PLAIN:
            wrongs |= _of_plain()
        elif mechanism == OAUTHBEARER:
            wrongs |= _of_oauthbearer(credentials)
        else:
            wrongs |= _of_scram(mechanism)
        for wrong, probe in wrongs.items():
            yield Cell(SASL, mechanism, wrong, _on_sasl(probe))


def _on_sasl(probe: Probe) -> Callable[[Ports], tuple[str, str | None]]:
    def run(ports: Ports) -> tuple[str, str | None]:
        with Line(ports.sasl) as line:
            outcome = probe(line)
            if outcome.startswith("error") and not line.ends():
                outcome += ", open"
            return outcome, line.message

    return run


# -- TLS


def _tls_cells(credentials: Credentials) -> Iterator[Cell]:
    certificates = {
        "a good certificate": "good",
        "no certificate": None,
        "an expired certificate": "expired",
        "a certificate of another authority": "stranger",
        "a certificate for servers only": "server-only",
    }
    for wrong, store in certificates.items():
        yield Cell(TLS, "certificate", wrong, _with_certificate(credentials, store))
    yield Cell(TLS, "certificate", "TLS 1.1", _with_certificate(credentials, "good", old=True))
    yield Cell(TLS, "certificate", "a plaintext request", lambda ports: (_served(Line(ports.tls)), None))
    yield Cell(TLS, "certificate", "garbage", _garbage)


def _with_certificate(
    credentials: Credentials, store: str | None, *, old: bool = False
) -> Callable[[Ports], tuple[str, str | None]]:
    def run(ports: Ports) -> tuple[str, str | None]:
        context = ssl.create_default_context(cafile=str(credentials.store("ca")))
        if store is not None:
            context.load_cert_chain(credentials.store(store))
        if old:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.set_ciphers("ALL:@SECLEVEL=0")
        try:
            line = Line(ports.tls, context)
        except OSError:
            return "refused", None
        return _served(line), None

    return run


def _served(line: Line) -> str:
    with line:
        return "refused" if line.call(API_VERSIONS, _hello()) is None else "served"


def _garbage(ports: Ports) -> tuple[str, None]:
    with Line(ports.tls) as line:
        line.socket.sendall(b"\x16\x03\x01\x00\x10" + b"not a hello     ")
        try:
            while line.socket.recv(1000):
                pass
        except OSError:
            pass
        return "refused", None


def _hello() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="matrix", client_software_version="1")


# -- wrong things of every mechanism


def _of_every(mechanism: str, credentials: Credentials) -> dict[str, Probe]:
    def after_handshake(step: Probe) -> Probe:
        def run(line: Line) -> str:
            assert line.handshake(mechanism) == "served"
            return step(line)

        return run

    return {
        "good credentials": after_handshake(lambda line: _good(line, mechanism, credentials)),
        "a request before the handshake": lambda line: line.error(
            DESCRIBE_CLUSTER, DescribeClusterRequest(), 0
        ),
        "a token before the handshake": lambda line: line.token(b"token"),
        "another mechanism": lambda line: line.handshake("GSSAPI"),
        "no mechanism": lambda line: line.handshake(""),
        "an unknown version of SaslHandshake": lambda line: _unknown_version(line, 17, 99),
        "ApiVersions twice": _hello_twice,
        "a second handshake": after_handshake(lambda line: line.handshake(mechanism)),
        "ApiVersions after the handshake": after_handshake(lambda line: line.error(API_VERSIONS, _hello())),
        "a request after the handshake": after_handshake(_describe),
        "a token that is too large": after_handshake(_too_large),
        "an empty token": after_handshake(lambda line: line.token(b"")),
        "a token of garbage": after_handshake(lambda line: line.token(b"\xff\x00\xfe,,=")),
        "an unknown version of SaslAuthenticate": after_handshake(
            lambda line: _unknown_version(line, SASL_AUTHENTICATE.key, 99)
        ),
        "a cut request": after_handshake(_cut),
    }


def _good(line: Line, mechanism: str, credentials: Credentials) -> str:
    if mechanism == PLAIN:
        outcome = line.token(_plain(USER, PASSWORD))
    elif mechanism == OAUTHBEARER:
        outcome = line.token(_bearer(credentials.token()))
    else:
        outcome = _scram(mechanism)(line)
    if outcome != "served":
        return outcome
    # The internal listener answers with an error of its own, because this request is for brokers.
    return CLOSED if line.call(DESCRIBE_CLUSTER, DescribeClusterRequest(), 0) is None else "served"


def _describe(line: Line) -> str:
    return line.error(DESCRIBE_CLUSTER, DescribeClusterRequest(), 0)


def _unknown_version(line: Line, key: int, version: int) -> str:
    line.send(struct.pack(">hhih", key, version, 7, -1))
    frame = line.receive()
    return CLOSED if frame is None else f"error {struct.unpack_from('>h', frame, 4)[0]}"


def _hello_twice(line: Line) -> str:
    assert line.call(API_VERSIONS, _hello()) is not None
    return line.error(API_VERSIONS, _hello())


def _too_large(line: Line) -> str:
    line.socket.sendall(struct.pack(">i", _RECEIVE_MAX + 1))
    return CLOSED if line.receive() is None else "served"


def _cut(line: Line) -> str:
    """A SaslAuthenticate request whose token is longer than the request."""
    parts = encode_request(SASL_AUTHENTICATE, 1, 7, "matrix", SaslAuthenticateRequest(auth_bytes=bytes(50)))
    whole = b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]
    line.send(whole[:-40])
    return CLOSED if line.receive() is None else "served"


# -- PLAIN


def _plain(user: str, password: str, authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def _of_plain() -> dict[str, Probe]:
    tokens = {
        "a wrong password": _plain(USER, "wrong"),
        "an unknown user": _plain("eve", PASSWORD),
        "an empty password": _plain(USER, ""),
        "an empty user": _plain("", PASSWORD),
        "another authorisation id": _plain(USER, PASSWORD, "admin"),
        "a token with too few parts": f"{USER}\0{PASSWORD}".encode(),
        "a token with too many parts": _plain(USER, PASSWORD) + b"\0more",
        "a user that is not UTF-8": b"\0\xff\xfe\0" + PASSWORD.encode(),
    }
    return {wrong: _after("PLAIN", token) for wrong, token in tokens.items()}


def _after(mechanism: str, token: bytes) -> Probe:
    def run(line: Line) -> str:
        assert line.handshake(mechanism) == "served"
        return line.token(token)

    return run


# -- SCRAM


def _scram(
    mechanism: str,
    exchange: Scram | None = None,
    *,
    first: Callable[[bytes], bytes] = lambda message: message,
    change: Callable[[str], str] = lambda text: text,
    last: Callable[[bytes], bytes] = lambda message: message,
) -> Probe:
    exchange = exchange or Scram(mechanism)

    def run(line: Line) -> str:
        challenge = line.challenge(first(exchange.first()))
        if challenge is None:
            return CLOSED if line.message is None else "error 58"
        return line.token(last(exchange.last(challenge, change)))

    return run


def _of_scram(mechanism: str) -> dict[str, Probe]:
    probes: dict[str, Probe] = {
        "a wrong password": _scram(mechanism, Scram(mechanism, password="wrong")),
        "an unknown user": _scram(mechanism, Scram(mechanism, user="eve")),
        "another authorisation id": _scram(mechanism, Scram(mechanism, authzid="admin")),
        "another nonce in the last message": _scram(mechanism, change=_other_nonce),
        "another channel binding in the last message": _scram(
            mechanism, change=lambda text: text.replace("c=biws", "c=eSws")
        ),
        "a last message without a proof": _scram(mechanism, last=lambda m: m.partition(b",p=")[0]),
        "an empty proof": _scram(mechanism, last=lambda m: m.partition(b",p=")[0] + b",p="),
        "a proof of another length": _scram(mechanism, last=lambda m: m.partition(b",p=")[0] + b",p=AAAA"),
        "channel binding": _scram(mechanism, first=lambda m: m.replace(b"n,,", b"p=tls-unique,,", 1)),
        "a mandatory extension": _scram(mechanism, first=lambda m: m.replace(b"n,,", b"n,,m=ext,", 1)),
        "a first message without a nonce": _scram(mechanism, first=lambda m: m.partition(b",r=")[0]),
        "a first message without a user": _scram(mechanism, first=lambda m: b"n,,r=clientnonce"),
        "a token of PLAIN": lambda line: line.token(_plain(USER, PASSWORD)),
    }

    def begun(probe: Probe) -> Probe:
        def run(line: Line) -> str:
            assert line.handshake(mechanism) == "served"
            return probe(line)

        return run

    return {wrong: begun(probe) for wrong, probe in probes.items()}


def _other_nonce(text: str) -> str:
    return text[:-1] + ("x" if text[-1] != "x" else "y")


# -- OAUTHBEARER


def _bearer(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def _of_oauthbearer(credentials: Credentials) -> dict[str, Probe]:
    tokens: dict[str, Callable[[], bytes]] = {
        "a token without a signature (alg none)": lambda: _bearer(credentials.unsigned_token()),
        "a token signed with the public key (HS256)": lambda: _bearer(credentials.confused_token()),
        "a token signed with another key": lambda: _bearer(credentials.token(forged=True)),
        "a token with an unknown key id": lambda: _bearer(credentials.token(key_id="k2")),
        "an expired token": lambda: _bearer(credentials.token(iat=1, exp=1000)),
        "a token without an expiry": lambda: _bearer(credentials.token(exp=None)),
        "a token of another issuer": lambda: _bearer(credentials.token(iss="https://other.example")),
        "a token for another audience": lambda: _bearer(credentials.token(aud="others")),
        "a token without a user": lambda: _bearer(credentials.token(sub=None)),
        "a token that is no JWT": lambda: _bearer("abcdef"),
        "another authorisation id": lambda: _bearer(credentials.token(), "n,a=admin,"),
        "a message without a token": lambda: b"n,,\x01auth=Bearer \x01\x01",
        "channel binding": lambda: _bearer(credentials.token(), "p=tls-unique,,"),
    }

    def probe(token: Callable[[], bytes]) -> Probe:
        def run(line: Line) -> str:
            assert line.handshake(OAUTHBEARER) == "served"
            challenge = line.challenge(token())
            if challenge is None:
                return CLOSED if line.message is None else "error 58"
            # An accepted token is answered with nothing, a refused one with a challenge first (RFC 7628).
            return "served" if not challenge else line.token(b"\x01")

        return run

    return {wrong: probe(token) for wrong, token in tokens.items()}
