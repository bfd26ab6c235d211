"""The ends of mirrors: promotion, failover, and the deletion of a link.

Each step can be repeated after an interruption. Deadlines are those of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
from penstock.net.link_client import (
    LinkError,
    LinkPort,
    Mirror,
    View,
    alter_link,
    check_exists,
    chosen,
    link_configs,
    look,
    set_state,
)

__all__ = ["Ended", "check_deletable", "delete_link", "end_mirrors", "end_topics"]

_POLL_S: Final = 0.2
#: how long the topics of a link that is deleted may take to open
_FORCED_S: Final = 60.0


class Ended(NamedTuple):
    """A partition whose mirror has ended."""

    topic: str
    partition: int
    end_offset: int
    last_timestamp_ms: int
    source_end_offset: int
    #: offsets that the source had deleted before they were mirrored
    missed: int
    #: transactions that were open
    aborted: int


async def end_topics(
    cluster: LinkPort,
    link: str,
    topics: Collection[str] | None,
    *,
    complete: bool,
    wait_s: float,
    fence: bool = False,
) -> list[Ended]:
    """End the mirrors of these topics of a link, or of all with None, and open them to producers.

    With `complete`, only once everything that the source has is here, committed offsets included. With
    `fence`, the source is made to refuse records before.
    """
    await check_exists(cluster, link)
    wanted = chosen(await look(cluster, link), link, topics or (), every=topics is None)
    return await end_mirrors(cluster, link, wanted, complete=complete, wait_s=wait_s, fence=fence)


async def check_deletable(cluster: LinkPort, name: str, *, force: bool) -> dict[str, MirroredTopic]:
    """The topics that a link mirrors. LinkError if there are any, unless `force` is given."""
    await check_exists(cluster, name)
    mirrored = chosen(await look(cluster, name), name, (), every=True)
    if mirrored and not force:
        first = next(iter(mirrored))
        raise LinkError(
            f"link {name} mirrors {len(mirrored)} topics ({first}): `penstock link promote {name} "
            f"--all` ends that, and --force fails over"
        )
    return mirrored


async def delete_link(cluster: LinkPort, name: str, *, force: bool) -> None:
    """Delete a link that mirrors nothing; with `force`, open the topics that it mirrors as they are."""
    mirrored = await check_deletable(cluster, name, force=force)
    # The link makes no new topics meanwhile.
    await alter_link(cluster, name, {"topics": None})
    if mirrored:
        await end_mirrors(cluster, name, mirrored, complete=False, wait_s=_FORCED_S)
    await alter_link(cluster, name, dict.fromkeys(await link_configs(cluster, name)))


async def end_mirrors(
    cluster: LinkPort,
    link: str,
    topics: Mapping[str, MirroredTopic],
    *,
    complete: bool,
    wait_s: float,
    fence: bool = False,
) -> list[Ended]:
    """End the mirrors of topics as `end_topics` does. A LinkError says what is missing."""
    deadline = _now() + wait_s
    open_topics = {n: t for n, t in topics.items() if t.state is not MirrorState.CLOSING}
    if complete and open_topics:
        if fence:
            begun = await _fence(cluster, link, open_topics, deadline)
        else:
            begun = await _promote(cluster, link, open_topics, deadline)
        topics = {**topics, **begun}
        is_applied = _applies(_promoting(begun))
        await _await(
            cluster, link, begun, lambda each: is_applied(each) and _is_stopped(each), deadline, _missing
        )
        await _await_rounds(cluster, link, _promoting(begun), deadline)
    await _await_cuts(cluster, link, {n for n, t in topics.items() if t.cuts}, deadline)
    topics = {n: t.behind(MirrorState.CLOSING) for n, t in topics.items()}
    await set_state(cluster, topics)
    closed = await _await(cluster, link, topics, _is_closed, deadline, _not_closed)
    ends: dict[str, list[int]] = {}
    for mirror in closed:
        assert mirror.log is not None, "a closed mirror was reported"
        ends.setdefault(mirror.topic, []).append(mirror.log.end_offset)
    promoted = {
        n: t._replace(state=MirrorState.PROMOTED, ends=tuple(ends.get(n, ()))) for n, t in topics.items()
    }
    await set_state(cluster, promoted)
    return [_ended(mirror) for mirror in closed]


async def _promote(
    cluster: LinkPort, link: str, topics: Mapping[str, MirroredTopic], deadline: float
) -> dict[str, MirroredTopic]:
    """Have mirrors stop once they are complete; a promotion with a fence that has begun goes on.

    A leader with old metadata may have stopped for an earlier promotion that was given up. So each reports
    first that it mirrors.
    """
    fenced = {
        n: t for n, t in topics.items() if t.state is MirrorState.PROMOTING and t.fence and not t.is_lifted
    }
    mirrored = {
        n: t._replace(state=MirrorState.MIRRORING, is_lifted=False)
        for n, t in topics.items()
        if n not in fenced
    }
    await set_state(cluster, {n: t for n, t in mirrored.items() if t != topics[n]})
    await _await(cluster, link, mirrored, _applies(mirrored), deadline, _missing)
    begun = {n: t.behind(MirrorState.PROMOTING) for n, t in mirrored.items()}
    await set_state(cluster, begun)
    return {**fenced, **begun}


def _applies(topics: Mapping[str, MirroredTopic]) -> Callable[[Mirror], bool]:
    """Whether the leader of a mirror knows the state of its topic."""
    return lambda each: each.log is not None and each.log.topic_state == topics[each.topic].numbered_state


def _is_stopped(mirror: Mirror) -> bool:
    return mirror.log is not None and mirror.log.phase == "stopped"


def _is_closed(mirror: Mirror) -> bool:
    return mirror.log is not None and mirror.log.is_closed


async def _fence(
    cluster: LinkPort, link: str, topics: Mapping[str, MirroredTopic], deadline: float
) -> dict[str, MirroredTopic]:
    """Wait until the source refuses records; returns the topics with the number of the promotion.

    If the source cannot be asked to, the topics are mirrored as before.

    The brokers of the link lift the fences of topics that are mirrored: those that were set, and those that
    are set behind the error, by requests that are under way. The number of the promotion orders them.
    A broker reports what its last round found. The round that is under way may have begun before the fence.
    """
    number = max([time.time_ns() // 1_000_000, *(each.fence + 1 for each in topics.values())])
    begun = {
        n: t._replace(state=MirrorState.FENCING, fence=number, is_lifted=False) for n, t in topics.items()
    }
    await set_state(cluster, begun)
    before = _rounds(await look(cluster, link, ()))
    while True:
        view = await look(cluster, link, topics.keys())
        waiting = [n for n in topics if n in view.topics and view.topics[n].state is MirrorState.FENCING]
        if not waiting:
            return begun
        problems = [
            f"topic {problem.topic}: {problem.reason}"
            for broker, rounds in _rounds(view).items()
            if rounds >= before.get(broker, 0) + 2
            for report in view.reports[broker]
            for problem in report.problems
            if problem.topic in waiting
        ]
        if problems or _now() > deadline:
            await set_state(cluster, {n: t._replace(state=MirrorState.MIRRORING) for n, t in begun.items()})
            reason = problems[0] if problems else f"the source of topic {waiting[0]} does not respond"
            raise LinkError(
                f"{reason}. The topics are mirrored as before, and a fence that was set is lifted"
            )
        await asyncio.sleep(_POLL_S)


async def _await(
    cluster: LinkPort,
    link: str,
    topics: Mapping[str, MirroredTopic],
    is_done: Callable[[Mirror], bool],
    deadline: float,
    describe: Callable[[Mirror], str],
) -> list[Mirror]:
    """The mirrors of topics once all are done; a LinkError that describes the others after the deadline."""
    while True:
        mirrors = (await look(cluster, link, topics.keys())).of(topics.keys())
        waiting = [each for each in mirrors if not is_done(each)]
        if not waiting:
            return mirrors
        if _now() > deadline:
            shown = "; ".join(describe(each) for each in waiting[:3])
            more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
            raise LinkError(
                f"{len(waiting)} of {len(mirrors)} partitions are not complete: {shown}{more}. They stay "
                f"read-only: repeat the command, `penstock link resume {link}` to go on mirroring (it lifts "
                f"a fence), or "
                f"`penstock link failover {link}` to do without the source"
            )
        await asyncio.sleep(_POLL_S)


async def _await_cuts(cluster: LinkPort, link: str, topics: Collection[str], deadline: float) -> None:
    """Wait until all replicas of topics that have returned to the link are in sync, and so are cut.

    A promoted topic has no cuts any more: an old log that came back later would count as the newer one.
    """
    while topics:
        uncut = [each for each in (await look(cluster, link, topics)).of(topics) if each.lagging]
        if not uncut:
            return
        if _now() > deadline:
            first = uncut[0]
            raise LinkError(
                f"replica {first.lagging[0]} of {first.topic}-{first.partition} is not in sync, so its old "
                f"records may not be set aside: start its broker or move the replica, and repeat the command"
            )
        await asyncio.sleep(_POLL_S)


async def _await_rounds(
    cluster: LinkPort, link: str, topics: Mapping[str, MirroredTopic], deadline: float
) -> None:
    """Wait until every broker has compared the committed offsets of promoted topics once more.

    A broker with old metadata does not wait for the offsets of topics that it does not know to be promoted.
    """
    groups = (await link_configs(cluster, link)).get("groups")
    promotions = {f"{name}/{topic.numbered_state}" for name, topic in topics.items()}
    before: dict[str, int] = {}
    while groups:
        view = await look(cluster, link, ())
        now = _rounds(view)
        # A broker that has restarted counts from 0.
        before = {broker: min(before.get(broker, rounds), rounds) for broker, rounds in now.items()}
        known = all(
            promotions <= {each for report in reports for each in report.promotions}
            for reports in view.reports.values()
        )
        # The round that is under way may have read the offsets before.
        if known and not view.silent and all(now[broker] >= before[broker] + 2 for broker in now):
            return
        if _now() > deadline:
            raise LinkError(
                "the records are complete, but the committed offsets of groups were not compared once more, "
                "or are in transactions of the source that have not ended: "
                f"see `penstock link describe {link}`, and repeat the command"
            )
        await asyncio.sleep(_POLL_S)


def _promoting(topics: Mapping[str, MirroredTopic]) -> dict[str, MirroredTopic]:
    """The topics once their source, if it was to be fenced, is fenced."""
    return {n: t._replace(state=MirrorState.PROMOTING) for n, t in topics.items()}


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


def _now() -> float:
    return asyncio.get_running_loop().time()
