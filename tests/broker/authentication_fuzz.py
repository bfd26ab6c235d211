"""Attacks the listeners of a secured broker before authentication, and measures honest clients meanwhile.

    python -m tests.broker.authentication_fuzz [SECONDS] [SEED]

Garbage, half TLS handshakes, slow handshakes, floods of connections, certificates that are not valid, and
SASL messages and tokens that are malformed, forged, too large or out of order, on listeners of all secured
types. What must hold: honest clients always authenticate and are answered, no handler raises an unexpected
error, memory stays bounded, and nothing is left once the attackers are gone.
"""

from __future__ import annotations

import os
import resource
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from lab.stall_meter import WAIT_MS, StallMeter, machine_scale, thread_of
from penstock.testing import BrokerThread, broker
from penstock.testing.clusters import reserve_port
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import encode_request
from tests.broker.requests import until
from tests.broker.speaker import Speaker
from tests.secured import HOST, pki, versions
from tests.tokens import TokenIssuer

_CONNECTIONS_MAX = 64
_MEMORY_GROWTH_MAX = 200 << 20
_USERS = 'x required user_bob="b";'
_GOOD = b"\0bob\0b"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "x" * 30_000)
#: headers and claims of tokens: no signature, a symmetric key, an unknown key, no JSON
_FORGED = (
    b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IiLCJleHAiOjQwMDAwMDAwMDB9.",
    b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IiLCJleHAiOjQwMDAwMDAwMDB9.AAAA",
    b"eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJib2IifQ.AAAA",
    b"a.b.c",
    b"." * 2000,
)
#: certificates of clients that brokers refuse
_BAD_CERTIFICATES = ("expired", "stranger", "server-only")
#: a ClientHello that promises more than it sends
_HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)


@dataclass
class Outcome:
    """What the attackers did, and how honest clients fared, in seconds per authentication and request."""

    attacks: Counter[str] = field(default_factory=Counter)
    before_s: list[float] = field(default_factory=list)
    during_s: list[float] = field(default_factory=list)
    memory_growth: int = 0
    #: the most processor time that the event loop used while the honest client of the stall meter waited
    loop_ms: float = 0.0
    #: attacks that made it wait for too long, each time
    stalls: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.attacks.total()} attacks {dict(self.attacks)}; honest p99 "
            f"{_p99(self.before_s) * 1000:.1f} ms before, {_p99(self.during_s) * 1000:.1f} ms during "
            f"({len(self.during_s)} logins); longest wait {self.loop_ms:.1f} ms of the loop; memory grew by "
            f"{self.memory_growth >> 20} MiB"
        )


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)] if times else 0.0


@contextmanager
def target(issuer: TokenIssuer) -> Iterator[BrokerThread]:
    certificates = pki()
    reserved = reserve_port()
    internal = reserved.getsockname()[1]
    config = {
        "listeners": f"PLAIN://{HOST}:0,TLS://{HOST}:0,SASL://{HOST}:0,BOTH://{HOST}:0,"
        f"INTERNAL://{HOST}:{internal}",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,BOTH:SASL_SSL,"
        "INTERNAL:SSL",
        "controller.quorum.voters": f"1@{HOST}:{internal}",
        "listener.name.internal.ssl.client.auth": "required",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.jaas.config": _USERS,
        "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
        "connection.failed.authentication.delay.ms": "10",
        # Longer than honest clients take behind all attackers on a busy machine.
        "penstock.authentication.timeout.ms": "5000",
        "penstock.unauthenticated.connections.max.per.ip": str(_CONNECTIONS_MAX),
    }
    with reserved, broker(config=config) as running:
        yield running


class Attackers:
    """Attacks on the listeners of one broker. A seed repeats them in the same order."""

    def __init__(self, ports: dict[str, int], random: Random) -> None:
        self._ports = ports
        self._random = random
        self._open: list[socket.socket] = []
        self._before = random.getstate()
        self.kinds: dict[str, Callable[[socket.socket], None]] = {
            "garbage": self._garbage,
            "half hello": lambda s: s.sendall(_HALF_HELLO[: random.randrange(1, len(_HALF_HELLO))]),
            "half frame": lambda s: s.sendall(struct.pack(">i", 500_000) + bytes(random.randrange(100_000))),
            "large length": lambda s: s.sendall(struct.pack(">i", random.choice((524_289, 1 << 30, -1)))),
            "slow": lambda s: s.sendall(b"\x16"),
            "silent": lambda s: None,
            "sasl": self._sasl,
            "tls then garbage": self._tls_garbage,
            "tls then sasl": lambda s: self._sasl(self._secured(s, None)),
            "bad certificate": lambda s: self._garbage(self._secured(s, random.choice(_BAD_CERTIFICATES))),
        }

    def attack(self) -> str:
        """One attack; its connection stays open, and the oldest are closed."""
        self._before = self._random.getstate()
        return self._attack()

    def repeat(self) -> None:
        """The last attack again, with the same random numbers."""
        after = self._random.getstate()
        self._random.setstate(self._before)
        self._attack()
        self._random.setstate(after)

    def _attack(self) -> str:
        name = self._random.choice(list(self.kinds))
        listener = self._random.choice(list(self._ports))
        with suppress(OSError):
            connected = socket.create_connection((HOST, self._ports[listener]), timeout=5)
            self._open.append(connected)
            self.kinds[name](connected)
        if len(self._open) > 2 * _CONNECTIONS_MAX:
            self._open.pop(0).close()
        return name

    def close(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()

    def _garbage(self, connected: socket.socket) -> None:
        connected.sendall(self._random.randbytes(self._random.randrange(1, 5000)))

    def _sasl(self, connected: socket.socket) -> None:
        mechanism = self._random.choice(_MECHANISMS)
        request = SaslHandshakeRequest(mechanism=mechanism)
        parts = [*encode_request(SASL_HANDSHAKE, self._random.choice((0, 1)), 1, "t", request)]
        for _ in range(self._random.randrange(3)):
            bearer = b"n,,\x01auth=Bearer " + self._random.choice(_FORGED) + b"\x01\x01"
            tokens = (b"n,,n=bob,r=c", b"\0bob\0x", b"", bearer, self._random.randbytes(2000))
            token = self._random.choice(tokens)
            parts += encode_request(SASL_AUTHENTICATE, 2, 1, "t", SaslAuthenticateRequest(auth_bytes=token))
        connected.sendall(b"".join(parts))  # type: ignore[arg-type]

    def _tls_garbage(self, connected: socket.socket) -> None:
        self._garbage(self._secured(connected, None))

    def _secured(self, connected: socket.socket, certificate: str | None) -> ssl.SSLSocket:
        """The connection over TLS, after its handshake; an OSError if the broker refuses it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(pki()[certificate])
        secured = context.wrap_socket(connected, do_handshake_on_connect=False)
        self._open[-1] = secured
        secured.do_handshake()
        return secured


def log_in(ports: dict[str, int], bearer: str) -> float:
    """Honest clients on listeners of all types, and a node; the time that all of them took."""
    token = f"n,,\x01auth=Bearer {bearer}\x01\x01".encode()
    began = monotonic()
    for name in ("TLS", "INTERNAL"):
        assert versions(ports[name], pki().client()).api_keys
    assert versions(ports["PLAIN"]).api_keys
    for name, context in (("SASL", None), ("BOTH", pki().client(None))):
        for mechanism, first in (("PLAIN", _GOOD), ("OAUTHBEARER", token)):
            with Speaker(ports[name], context) as speaker:
                assert speaker.handshake(mechanism) == 0
                assert speaker.token(first) == (0, None)
                assert speaker.call(METADATA, MetadataRequest()).brokers
    return monotonic() - began


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attack(seconds: float, seed: int, *, rounds_min: int = 20) -> Outcome:
    """Attack for a time, and at least so many times."""
    outcome, random = Outcome(), Random(seed)
    with ExitStack() as stack:
        issuer = stack.enter_context(closing(TokenIssuer()))
        running = stack.enter_context(target(issuer))
        issuer.lasts_s = seconds + 600
        bearer = issuer.sign()
        internal = running.broker.stages.listening.internal
        assert internal is not None
        server = running.broker.stages.listening.server
        ports = {
            each.name: each.port for each in (*running.broker.stages.listening.listeners, internal.listener)
        }
        outcome.before_s = [log_in(ports, bearer) for _ in range(rounds_min)]
        memory = _memory()
        attackers = Attackers(ports, random)
        honest = stack.enter_context(StallMeter(ports["PLAIN"], thread_of()))
        scale = machine_scale()
        until_s = monotonic() + seconds
        while monotonic() < until_s or len(outcome.during_s) < rounds_min:
            for _ in range(random.randrange(1, 40)):
                _watched(attackers, honest, scale, outcome)
            outcome.during_s.append(log_in(ports, bearer))
            for each in (server, internal.server):
                assert len(each.unauthenticated) <= 3 * _CONNECTIONS_MAX
                assert each.unauthenticated.pool.held <= each.unauthenticated.pool.limit
        attackers.close()
        until(lambda: len(server.unauthenticated) == 0 and server.unauthenticated.pool.held == 0)
        outcome.memory_growth = _memory() - memory
        assert outcome.memory_growth < _MEMORY_GROWTH_MAX, outcome
        assert not outcome.stalls, outcome.stalls
        log_in(ports, bearer)
    return outcome


def _watched(attackers: Attackers, honest: StallMeter, scale: float, outcome: Outcome) -> None:
    """One attack, repeated if it made the honest client of the meter wait for long."""
    honest.window()
    name = attackers.attack()
    outcome.attacks[name] += 1
    waited = honest.window().loop_ms
    if waited > WAIT_MS * scale:
        waited = honest.stalls(attackers.repeat, scale)
        if waited:
            outcome.stalls.append(f"{name}: {waited:.0f} ms")
    outcome.loop_ms = max(outcome.loop_ms, waited)


def main(arguments: list[str]) -> None:
    seconds = float(arguments[0]) if arguments else 60.0
    seed = int(arguments[1]) if len(arguments) > 1 else int.from_bytes(os.urandom(4), "big")
    print(f"{Path(__file__).stem}: {seconds:g} s, seed {seed}", flush=True)
    print(attack(seconds, seed))


if __name__ == "__main__":
    main(sys.argv[1:])
