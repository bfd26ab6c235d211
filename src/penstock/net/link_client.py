"""Cluster links, as any client reads and changes them: configs, and the mirrors that brokers report.

The command line, `Admin` and the console share it. Each has a port that sends requests, and turns the error
codes of responses into errors of its own. A step that does not succeed although no request was refused is a
`LinkError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.model.addresses import address_text
from penstock.model.config.mirrored_topics import LINK_CONFIG, MirroredTopic, MirrorState
from penstock.model.errors import PenstockError
from penstock.net.access_client import AccessPort
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    LinkReport,
    MirroredLog,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic

__all__ = [
    "LinkError",
    "LinkPort",
    "Mirror",
    "View",
    "alter_link",
    "check_exists",
    "chosen",
    "create_link",
    "link_configs",
    "link_values",
    "list_links",
    "look",
    "pause_link",
    "resume_link",
    "set_links",
    "set_state",
    "topic_links",
]

_TOPIC, _LINK = 2, 102
_SET, _DELETE = 0, 1
#: topics of one request
_TOPICS_MAX: Final = 200


class LinkError(PenstockError):
    """A link, or a topic of it, is not as a step needs it. The message is one line with the remedy."""


class LinkPort(AccessPort, Protocol):
    """The cluster, as a client reaches it."""

    async def send_each(
        self, addresses: Iterable[str], api: Api[RequestT, ResponseT], request: RequestT
    ) -> dict[str, ResponseT | None]:
        """The responses of several brokers, by HOST:PORT; None for a broker that does not respond."""
        ...


class Mirror(NamedTuple):
    """A mirrored partition; `log` is None if the broker that leads it does not report it."""

    topic: str
    partition: int
    log: MirroredLog | None
    #: the replicas that are not in sync
    lagging: tuple[int, ...] = ()


class View(NamedTuple):
    """The topics of links, and what brokers say about them."""

    #: by name here
    topics: dict[str, MirroredTopic]
    partitions: dict[str, int]
    mirrors: list[Mirror]
    #: of every broker that has responded, by its address
    reports: dict[str, list[LinkReport]]
    #: the addresses of brokers that have not responded
    silent: tuple[str, ...] = ()

    def of(self, topics: Collection[str]) -> list[Mirror]:
        return [mirror for mirror in self.mirrors if mirror.topic in topics]


async def list_links(cluster: LinkPort) -> list[str]:
    """The names of all links."""
    listed = await cluster.send(LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(resource_types=[_LINK]))
    about = "links cannot be listed: the cluster has none, or is no Penstock with links"
    cluster.check(listed.error_code, None, about)
    # Version 0 of the request has no types: Apache Kafka lists the subscriptions of client metrics then.
    return sorted(each.resource_name for each in listed.config_resources if each.resource_type == _LINK)


async def check_exists(cluster: LinkPort, name: str) -> None:
    """Raise LinkError if there is no such link."""
    if name not in await list_links(cluster):
        raise _unknown(name)


def _unknown(name: str) -> LinkError:
    return LinkError(f"there is no link {name}: `penstock link list` lists the links")


async def link_configs(cluster: LinkPort, name: str) -> dict[str, str]:
    """The configs of a link, without secrets; empty if there is no such link."""
    resource = DescribeConfigsResource(resource_type=_LINK, resource_name=name, configuration_keys=None)
    (result,) = (await cluster.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))).results
    cluster.check(result.error_code, result.error_message, f"link {name} cannot be described")
    return {each.name: "(hidden)" if each.is_sensitive else each.value or "" for each in result.configs}


def link_values(
    source: str,
    *,
    topics: str,
    groups: str,
    prefix: str,
    interval_ms: int | None,
    follow_log_start: bool,
    acls: bool,
    quotas: str,
    security: Mapping[str, str],
) -> dict[str, str | None]:
    """The configs of a new link. What is empty or None has the default."""
    values: dict[str, str | None] = {**security, "bootstrap.servers": source, "topics": topics}
    if groups:
        values["groups"] = groups
    if prefix:
        values["prefix"] = prefix
    if interval_ms is not None:
        values["interval.ms"] = str(interval_ms)
    if acls:
        values["acls"] = "true"
    if quotas:
        values["quotas"] = quotas
    if follow_log_start:
        values["log.start"] = "source"
    return values


async def create_link(cluster: LinkPort, name: str, values: Mapping[str, str | None]) -> None:
    """Create a link with these configs; LinkError if there is one of the name."""
    if name in await list_links(cluster):
        raise LinkError(f"link {name} exists: delete it first, or choose another name")
    await alter_link(cluster, name, values)


async def pause_link(cluster: LinkPort, name: str) -> None:
    """Stop mirroring. The topics stay read-only."""
    await check_exists(cluster, name)
    await alter_link(cluster, name, {"paused": "true"})


async def resume_link(cluster: LinkPort, name: str) -> None:
    """Go on mirroring after a pause, or after a promotion that was not completed."""
    await check_exists(cluster, name)
    await alter_link(cluster, name, {"paused": "false"})
    topics = (await look(cluster, name)).topics
    begun = {n: t for n, t in topics.items() if t.state in (MirrorState.FENCING, MirrorState.PROMOTING)}
    mirrored = {n: t._replace(state=MirrorState.MIRRORING, is_lifted=False) for n, t in begun.items()}
    await set_state(cluster, mirrored)


async def alter_link(cluster: LinkPort, name: str, values: Mapping[str, str | None]) -> None:
    """Set configs of a link; None removes one."""
    await _alter(cluster, _LINK, {name: values})


async def set_state(cluster: LinkPort, topics: Mapping[str, MirroredTopic]) -> None:
    await set_links(cluster, {name: str(topic) for name, topic in topics.items()})


async def set_links(cluster: LinkPort, values: Mapping[str, str]) -> None:
    """Set `penstock.link` of topics; an empty value removes it."""
    await _alter(cluster, _TOPIC, {name: {LINK_CONFIG: value or None} for name, value in values.items()})


async def _alter(cluster: LinkPort, kind: int, resources: Mapping[str, Mapping[str, str | None]]) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(name=key, config_operation=_DELETE if text is None else _SET, value=text)
                    for key, text in values.items()
                ],
            )
            for name, values in resources.items()
        ]
    )
    for each in (await cluster.send(INCREMENTAL_ALTER_CONFIGS, request, changes=True)).responses:
        about = f"{'link' if kind == _LINK else 'topic'} {each.resource_name} is not changed"
        cluster.check(each.error_code, each.error_message, about)


async def look(
    cluster: LinkPort, link: str | None = None, topics_named: Collection[str] | None = None
) -> View:
    """The topics of one link, or of all, and the reports of all brokers.

    With `topics_named` only of these: what is repeated does not ask for all topics of the cluster. Topics
    that do not exist are left out.
    """
    asked = None if topics_named is None else [MetadataRequestTopic(name=name) for name in topics_named]
    metadata = await cluster.send(METADATA, MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    counts = {topic.name or "": len(topic.partitions) for topic in metadata.topics if not topic.error_code}
    topics = await _mirrored_topics(cluster, sorted(counts))
    if link is not None:
        topics = {name: topic for name, topic in topics.items() if topic.link == link}
    partitions = {name: counts[name] for name in topics}
    wanted = [
        DescribableLogDirTopic(topic=n, partitions=list(range(count))) for n, count in partitions.items()
    ]
    request = DescribeLogDirsRequest(topics=wanted)
    found: dict[tuple[str, int], MirroredLog] = {}
    reports: dict[str, list[LinkReport]] = {}
    silent: list[str] = []
    brokers = [address_text(broker.host, broker.port) for broker in metadata.brokers]
    for address, answer in (await cluster.send_each(brokers, DESCRIBE_LOG_DIRS, request)).items():
        if answer is None:
            silent.append(address)
            continue
        reports[address] = [each for each in answer.links if link in (None, each.name)]
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if each.mirror is not None:
                        found[topic.name, each.partition_index] = each.mirror
    lagging = {
        (topic.name or "", each.partition_index): tuple(sorted({*each.replica_nodes} - {*each.isr_nodes}))
        for topic in metadata.topics
        for each in topic.partitions
    }
    mirrors = [
        Mirror(name, n, found.get((name, n)), lagging.get((name, n), ()))
        for name, count in partitions.items()
        for n in range(count)
    ]
    return View(topics, partitions, mirrors, reports, tuple(silent))


async def _mirrored_topics(cluster: LinkPort, names: Sequence[str]) -> dict[str, MirroredTopic]:
    texts = await topic_links(cluster, names)
    topics = {name: MirroredTopic.parse(text) for name, text in texts.items() if text}
    # Those that another cluster has fenced belong to no link here.
    return {name: topic for name, topic in topics.items() if not topic.is_source}


async def topic_links(cluster: LinkPort, topics: Iterable[str]) -> dict[str, str]:
    """`penstock.link` of each topic; empty if it is not set. An error for a topic that does not exist."""
    names, found = list(topics), {}
    for start in range(0, len(names), _TOPICS_MAX):
        resources = [
            DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=name, configuration_keys=[LINK_CONFIG]
            )
            for name in names[start : start + _TOPICS_MAX]
        ]
        response = await cluster.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
        for result in response.results:
            cluster.check(result.error_code, result.error_message, f"topic {result.resource_name}")
            values = {each.name: each.value or "" for each in result.configs}
            found[result.resource_name] = values.get(LINK_CONFIG, "")
    return found


def chosen(view: View, link: str, names: Iterable[str], *, every: bool) -> dict[str, MirroredTopic]:
    """The topics that a user names, or all that are mirrored."""
    mirrored = {name: topic for name, topic in view.topics.items() if topic.is_read_only}
    if every:
        return mirrored
    wanted = list(names)
    unknown = [name for name in wanted if name not in mirrored]
    if unknown:
        raise LinkError(
            f"topic {unknown[0]} is not mirrored by link {link}: see `penstock link describe {link}`"
        )
    return {name: mirrored[name] for name in wanted}
