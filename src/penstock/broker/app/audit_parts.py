"""Composes the chained sinks of audit events out of the broker's configs: topic, file and syslog."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.audit.chain import Chain, Head
from penstock.broker.base.audit_head import head_content, read_head
from penstock.broker.base.logs import get_logger
from penstock.model.config import BrokerConfig
from penstock.model.config.audit_keys import FILE, SYSLOG, TOPIC, destinations, syslog_address
from penstock.model.errors import InvalidConfig
from penstock.ports import World

if TYPE_CHECKING:
    from penstock.broker.base.audit_sink import Delivery, SinkThread

__all__ = ["AuditParts"]

log = get_logger("audit")
_KEY_BYTES_MIN: Final = 16
_OTHERS: Final = 0o077


class AuditParts:
    """What the sinks of one broker have in common."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        """InvalidConfig if a setting of a sink is missing."""
        self._config = config
        self._world = world
        self.destinations = destinations(config.penstock_audit_destination)
        self._key = self._read_key() if self.destinations & {TOPIC, FILE, SYSLOG} else b""
        self.sinks: list[SinkThread] = []
        if FILE in self.destinations:
            self.sinks.append(self._sink(FILE, self._file()))
        if SYSLOG in self.destinations:
            self.sinks.append(self._sink(SYSLOG, self._syslog()))

    @property
    def is_kept(self) -> bool:
        """Whether events go to a place that keeps them, beside the log."""
        return bool(self.destinations & {TOPIC, FILE, SYSLOG})

    def topic_chain(self) -> Chain:
        """The chain of events in the audit topic, which continues the one before."""
        path, files = self._head_path(TOPIC), self._world.files
        previous: Head | None = None
        if files.exists(path):
            previous = read_head(files.read(path), self._key)
            if previous is None:
                reason = "the file was changed, or penstock.audit.hash.key.file has another key"
                log.error("audit_head_invalid", path=path, reason=reason)
        return self._new_chain(TOPIC)(previous)

    def keep_topic_head(self) -> Callable[[Head], Awaitable[None]]:
        path, files, workers = self._head_path(TOPIC), self._world.files, self._world.workers

        async def keep(head: Head) -> None:
            await workers.in_thread(files.write_atomic, path, head_content(head, self._key))

        return keep

    def start(self) -> None:
        for sink in self.sinks:
            sink.start()

    async def stop(self, timeout_s: float) -> None:
        for sink in self.sinks:
            await self._world.workers.in_thread(sink.stop, timeout_s)

    def _read_key(self) -> bytes:
        path = self._config.penstock_audit_hash_key_file
        if not path:
            return b""
        try:
            with open(path, "rb") as file:
                key = file.read().strip()
                is_open = bool(os.fstat(file.fileno()).st_mode & _OTHERS)
        except OSError as e:
            raise InvalidConfig(f"penstock.audit.hash.key.file {path} cannot be read: {e.strerror}") from e
        if len(key) < _KEY_BYTES_MIN:
            raise InvalidConfig(f"penstock.audit.hash.key.file {path} has less than {_KEY_BYTES_MIN} bytes")
        if is_open:
            reason = "other users of this machine can compute chains of audit events: chmod 600"
            log.warning("audit_key_readable", path=path, reason=reason)
        return key

    def _head_path(self, sink: str) -> str:
        return f"{self._config.data_dirs[0]}/audit-{sink}.head"

    def _new_chain(self, sink: str) -> Callable[[Head | None], Chain]:
        unique = f"{self._world.clock.now_ms():x}-{self._world.rng.token(4).hex()}"
        name, key = f"{self._config.node_id}/{sink}/{unique}", self._key
        return lambda previous: Chain(name, key, previous)

    def _sink(self, name: str, delivery: Delivery) -> SinkThread:
        from penstock.broker.base.audit_head import HeadFile
        from penstock.broker.base.audit_sink import SinkThread

        config = self._config
        return SinkThread(
            name,
            config.node_id,
            delivery,
            self._new_chain(name),
            head_file=None if config.penstock_memory else HeadFile(self._head_path(name), self._key),
            events_max=config.penstock_audit_queue_events_max,
            checkpoint_s=config.penstock_audit_checkpoint_ms / 1000,
        )

    def _file(self) -> Delivery:
        from penstock.broker.base.audit_file import AuditFile

        config = self._config
        path = config.penstock_audit_file_path.replace("{node}", str(config.node_id))
        if not path and config.penstock_memory:
            raise InvalidConfig("penstock.audit.file.path is empty, and a broker in memory has no directory")
        path = os.path.abspath(path or f"{config.data_dirs[0]}/audit/audit.log")
        return AuditFile(path, config.penstock_audit_file_bytes_max, config.penstock_audit_file_count_max)

    def _syslog(self) -> Delivery:
        import ssl

        from penstock.broker.base.audit_syslog import AuditSyslog

        text = self._config.penstock_audit_syslog_address
        if not text:
            raise InvalidConfig("penstock.audit.syslog.address is empty: set tls://HOST:PORT")
        address = syslog_address(text)
        context: ssl.SSLContext | None = None
        if address.tls:
            try:
                trusted = self._config.penstock_audit_syslog_truststore_location
                context = ssl.create_default_context(cafile=trusted or None)
                own = self._config.penstock_audit_syslog_keystore_location
                if own:
                    context.load_cert_chain(own)
            except OSError as e:
                raise InvalidConfig(f"penstock.audit.syslog: its certificates cannot be read: {e}") from e
        else:
            reason = "audit events travel without encryption: use tls://, or a network that you trust"
            log.warning("audit_syslog_insecure", address=text, reason=reason)
        return AuditSyslog(address.host, address.port, self._config.node_id, context)
