"""Links as users see them: the state of each, its lag, and what is in its way."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.net.link_client import LinkError, LinkPort, Mirror, View, link_configs, list_links, look

__all__ = ["LinkDescription", "LinkSummary", "MirroredPartition", "describe_link", "summaries"]


@dataclass(frozen=True, slots=True)
class LinkSummary:
    """A link with its topics and lag. `error` is empty if no broker reports one."""

    link: str
    source: str
    #: active or paused
    state: str
    topics: int
    partitions: int
    #: of the partitions whose lag is known
    lag_records: int
    #: partitions whose lag no broker reports, or whose end at the source is not known yet
    unknown_lags: int
    error: str


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """The mirror of a partition. What no broker reports is None."""

    topic: str
    partition: int
    #: of the topic: returning, mirroring, fencing, promoting, closing or promoted
    state: str
    phase: str | None = None
    #: the end of what is mirrored and committed
    end_offset: int | None = None
    #: the end at the source
    source_end: int | None = None
    lag_ms: int | None = None
    #: offsets that the source had deleted before they were mirrored
    missed: int | None = None
    errors: int | None = None
    open_transactions: int | None = None
    last_timestamp_ms: int | None = None
    #: why the mirror does not go on; empty if it does
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LinkDescription:
    """The configs of a link without secrets, what is in its way, and the mirror of each partition."""

    link: str
    configs: dict[str, str]
    #: reasons by `broker HOST:PORT`, `topic NAME` and `group NAME`
    problems: dict[str, str]
    partitions: tuple[MirroredPartition, ...]


async def summaries(cluster: LinkPort) -> list[LinkSummary]:
    """All links, by name."""
    names = await list_links(cluster)
    view = await look(cluster) if names else None
    return [_summary(name, await link_configs(cluster, name), view) for name in names if view is not None]


def _summary(name: str, configs: dict[str, str], view: View) -> LinkSummary:
    topics = [topic for topic, each in view.topics.items() if each.link == name and each.is_read_only]
    logs = [mirror.log for mirror in view.of(topics)]
    lags = [log.source_end_offset - log.end_offset for log in logs if log and log.source_end_offset >= 0]
    errors = {each.error for reports in view.reports.values() for each in reports if each.name == name}
    return LinkSummary(
        link=name,
        source=configs.get("bootstrap.servers", ""),
        state="paused" if configs.get("paused") == "true" else "active",
        topics=len(topics),
        partitions=len(logs),
        lag_records=sum(max(0, lag) for lag in lags),
        unknown_lags=len(logs) - len(lags),
        error="; ".join(sorted(errors - {""})),
    )


async def describe_link(cluster: LinkPort, name: str) -> LinkDescription:
    """One link; LinkError if there is none of the name."""
    configs = await link_configs(cluster, name)
    if not configs:
        raise LinkError(f"there is no link {name}: `penstock link list` lists the links")
    view = await look(cluster, name)
    partitions = tuple(_partition(mirror, str(view.topics[mirror.topic].state)) for mirror in view.mirrors)
    return LinkDescription(name, configs, _problems(view), partitions)


def _problems(view: View) -> dict[str, str]:
    problems: dict[str, str] = {}
    for address, reports in view.reports.items():
        for report in reports:
            if report.error:
                problems[f"broker {address}"] = report.error
            problems.update((f"topic {each.topic}", each.reason) for each in report.problems)
            problems.update(
                (f"group {group}", "has offsets of readers of this cluster, which stay")
                for group in report.foreign_groups
            )
    return dict(sorted(problems.items()))


def _partition(mirror: Mirror, state: str) -> MirroredPartition:
    log = mirror.log
    if log is None:
        reason = "" if state == "promoted" else "no broker reports it"
        return MirroredPartition(mirror.topic, mirror.partition, state, reason=reason)
    return MirroredPartition(
        mirror.topic,
        mirror.partition,
        state,
        phase=log.phase,
        end_offset=log.end_offset,
        source_end=_known(log.source_end_offset),
        lag_ms=_known(log.lag_ms),
        missed=log.missed,
        errors=log.errors,
        open_transactions=log.open_transactions,
        last_timestamp_ms=_known(log.last_timestamp_ms),
        reason=log.reason,
    )


def _known(value: int) -> int | None:
    return None if value < 0 else value
