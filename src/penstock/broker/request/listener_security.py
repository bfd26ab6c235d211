"""Builds TLS and SASL of the listeners out of the broker's configs, and loads certificates again.

A broker without a secured listener never imports OpenSSL.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.base.audit_details import shown
from penstock.broker.base.logs import get_logger
from penstock.broker.base.secret_files import exposure_of
from penstock.broker.request.certificate_reloads import CertificateReloads
from penstock.broker.request.metadata_tokens import MetadataTokens
from penstock.broker.request.metadata_users import MetadataUsers
from penstock.model.config import BrokerConfig
from penstock.model.config.security_keys import ALLOW, REQUIRE
from penstock.model.errors import InvalidConfig
from penstock.net.listener import Listener
from penstock.observability.limited_log import LimitedLog
from penstock.ports import World
from penstock.security.console_visitors import ConsoleVisitors
from penstock.security.mechanism_checks import check_mechanisms
from penstock.security.mechanisms import MECHANISMS, mechanism_named, uses_tokens
from penstock.security.principal import Session
from penstock.security.revocation_lists import RevocationLists
from penstock.security.sasl import TOKEN_MAX, Exchange, Identity, ServerSide
from penstock.security.sasl_users import ConfiguredUsers, parse_jaas
from penstock.security.tls_settings import TlsSettings, tls_settings

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity
    from penstock.net.handshake_turns import HandshakeTurns
    from penstock.net.secure_listener import SecureListener
    from penstock.net.tls_contexts import TlsContexts

__all__ = ["ListenerSecurities"]

log = get_logger("security")
#: how often files are looked at
_WATCH_S: Final = 2.0
#: characters of a client id that are kept for the audit
_CLIENT_ID_MAX: Final = 256


class ListenerSecurities:
    """Security of all listeners of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        *,
        users: MetadataUsers,
        tokens: MetadataTokens | None,
        on_success: Callable[[Session, str], None],
        on_failure: Callable[[Session, str, str], None],
        on_revoked: Callable[[str, RevocationLists], Awaitable[None]],
    ) -> None:
        """`users` and delegation `tokens` are those of the metadata; None if tokens are disabled.

        `on_success` gets the session and the mechanism of each authentication, `on_failure` also the reason.
        `on_revoked` gets a listener and its revocation lists after a reload: open connections may be on them.
        """
        self._config = config
        self._world = world
        self._secret = b""
        self._secured: dict[str, SecureListener] = {}
        self._turns: HandshakeTurns | None = None
        self._client: ClientSecurity | None = None
        self._client_listener = ""
        self._verifiers: list[Any] = []
        self._dynamic: dict[str, str] = {}
        #: by mechanism and result
        self.authentications: Counter[tuple[str, str]] = Counter()
        self._visitors = ConsoleVisitors(config.penstock_console_addresses)
        self._warn = LimitedLog(lambda event, **fields: log.warning(event, **fields), world.clock.monotonic)
        self._watch: asyncio.Task[None] | None = None
        #: the users of the config, by listener and mechanism
        self._configured: list[ConfiguredUsers] = []
        self._users = users
        self._tokens = tokens
        self._on_success = on_success
        self._on_failure = on_failure
        #: loads certificates and revocation lists again
        self.reloads = CertificateReloads(
            self._contexts, self._tls_settings, lambda *work: world.workers.in_thread(*work), on_revoked
        )

    def secure(self, listener: Listener) -> None:
        """Set the security of a listener by its protocol; InvalidConfig if configs are missing."""
        check_mechanisms(self._config)
        protocol = listener.security_protocol
        if protocol == "PLAINTEXT":
            return
        from penstock.net.handshake_turns import HandshakeTurns
        from penstock.net.secure_listener import SecureListener

        loop = asyncio.get_running_loop()
        if self._turns is None:
            self._turns = HandshakeTurns(loop)
        self._secret = self._secret or self._world.rng.token(32)
        tls = None
        if protocol.endswith("SSL"):
            from penstock.net.tls_contexts import TlsContexts

            with _naming(listener.name):
                tls = TlsContexts(self._tls_settings(listener.name, protocol), server=True)
        with _naming(listener.name):
            sasl = self._sasl(listener.name) if protocol.startswith("SASL_") else None
        lookup = self._config.for_listener(listener.name)
        secured = SecureListener(
            loop,
            tls,
            sasl,
            refused=self._refused,
            failed=self._handshake_failed,
            accepted=self._accepted,
            accepts_plaintext=self._is_in_transition(listener),
            failure_delay_s=int(lookup("connection.failed.authentication.delay.ms") or 0) / 1000,
            turns=self._turns,
        )
        self._secured[listener.name] = secured
        listener.security = secured

    def _is_in_transition(self, listener: Listener) -> bool:
        """Whether the listener is the internal one, and serves nodes that do not use TLS yet."""
        if not self._is_internal(listener.name):
            return False
        mode = self._config.penstock_internal_tls_mode
        if mode == REQUIRE or not listener.security_protocol.endswith("SSL"):
            return False
        reason = "nodes without TLS are served: set penstock.internal.tls.mode=require after the move"
        log.warning("internal_listener_accepts_plaintext", listener=listener.name, mode=mode, reason=reason)
        return True

    def _is_internal(self, name: str) -> bool:
        internal = self._config.internal_endpoint
        return internal is not None and name == internal.name

    def _tls_settings(self, name: str, protocol: str, config: BrokerConfig | None = None) -> TlsSettings:
        """The settings in `config`, or in the current one."""
        config = config or self._config
        settings = tls_settings(config.for_listener(name))
        if protocol.startswith("SASL_") and settings.client_auth != "none":
            # Like Kafka: on SASL_SSL only a config of this very listener requires client certificates.
            own = f"listener.name.{name.lower()}.ssl.client.auth"
            if own not in config:
                settings = replace(settings, client_auth="none")
        if settings.is_strict and settings.keystore_file:
            exposure = exposure_of(settings.keystore_file)
            if exposure is not None:
                raise InvalidConfig(
                    f"ssl.keystore.location {settings.keystore_file}: {exposure} (penstock.security.strict)"
                )
        return settings

    def client(self, listener: Listener) -> ClientSecurity | None:
        """How this broker connects to the internal listeners of other nodes."""
        if listener.security_protocol == "PLAINTEXT":
            return None
        if listener.security_protocol.endswith("SSL") and self._config.penstock_internal_tls_mode == ALLOW:
            return None
        from penstock.net.client_security import client_security

        mechanism = self._config.sasl_mechanism_inter_broker_protocol
        with _naming(listener.name):
            self._client = client_security(
                listener.security_protocol,
                self._config.for_listener(listener.name, mechanism),
                self._nonce,
                mechanism=mechanism,
                in_thread=self._world.workers.in_thread,
            )
        self._client_listener = listener.name
        return self._client

    # -- SASL

    def _sasl(self, name: str) -> Any:
        from penstock.net.sasl_gate import SaslServer
        from penstock.net.token_turns import TokenTurns

        lookup = self._config.for_listener(name)
        mechanisms = [m.strip() for m in (lookup("sasl.enabled.mechanisms") or "").split(",") if m.strip()]
        if not mechanisms:
            raise InvalidConfig(
                f"sasl.enabled.mechanisms is empty: set one or more of {', '.join(MECHANISMS)}"
            )
        has_tokens = any(map(uses_tokens, mechanisms)) or self._tokens is not None
        turns = TokenTurns(self._world.workers.in_thread) if has_tokens else None
        return SaslServer(
            mechanisms={mechanism: self._exchanges(name, mechanism) for mechanism in mechanisms},
            wall_clock=lambda: self._world.clock.now_ms() / 1000,
            max_receive_bytes=int(lookup("sasl.server.max.receive.size") or 0),
            max_session_s=int(lookup("connections.max.reauth.ms") or 0) / 1000,
            failure_delay_s=int(lookup("connection.failed.authentication.delay.ms") or 0) / 1000,
            in_turn=None if turns is None else turns.run,
            admits=self._admits,
            outcome=self._outcome,
        )

    def _admits(self, connection: Any, client_id: str | None) -> str | None:
        """Note the client id, and the browser behind it; why the browser is refused, or None."""
        visitor = self._visitors.of(connection.address, client_id)
        stated = (client_id or "")[:_CLIENT_ID_MAX]
        connection.session = replace(connection.session, client_id=stated, visitor=visitor)
        return f"{visitor} has failed too often" if visitor and connection.has_failed_often() else None

    def _outcome(self, connection: Any, mechanism: str, reason: str | None) -> None:
        self.authentications[mechanism, "success" if reason is None else "failure"] += 1
        session = connection.session
        if reason is None:
            principal = str(session.principal)
            log.debug("authenticated", peer=connection.peer, principal=principal, mechanism=mechanism)
            self._on_success(session, mechanism)
            return
        self._warn(
            "authentication_failed",
            peer=connection.peer,
            listener=session.listener,
            mechanism=mechanism,
            user=shown(session.claimed),
            reason=reason,
        )
        self._failed(connection, mechanism, reason)

    def _accepted(self, connection: Any) -> None:
        """A client's certificate has a principal."""
        self._on_success(connection.session, "TLS")

    def _refused(self, connection: Any, reason: str) -> None:
        """A client's certificate has no principal."""
        self.authentications["TLS", "failure"] += 1
        self._warn("authentication_failed", peer=connection.peer, mechanism="TLS", reason=reason)
        self._failed(connection, "TLS", reason)

    def _handshake_failed(self, connection: Any, reason: str) -> None:
        """A TLS handshake has failed. The server logs and counts it."""
        self._failed(connection, "TLS", reason)

    def _failed(self, connection: Any, mechanism: str, reason: str) -> None:
        connection.count_failed_authentication()
        self._on_failure(connection.session, mechanism, reason)

    def certificate_expiries(self) -> dict[str, float]:
        """When the certificate of each TLS listener expires, in seconds since 1970."""
        found = {name: contexts.expiry for name, contexts, _ in self._contexts()}
        return {name: expiry for name, expiry in found.items() if expiry is not None}

    def _exchanges(self, name: str, mechanism: str) -> Callable[[], Exchange]:
        lookup = self._config.for_listener(name, mechanism)
        for result in ("success", "failure"):
            # A rate needs a sample before the first failure.
            self.authentications[mechanism, result] += 0
        made = mechanism_named(mechanism)
        if made.uses_tokens:
            from penstock.broker.base.bearer_tokens import BearerTokens

            tokens = BearerTokens(lookup, self._world.workers.in_thread)
            self._verifiers.append(tokens)
            verify: Callable[[str], Identity] | None = tokens.verify
            options: dict[str, str] = {}
        else:
            verify = None
            options = parse_jaas(lookup("sasl.jaas.config") or "x required;")
        users = ConfiguredUsers(made, options, lambda: self._users)
        self._configured.append(users)

        # Nodes have logins of their own.
        delegated = None if self._is_internal(name) else self._tokens
        token_max = int(lookup("penstock.sasl.oauthbearer.token.bytes.max") or TOKEN_MAX)

        def exchange() -> Exchange:
            # The secret changes once the metadata has a key for salts.
            return made.server(ServerSide(users, self._nonce, self._secret, verify, token_max, delegated))

        return exchange

    def _nonce(self) -> str:
        return b64encode(self._world.rng.token(24)).decode().rstrip("=")

    # -- reload

    async def start(self) -> None:
        """Load the keys of tokens, and watch the files of certificates from now on."""
        for verifier in self._verifiers:
            await verifier.load()
        await self._use_secret(self._secret)
        self.reloads.warn()
        if self._secured and self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._keep_current())

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _keep_current(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                for verifier in self._verifiers:
                    await verifier.refresh_if_due()
                await self.use_salt_key()
                await self.reloads.reload(changed_only=True)
            except Exception as e:  # noqa: BLE001 - withdrawn keys would stay valid if this task ended
                log.error("listener_security_not_refreshed", error=repr(e))

    @property
    def has_salt_key(self) -> bool:
        """Whether salts are derived from the key in the metadata."""
        return self._users.salt_key() == self._secret

    async def use_salt_key(self) -> None:
        """Derive salts from the key in the metadata: then all brokers have the same ones after each start."""
        if not self._configured:
            return
        key = self._users.salt_key()
        if key is not None and key != self._secret:
            await self._use_secret(key)

    async def _use_secret(self, secret: bytes) -> None:
        in_thread = self._world.workers.in_thread
        derived = [await in_thread(users.credentials, secret) for users in self._configured]
        self._secret = secret
        for users, credentials in zip(self._configured, derived, strict=True):
            users.install(credentials)

    def depends_on(self, config: BrokerConfig) -> bool:
        """Whether dynamic configs have set TLS of a listener: an update reloads even an unchanged path."""
        found = {name: value for name, value in config.dynamic.items() if "ssl." in name}
        changed = bool(self._secured) and found != self._dynamic
        self._dynamic = found
        return changed

    def check(self, config: BrokerConfig) -> None:
        """Raise InvalidConfig if the listeners could not be secured with `config`."""
        check_mechanisms(config)
        for name, contexts, protocol in self._contexts():
            with _naming(name):
                contexts.check(self._tls_settings(name, protocol, config))

    def _contexts(self) -> Iterable[tuple[str, TlsContexts, str]]:
        for name, secured in self._secured.items():
            if secured.tls is not None:
                yield name, secured.tls, "SSL" if secured.sasl is None else "SASL_SSL"
        if self._client is not None and self._client.tls is not None:
            yield self._client_listener, self._client.tls, "SSL"


class _naming:
    """Puts the name of a listener before the text of an InvalidConfig."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InvalidConfig):
            raise InvalidConfig(f"listener {self._name}: {error}") from None
