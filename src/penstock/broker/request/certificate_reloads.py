"""Loads the certificates and revocation lists of listeners again, while the broker runs.

A context is built in a worker thread, because revocation lists may be large, and then swapped in.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.base.logs import get_logger
from penstock.broker.base.secret_files import exposure_of
from penstock.model.errors import InvalidConfig
from penstock.security.revocation_lists import RevocationLists
from penstock.security.tls_settings import TlsSettings

if TYPE_CHECKING:
    from penstock.net.tls_contexts import TlsContexts

__all__ = ["CertificateReloads"]

log = get_logger("security")


class CertificateReloads:
    """The contexts of all listeners, and of the connections to other nodes."""

    def __init__(
        self,
        contexts: Callable[[], Iterable[tuple[str, TlsContexts, str]]],
        settings: Callable[[str, str], TlsSettings],
        in_thread: Callable[..., Awaitable[Any]],
        on_revoked: Callable[[str, RevocationLists], Awaitable[None]],
    ) -> None:
        """`contexts` returns each with its listener and protocol, `settings` the current settings of both.

        `on_revoked` gets a listener and its revocation lists after a reload.
        """
        self._contexts = contexts
        self._settings = settings
        self._in_thread = in_thread
        self._turn = asyncio.Lock()
        #: by context: why its last reload has failed
        self._failed_reloads: dict[TlsContexts, str] = {}
        self._on_revoked = on_revoked

    async def reload(self, *, changed_only: bool = False) -> None:
        """Build every context again from files and configs; one that fails stays as it is, and is logged."""
        async with self._turn:
            for name, contexts, protocol in self._contexts():
                if not changed_only or contexts.has_changed():
                    await self._reload(name, contexts, protocol, is_watched=changed_only)

    async def _reload(self, name: str, contexts: TlsContexts, protocol: str, is_watched: bool) -> None:
        try:
            settings = self._settings(name, protocol)
            # In a thread: revocation lists may be large.
            contexts.install(await self._in_thread(contexts.prepare, settings))
        except InvalidConfig as e:
            # The old certificate serves on. An incomplete pair of files is complete at a later look.
            # Files that stay as they are fail at every look, and are logged once.
            if not is_watched or self._failed_reloads.get(contexts) != str(e):
                log.warning("certificate_reload_failed", listener=name, error=str(e))
            self._failed_reloads[contexts] = str(e)
            return
        self._failed_reloads.pop(contexts, None)
        log.info("certificate_reloaded", listener=name)
        self._warn(name, contexts)
        if contexts.revocations is not None:
            await self._on_revoked(name, contexts.revocations)

    def _warn(self, name: str, contexts: TlsContexts) -> None:
        store = contexts.settings.keystore_file
        exposure = None if store is None else exposure_of(store)
        if exposure is not None:
            log.warning("key_store_readable", listener=name, path=store, reason=exposure)
        if not contexts.has_expired_list:
            return
        if contexts.settings.is_strict:
            reason = "all certificates of peers are refused (penstock.security.strict)"
        else:
            reason = "certificates that were revoked since are accepted; those on the list are refused"
        file = contexts.settings.crl_file
        log.warning("revocation_list_expired", listener=name, file=file, reason=reason)

    def warn(self) -> None:
        """Log key stores that other users can read, and revocation lists that have expired."""
        for name, contexts, _ in self._contexts():
            self._warn(name, contexts)
