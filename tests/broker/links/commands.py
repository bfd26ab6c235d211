"""Clients of links, one call at a time: `penstock.net.link_client` over the connections of a command."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.cli.direct import DirectLine
from penstock.net import link_client, link_ends
from penstock.net.link_client import View

__all__ = ["alter_link", "end_topics", "link_configs", "look", "set_links", "topic_links"]


def link_configs(line: DirectLine, name: str) -> dict[str, str]:
    """The configs of a link, without secrets; empty if there is no such link."""
    return line.run(lambda cluster: link_client.link_configs(cluster, name))


def alter_link(line: DirectLine, name: str, values: Mapping[str, str | None]) -> None:
    """Set configs of a link; None removes one."""
    line.run(lambda cluster: link_client.alter_link(cluster, name, values))


def set_links(line: DirectLine, values: Mapping[str, str]) -> None:
    """Set `penstock.link` of topics; an empty value removes it."""
    line.run(lambda cluster: link_client.set_links(cluster, values))


def topic_links(line: DirectLine, topics: Iterable[str]) -> dict[str, str]:
    """`penstock.link` of each topic; empty if it is not set. A Failure for a topic that does not exist."""
    return line.run(lambda cluster: link_client.topic_links(cluster, topics))


def look(line: DirectLine, link: str | None = None) -> View:
    """The topics of one link, or of all, and the reports of all brokers."""
    return line.run(lambda cluster: link_client.look(cluster, link))


def end_topics(
    line: DirectLine, link: str, topics: Collection[str] | None, *, complete: bool, wait_s: float
) -> list[link_ends.Ended]:
    """End the mirrors of these topics of a link, or of all with None, and open them to producers."""
    return line.run(
        lambda cluster: link_ends.end_topics(cluster, link, topics, complete=complete, wait_s=wait_s)
    )
