"""Links that mirror topics of other clusters here, as `penstock link` manages them.

Requests go over connections of their own: librdkafka cannot send them.
Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import KafkaError

from penstock.client.connection_causes import Cause, Kind
from penstock.client.errors import LinkFailed, MisusedClient, NotReachable
from penstock.client.first_contact import refused_by
from penstock.client.queues.connections import security_from
from penstock.client.queues.refusals import refusal
from penstock.model.addresses import parse_address, parse_bootstrap
from penstock.model.errors import ErrorCode, UnsupportedVersion
from penstock.net.cluster_client import ClusterClient
from penstock.net.link_client import LinkError, create_link, link_values, pause_link, resume_link
from penstock.net.link_ends import Ended, delete_link, end_topics
from penstock.net.link_reports import LinkDescription, LinkSummary, describe_link, summaries
from penstock.net.link_returns import Returned, compare, give_up, take_back
from penstock.net.peer_errors import PeerGone, PeerRefused, PeerRejected
from penstock.security.client_names import SECURITY_PREFIXES, java_names
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = ["Ended", "LinkDescription", "LinkSummary", "Links", "Returned"]


class Links:
    """The links of the cluster of an `Admin`, which opens and closes it: `admin.links`.

    A method raises LinkFailed if a link or a topic is not as it needs it, with what is missing.
    """

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float,
        config: Mapping[str, Any],
        meet: Callable[[], Awaitable[None]],
    ) -> None:
        """`meet` returns when a broker has responded to the client, and raises if none does."""
        self._meet = meet
        try:
            addresses = parse_bootstrap(bootstrap)
        except ValueError as e:
            raise MisusedClient(f"the bootstrap address {e}: add the port") from e
        self._port = _Port(ClusterClient(addresses, "penstock", security_from(config)), timeout_s)

    def close(self) -> None:
        self._port.close()

    async def create(
        self,
        name: str,
        source: str,
        *,
        topics: str = "*",
        groups: str = "",
        prefix: str = "",
        interval: float | None = None,
        follow_log_start: bool = False,
        acls: bool = False,
        quotas: str = "",
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Mirror topics of the cluster at `source`, whose names match patterns, and offsets of groups.

        With `acls`, also the ACLs about them; `quotas` has patterns of users whose quotas are mirrored.
        `config` has TLS and SASL of the source, under the names of librdkafka or of Java clients.
        """
        values = link_values(
            source,
            topics=topics,
            groups=groups,
            prefix=prefix,
            interval_ms=None if interval is None else round(interval * 1000),
            follow_log_start=follow_log_start,
            acls=acls,
            quotas=quotas,
            security=_security_configs(config or {}),
        )
        async with self._translated() as port:
            await create_link(port, name, values)

    async def list(self) -> Sequence[LinkSummary]:
        """All links with their state, topics, lag and errors."""
        async with self._translated() as port:
            return await summaries(port)

    async def describe(self, name: str) -> LinkDescription:
        """The configs of a link without secrets, what is in its way, and the mirror of each partition."""
        async with self._translated() as port:
            return await describe_link(port, name)

    async def pause(self, name: str) -> None:
        """Stop mirroring. The topics stay read-only, and nothing is fetched from the source."""
        async with self._translated() as port:
            await pause_link(port, name)

    async def resume(self, name: str) -> None:
        """Go on mirroring after a pause, or after a promotion that was not completed."""
        async with self._translated() as port:
            await resume_link(port, name)

    async def promote(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        every: bool = False,
        wait: float = 300.0,
        fence: bool = False,
    ) -> Sequence[Ended]:
        """Open topics, or every topic, to producers once everything that the source has is here.

        With `fence`, the source, a Penstock cluster, refuses records of producers first. After `wait` seconds
        the topics stay read-only: call it again, `resume` the link, or `failover`.
        """
        return await self._end(name, topics, every=every, complete=True, wait=wait, fence=fence)

    async def failover(
        self, name: str, topics: Iterable[str] = (), *, every: bool = False, wait: float = 60.0
    ) -> Sequence[Ended]:
        """Open topics, or every topic, to producers as they are: the source is gone.

        Transactions that are open are aborted. Records that were not mirrored are not here.
        """
        return await self._end(name, topics, every=every, complete=False, wait=wait)

    async def failback(
        self, name: str, topics: Iterable[str], *, wait: float = 300.0, dry_run: bool = False
    ) -> Sequence[Returned]:
        """Make topics of this cluster mirrors of the cluster that took over from it.

        Each leader finds the last point in common with the source. Records behind it go to the quarantine of
        each broker. With `dry_run` the topics are as before at the end: what is returned would be set aside.
        """
        named = _names(topics)
        if not named:
            raise MisusedClient("name the topics that return")
        async with self._translated() as port:
            compared = await compare(port, name, named, wait)
            if dry_run:
                await give_up(port, compared.before)
            else:
                await take_back(port, name, named, compared.partitions, wait)
            return compared.partitions

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a link. It must mirror nothing; with `force`, its topics fail over first."""
        async with self._translated() as port:
            await delete_link(port, name, force=force)

    async def _end(
        self,
        name: str,
        topics: Iterable[str],
        *,
        every: bool,
        complete: bool,
        wait: float,
        fence: bool = False,
    ) -> Sequence[Ended]:
        named = _names(topics)
        if every == bool(named):
            raise MisusedClient("name topics, or pass every=True")
        chosen = None if every else named
        async with self._translated() as port:
            return await end_topics(port, name, chosen, complete=complete, wait_s=wait, fence=fence)

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[_Port]:
        await self._meet()
        try:
            yield self._port
        except LinkError as e:
            raise LinkFailed(str(e)) from e


def _names(topics: Iterable[str]) -> Collection[str]:
    if isinstance(topics, str):
        raise MisusedClient(f"topics must be a list of names, not the text {topics!r}")
    return list(topics)


def _security_configs(config: Mapping[str, str]) -> dict[str, str]:
    unknown = [key for key in config if not key.startswith(SECURITY_PREFIXES)]
    if unknown:
        raise MisusedClient(f"config= of a link has TLS and SASL of the source only, not {unknown[0]}")
    return java_names({key: str(value) for key, value in config.items()})


class _Port:
    """Sends requests in the name of the client; error codes are `Refused`."""

    def __init__(self, client: ClusterClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, *, changes: bool = False
    ) -> ResponseT:
        """The response of any broker."""
        try:
            return await self._client.send(api, request, self._timeout_s, repeats=not changes)
        except PeerRejected as e:
            raise refused_by(Cause(Kind.LOGIN, str(e), KafkaError._AUTHENTICATION)) from e
        except PeerGone as e:
            in_doubt = changes and not isinstance(e, PeerRefused)
            doubt = "The request may have been carried out. " if in_doubt else ""
            text = f"{api.name} was not answered ({e}). {doubt}Check that the brokers run, and try again"
            raise NotReachable(text, int(ErrorCode.REQUEST_TIMED_OUT), retriable=True) from e
        except UnsupportedVersion as e:
            code, about = ErrorCode.UNSUPPORTED_VERSION, "links need a Penstock cluster that has them"
            raise refusal(code, f"no {api.name}", about, advised=False) from e

    async def send_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        """The responses of several brokers; None for a broker that does not respond."""

        async def one(address: str) -> ResponseT | None:
            try:
                return await self._client.send_to(parse_address(address), api, request, self._timeout_s)
            except (PeerGone, UnsupportedVersion):
                return None

        named = list(addresses)
        return dict(zip(named, await asyncio.gather(*map(one, named)), strict=True))

    def check(self, code: int, message: str | None, about: str) -> None:
        """Raise `Refused` about something unless `code` is NONE."""
        if code:
            raise refusal(code, message, about, advised=False)

    def close(self) -> None:
        self._client.close()
