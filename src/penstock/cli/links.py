"""Cluster links, as `penstock link` reads and changes them: configs, and the mirrors that brokers report."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.cli.direct import DirectLine, refuse
from penstock.cli.failure import Failure
from penstock.model.addresses import address_text
from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
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
from penstock.wire.apis.metadata import METADATA, MetadataRequest

__all__ = [
    "Mirror",
    "View",
    "alter_link",
    "describe_link",
    "end_mirrors",
    "list_links",
    "look",
    "set_links",
    "set_state",
    "topic_links",
]

_TOPIC, _LINK = 2, 102
_SET, _DELETE = 0, 1
_TOPIC_CONFIG: Final = "penstock.link"
#: topics of one request
_TOPICS_MAX: Final = 200
_POLL_S: Final = 0.2


class Mirror(NamedTuple):
    """A mirrored partition; `log` is None if the broker that leads it does not report it."""

    topic: str
    partition: int
    log: MirroredLog | None


class View(NamedTuple):
    """The topics of links, and what brokers say about them."""

    #: by name here
    topics: dict[str, MirroredTopic]
    partitions: dict[str, int]
    mirrors: list[Mirror]
    #: of every broker, by its address
    reports: dict[str, list[LinkReport]]

    def of(self, topics: Collection[str]) -> list[Mirror]:
        return [mirror for mirror in self.mirrors if mirror.topic in topics]


def list_links(line: DirectLine) -> list[str]:
    listed = line.send(LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(resource_types=[_LINK]))
    refuse(
        listed.error_code, None, "links cannot be listed: the cluster has none, or is no Penstock with links"
    )
    return sorted(each.resource_name for each in listed.config_resources)


def describe_link(line: DirectLine, name: str) -> dict[str, str]:
    """The configs of a link, without secrets; empty if there is no such link."""
    resource = DescribeConfigsResource(resource_type=_LINK, resource_name=name, configuration_keys=None)
    (result,) = line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
    refuse(result.error_code, result.error_message, f"link {name} cannot be described")
    return {each.name: "(hidden)" if each.is_sensitive else each.value or "" for each in result.configs}


def alter_link(line: DirectLine, name: str, values: Mapping[str, str | None]) -> None:
    """Set configs of a link; None removes one."""
    _alter(line, _LINK, {name: values})


def set_state(line: DirectLine, topics: Mapping[str, MirroredTopic]) -> None:
    set_links(line, {name: str(topic) for name, topic in topics.items()})


def set_links(line: DirectLine, values: Mapping[str, str]) -> None:
    """Set `penstock.link` of topics; an empty value removes it."""
    _alter(line, _TOPIC, {name: {_TOPIC_CONFIG: value or None} for name, value in values.items()})


def _alter(line: DirectLine, kind: int, resources: Mapping[str, Mapping[str, str | None]]) -> None:
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
    for each in line.send(INCREMENTAL_ALTER_CONFIGS, request).responses:
        about = f"{'link' if kind == _LINK else 'topic'} {each.resource_name} is not changed"
        refuse(each.error_code, each.error_message, about)


def look(line: DirectLine, link: str | None = None) -> View:
    """The topics of one link, or of all, and the reports of all brokers."""
    metadata = line.send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    counts = {topic.name or "": len(topic.partitions) for topic in metadata.topics}
    topics = _mirrored_topics(line, sorted(counts))
    if link is not None:
        topics = {name: topic for name, topic in topics.items() if topic.link == link}
    partitions = {name: counts[name] for name in topics}
    wanted = [
        DescribableLogDirTopic(topic=n, partitions=list(range(count))) for n, count in partitions.items()
    ]
    request = DescribeLogDirsRequest(topics=wanted)
    found: dict[tuple[str, int], MirroredLog] = {}
    reports: dict[str, list[LinkReport]] = {}
    brokers = [address_text(broker.host, broker.port) for broker in metadata.brokers]
    for address, answer in line.send_each(brokers, DESCRIBE_LOG_DIRS, request).items():
        if answer is None:
            continue
        reports[address] = [each for each in answer.links if link in (None, each.name)]
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if each.mirror is not None:
                        found[topic.name, each.partition_index] = each.mirror
    mirrors = [
        Mirror(name, n, found.get((name, n))) for name, count in partitions.items() for n in range(count)
    ]
    return View(topics, partitions, mirrors, reports)


def _mirrored_topics(line: DirectLine, names: Sequence[str]) -> dict[str, MirroredTopic]:
    topics = {name: MirroredTopic.parse(text) for name, text in topic_links(line, names).items() if text}
    # Those that another cluster has fenced belong to no link here.
    return {name: topic for name, topic in topics.items() if topic.state is not MirrorState.FENCED}


def topic_links(line: DirectLine, topics: Iterable[str]) -> dict[str, str]:
    """`penstock.link` of each topic; empty if it is not set. A Failure for a topic that does not exist."""
    names, found = list(topics), {}
    for start in range(0, len(names), _TOPICS_MAX):
        resources = [
            DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=name, configuration_keys=[_TOPIC_CONFIG]
            )
            for name in names[start : start + _TOPICS_MAX]
        ]
        for result in line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources)).results:
            refuse(result.error_code, result.error_message, f"topic {result.resource_name}")
            values = {each.name: each.value or "" for each in result.configs}
            found[result.resource_name] = values.get(_TOPIC_CONFIG, "")
    return found


class Ended(NamedTuple):
    """A partition whose mirror has ended."""

    topic: str
    partition: int
    end_offset: int
    last_timestamp_ms: int
    source_end_offset: int
    missed: int
    aborted: int


def end_mirrors(
    line: DirectLine,
    link: str,
    topics: Mapping[str, MirroredTopic],
    *,
    complete: bool,
    wait_s: float,
    fence: bool = False,
) -> list[Ended]:
    """End the mirrors of topics, and open them to producers.

    With `complete`, only once everything that the source has is here, committed offsets included. With
    `fence`, the source is made to refuse records before. A Failure says what is missing; the command can be
    repeated.
    """
    deadline = time.monotonic() + wait_s
    open_topics = {n: t for n, t in topics.items() if t.state is not MirrorState.CLOSING}
    if complete and open_topics:
        state = MirrorState.FENCING if fence else MirrorState.PROMOTING
        set_state(line, {n: t._replace(state=state) for n, t in open_topics.items()})
        if fence:
            _await_fence(line, link, open_topics, deadline)
        _await(line, link, open_topics, lambda log: log.phase == "stopped", deadline, _missing)
        _await_rounds(line, link, deadline)
    set_state(line, {n: t._replace(state=MirrorState.CLOSING) for n, t in topics.items()})
    closed = _await(line, link, topics, lambda log: log.is_closed, deadline, _not_closed)
    ends: dict[str, list[int]] = {}
    for mirror in closed:
        assert mirror.log is not None, "a closed mirror was reported"
        ends.setdefault(mirror.topic, []).append(mirror.log.end_offset)
    set_state(
        line,
        {n: t._replace(state=MirrorState.PROMOTED, ends=tuple(ends.get(n, ()))) for n, t in topics.items()},
    )
    return [_ended(mirror) for mirror in closed]


def _await_fence(line: DirectLine, link: str, topics: Mapping[str, MirroredTopic], deadline: float) -> None:
    """Wait until the source refuses records. If it cannot be asked to, the topics are mirrored as before."""
    while True:
        view = look(line, link)
        waiting = [n for n in topics if view.topics[n].state is MirrorState.FENCING]
        if not waiting:
            return
        problems = [
            f"topic {problem.topic}: {problem.reason}"
            for reports in view.reports.values()
            for report in reports
            for problem in report.problems
            if problem.topic in waiting
        ]
        if problems or time.monotonic() > deadline:
            set_state(line, {n: topics[n]._replace(state=MirrorState.MIRRORING) for n in waiting})
            raise Failure(problems[0] if problems else f"the source of topic {waiting[0]} does not respond")
        time.sleep(_POLL_S)


def _await(
    line: DirectLine,
    link: str,
    topics: Mapping[str, MirroredTopic],
    is_done: Callable[[MirroredLog], bool],
    deadline: float,
    describe: Callable[[Mirror], str],
) -> list[Mirror]:
    """The mirrors of topics once all are done; a Failure that describes the others after the deadline."""
    while True:
        mirrors = look(line, link).of(topics.keys())
        waiting = [each for each in mirrors if each.log is None or not is_done(each.log)]
        if not waiting:
            return mirrors
        if time.monotonic() > deadline:
            shown = "; ".join(describe(each) for each in waiting[:3])
            more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
            raise Failure(
                f"{len(waiting)} of {len(mirrors)} partitions are not complete: {shown}{more}. They stay "
                f"read-only: repeat the command, `penstock link resume {link}` to go on mirroring, or "
                f"`penstock link failover {link}` to do without the source"
            )
        time.sleep(_POLL_S)


def _await_rounds(line: DirectLine, link: str, deadline: float) -> None:
    """Wait until every broker has compared the committed offsets once more."""
    groups = describe_link(line, link).get("groups")
    before = _rounds(look(line, link))
    while groups:
        now = _rounds(look(line, link))
        # The round that is under way may have read the offsets before.
        if before.keys() <= now.keys() and all(now[broker] >= before[broker] + 2 for broker in before):
            return
        if time.monotonic() > deadline:
            raise Failure(
                "the records are complete, but the committed offsets of groups were not compared once more: "
                f"see `penstock link describe {link}`, and repeat the command"
            )
        time.sleep(_POLL_S)


def _rounds(view: View) -> dict[str, int]:
    return {broker: sum(each.rounds for each in reports) for broker, reports in view.reports.items()}


def _missing(mirror: Mirror) -> str:
    log = mirror.log
    if log is None:
        return f"{mirror.topic}-{mirror.partition} has no leader here"
    behind = max(0, log.source_end_offset - log.end_offset)
    return f"{mirror.topic}-{mirror.partition} lacks {behind} records ({log.reason or log.phase})"


def _not_closed(mirror: Mirror) -> str:
    log = mirror.log
    reason = "no leader here" if log is None else log.reason or "its end is not committed yet"
    return f"{mirror.topic}-{mirror.partition}: {reason}"


def _ended(mirror: Mirror) -> Ended:
    log = mirror.log
    assert log is not None, "a closed mirror was reported"
    return Ended(
        mirror.topic,
        mirror.partition,
        log.end_offset,
        log.last_timestamp_ms,
        log.source_end_offset,
        log.missed,
        log.aborted,
    )


def chosen(view: View, link: str, names: Iterable[str], *, every: bool) -> dict[str, MirroredTopic]:
    """The topics that a command names, or all that are mirrored."""
    mirrored = {name: topic for name, topic in view.topics.items() if topic.is_read_only}
    if every:
        return mirrored
    unknown = [name for name in names if name not in mirrored]
    if unknown:
        raise Failure(
            f"topic {unknown[0]} is not mirrored by link {link}: see `penstock link describe {link}`"
        )
    return {name: mirrored[name] for name in names}
