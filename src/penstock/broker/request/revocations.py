"""Closes the connections of removed credentials, revoked principals and revoked certificates (ADR 59).

Every node learns of the first two from the metadata log. A node that is down has no connections, and a node
that is behind closes them when it has caught up, also from a snapshot.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.metadata.access import REVOKED_AT
from penstock.metadata.image import REVOCATION, ClusterImage
from penstock.net.server import Server
from penstock.security.mechanisms import scram_name
from penstock.security.principal import Session
from penstock.security.revocation_lists import RevocationLists
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct
from penstock.wire.security_records import RemoveDelegationTokenRecord, RemoveUserScramCredentialRecord

__all__ = ["Revocations"]

log = get_logger("security")
#: certificates that are looked at between two polls of the sockets
_SLICE: Final = 200
#: principals in a log event
_LOGGED_MAX: Final = 10


class Revocations:
    """The revoked principals that this node knows, and the servers whose connections it closes."""

    def __init__(
        self,
        image: ClusterImage,
        servers: Sequence[Server],
        end_links: Callable[[Callable[[bytes], bool]], None] = lambda refuses: None,
    ) -> None:
        """`end_links` closes the connections to other nodes whose certificates a function refuses."""
        self._image = image
        self._servers = servers
        self._end_links = end_links
        self._seen: dict[str, str] = {}

    def start(self) -> None:
        """Take over the revocations so far: connections that are made from now on are later ones."""
        self._seen = self._revoked()

    def applied(self, records: Iterable[Struct]) -> None:
        """Close the connections that the records concern. The image has the records."""
        removed = {
            (scram_name(record.mechanism), record.name)
            for record in records
            if isinstance(record, RemoveUserScramCredentialRecord)
        }
        if removed:
            self._close(
                "credential_removed",
                lambda session: (
                    session.token_id is None and (session.mechanism, session.principal.name) in removed
                ),
            )
        tokens = {each.token_id for each in records if isinstance(each, RemoveDelegationTokenRecord)}
        if tokens:
            self._close("token_removed", lambda session: session.token_id in tokens)
        if any(isinstance(each, ConfigRecord) and each.resource_type == REVOCATION for each in records):
            revoked = self._revoked()
            # A snapshot repeats the revocations that are known.
            changed = {name for name, at in revoked.items() if self._seen.get(name) != at}
            self._seen = revoked
            if changed:
                self._close("principal_revoked", lambda session: str(session.principal) in changed)

    async def certificates_revoked(self, listener: str, lists: RevocationLists) -> None:
        """Close the connections of a listener, and to other nodes, whose certificates are on the lists."""
        # A broker without TLS does not need OpenSSL.
        from penstock.net.secure_listener import certificate_of

        closed = 0
        for server in self._servers:
            of_listener = [each for each in server.connections if each.listener.name == listener]
            for position, connection in enumerate(of_listener, 1):
                certificate = certificate_of(connection)
                if certificate is not None and lists.has(certificate):
                    connection.abort()
                    closed += 1
                if not position % _SLICE:
                    await asyncio.sleep(0)
        self._end_links(lists.has)
        if closed:
            log.info(
                "connections_revoked", reason="certificate_revoked", listener=listener, connections=closed
            )

    def _revoked(self) -> dict[str, str]:
        """When each principal was revoked."""
        return {
            name: values[REVOKED_AT]
            for (kind, name), values in self._image.configs.items()
            if kind == REVOCATION and REVOKED_AT in values
        }

    def _close(self, reason: str, concerns: Callable[[Session], bool]) -> None:
        found = [each for server in self._servers for each in server.connections if concerns(each.session)]
        if not found:
            return
        principals = sorted({str(each.session.principal) for each in found})
        log.info(
            "connections_revoked", reason=reason, principals=principals[:_LOGGED_MAX], connections=len(found)
        )
        for connection in found:
            # Not even what is already written goes out.
            connection.abort()
