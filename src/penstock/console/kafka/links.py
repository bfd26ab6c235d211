"""Links of the cluster to others, as its brokers report them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.console.kafka.cluster import Cluster, Refused
from penstock.model.addresses import address_text
from penstock.net import link_reports
from penstock.net.link_reports import LinkDescription, LinkSummary
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = ["describe_link", "list_links"]


class _Port:
    """Sends the requests of `net/link_client` over the connections of one user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.check = cluster.check

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, *, changes: bool = False
    ) -> ResponseT:
        return await self._cluster.send(api, request, changes=changes)

    async def send_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        await self._cluster.metadata([])  # the addresses of all brokers
        nodes = {address_text(*address): node for node, address in self._cluster.nodes.items()}
        wanted = {nodes[each]: request for each in addresses if each in nodes}
        found = await self._cluster.send_each(api, wanted)
        return {each: found.get(nodes[each]) if each in nodes else None for each in addresses}


async def list_links(cluster: Cluster) -> list[LinkSummary] | None:
    """All links; None for a cluster without links, such as Apache Kafka."""
    try:
        return await link_reports.summaries(_Port(cluster))
    except Refused as error:
        if error.name.endswith("AUTHORIZATION_FAILED"):
            raise
        return None


async def describe_link(cluster: Cluster, name: str) -> LinkDescription:
    """The configs, problems and partitions of a link; LinkError if there is none of the name."""
    return await link_reports.describe_link(_Port(cluster), name)
