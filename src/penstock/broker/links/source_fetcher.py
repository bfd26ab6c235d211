"""Fetches mirrored partitions from one broker of a source: one connection, session and request at a time.

From a broker that is far away, several of these fetch some of the partitions each, and more of each at once:
while the records of one are appended, the responses of the others are on their way.

`FetchPlan` plans the requests, as for followers. `PartitionMirror` decides what a response leads to. Records
are appended from the receive buffer, in steps, before the next request is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.retry import RetryPause
from penstock.broker.base.steps import in_slices
from penstock.broker.links.mirrored_partition import MirroredPartition, whole_batches
from penstock.broker.links.source_cluster import SourceCluster
from penstock.linking.mirror import Answer, Hold, LastBatch, Take
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.net.client import Peer
from penstock.ports import Clock, Rng
from penstock.records.batch import read_header
from penstock.replication.fetch_plan import FetchPlan, PartitionKey, PlannedFetch
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

__all__ = ["SourceFetcher"]

log = get_logger("links")
_WAIT_MS: Final = 500
#: what a response has beside records, at most
_OTHER_BYTES: Final = 64 << 10
#: A connection reuses buffers for responses of this size (`wire.frames`): larger ones cost their page faults.
_RESPONSE_BYTES: Final = (4 << 20) - _OTHER_BYTES
_PARTITION_BYTES: Final = 2 << 20
#: so much room in a response that a source has nothing more of other partitions
_BATCH_BYTES: Final = 2 << 20
#: of a far source: with less, the line is idle while the records of all partitions are appended
_FAR_BYTES: Final = (32 << 20) - _OTHER_BYTES
_TIMEOUT_S: Final = 30.0
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_LIMIT_S: Final = 2.0


class SourceFetcher:
    """The fetcher to one broker of a source, until `stop`."""

    def __init__(
        self,
        broker: int,
        link: str,
        source: SourceCluster,
        clock: Clock,
        rng: Rng,
        refresh: Callable[[], None],
        reserve_producer_ids: Callable[[int], bool],
        *,
        follows_log_start: bool,
        is_far: bool = False,
    ) -> None:
        """`refresh` asks for the metadata of the source to be read again.

        `reserve_producer_ids` is called with the largest producer id of appended records.
        """
        self._broker = broker
        self._link = link
        self._source = source
        self._clock = clock
        self._refresh = refresh
        self._reserve_producer_ids = reserve_producer_ids
        self._follows_log_start = follows_log_start
        self._response_bytes = _FAR_BYTES if is_far else _RESPONSE_BYTES
        self._partition_bytes = _FAR_BYTES if is_far else _PARTITION_BYTES
        self._plan = FetchPlan()
        self._followed: dict[PartitionKey, MirroredPartition] = {}
        self._topic_ids: dict[str, TopicId] = {}
        self._news = asyncio.Event()
        self._pause = RetryPause(rng, _PAUSE_FIRST_S, _PAUSE_LIMIT_S)
        self._peer: Peer | None = None
        #: when the last response came that had room for all that the source has; -1 before the first
        self._heard_ms = -1
        #: by partition of the session: what is left out of later responses has nothing more
        self._asked_ms: dict[PartitionKey, int] = {}
        #: whether the next request has to begin a new session
        self._asks_all = False
        self._task: asyncio.Task[None] | None = None

    def follow(self, mirrored: MirroredPartition) -> None:
        """Fetch a partition from now on."""
        if self._followed.get(mirrored.key) is mirrored:
            self._plan.touched(mirrored.key)
            # A session leaves out partitions in which nothing changes. One that stops needs a response.
            self._asks_all = self._asks_all or mirrored.awaits_response
        else:
            self._followed[mirrored.key] = mirrored
            self._topic_ids[mirrored.topic.source_topic] = mirrored.topic.source_id
            self._plan.follow(mirrored.key, mirrored)
        self._news.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        self._note_idle(key)
        if self._followed.pop(key, None) is not None:
            self._plan.leave(key)
            self._news.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close()

    # -- requests

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except PenstockError as e:
                self._failed(str(e))
                await self._pause.wait()
            except Exception as e:
                log.error("link_fetch_broke", link=self._link, broker=self._broker, exc_info=e)
                self._failed(repr(e))
                await self._pause.wait()

    def _failed(self, reason: str) -> None:
        """The request was lost: a new session, and a comparison of every log."""
        log.info("link_fetch_failed", link=self._link, broker=self._broker, error=reason)
        self._plan.failed(session_known=False)
        self._close()
        now_ms = self._now_ms()
        for key, mirrored in self._followed.items():
            self._note_idle(key)
            mirrored.mirror.failed(reason, now_ms)
            mirrored.mirror.doubt()
        self._refresh()

    def _close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    async def _fetch_once(self) -> None:
        self._news.clear()
        if self._asks_all:
            self._asks_all = False
            self._plan.failed()
        planned = self._plan.next_request(self._now_ms())
        wake_at_ms = self._plan.wake_at_ms()
        wait_ms = _WAIT_MS if wake_at_ms is None else max(0, min(_WAIT_MS, wake_at_ms - self._now_ms()))
        if planned is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wake_at_ms is None else max(wait_ms, 1) / 1000):
                    await self._news.wait()
            return
        self._note_asked(planned)
        response = await self._connected().send(FETCH, self._request(planned, wait_ms), _TIMEOUT_S)
        await self._take(response)

    def _connected(self) -> Peer:
        address = self._source.address(self._broker)
        if address is None:
            raise PenstockError(f"broker {self._broker} of the source is not in its metadata")
        peer = self._peer
        if peer is None or (peer.host, peer.port) != address:
            self._close()
            peer = self._peer = self._source.new_peer(address)
        return peer

    def _request(self, planned: PlannedFetch, wait_ms: int) -> FetchRequest:
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._response_bytes,
            isolation_level=0,
            session_id=planned.session_id,
            session_epoch=planned.session_epoch,
        )
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        for topic_id, keys in groupby(planned.forgotten, _topic_id):
            indexes = [index for _, index in keys]
            request.forgotten_topics_data.append(
                ForgottenTopic(topic=names.get(topic_id, ""), topic_id=topic_id, partitions=indexes)
            )
        for topic_id, keys in groupby(planned.partitions, _topic_id):
            topic = FetchTopic(topic=names.get(topic_id, ""), topic_id=topic_id)
            for key in keys:
                at = planned.partitions[key]
                topic.partitions.append(
                    FetchPartition(
                        partition=key[1],
                        current_leader_epoch=at.leader_epoch,
                        fetch_offset=at.fetch_offset,
                        last_fetched_epoch=at.last_fetched_epoch,
                        partition_max_bytes=self._partition_bytes,
                    )
                )
            request.topics.append(topic)
        return request

    # -- responses

    def _note_asked(self, planned: PlannedFetch) -> None:
        """Keep since when the session has each partition: no response tells anything of others."""
        is_full = planned.session_epoch == 0
        for key in list(self._asked_ms) if is_full else planned.forgotten:
            self._note_idle(key)
            self._asked_ms.pop(key, None)
        for key in planned.partitions:
            self._asked_ms.setdefault(key, self._heard_ms)

    def _note_idle(self, key: PartitionKey) -> None:
        """Responses have left out a partition that was asked for: the source had nothing more."""
        mirrored, asked_ms = self._followed.get(key), self._asked_ms.get(key)
        if mirrored is not None and asked_ms is not None and asked_ms < self._heard_ms:
            mirrored.mirror.was_idle(self._heard_ms)

    async def _take(self, response: FetchResponse) -> None:
        if response.error_code:
            error = ErrorCode(response.error_code)
            log.info("link_session_over", link=self._link, broker=self._broker, error=error.name)
            self._plan.failed(session_known=False)
            await self._pause.wait()
            return
        self._pause.reset()
        self._plan.answered(response.session_id)
        heard_ms, keys, has_room = self._now_ms(), [], self._has_room(response)
        for topic in response.responses:
            topic_id = TopicId(topic.topic_id)
            if topic_id == NO_TOPIC_ID:
                # Versions before 13 have names.
                topic_id = self._topic_ids.get(topic.topic, NO_TOPIC_ID)
            for data in topic.partitions:
                keys.append((topic_id, data.partition_index))
                await self._answered(keys[-1], data, has_room=has_room)
        if has_room:
            self._heard_ms = heard_ms
            # What a response has of a partition was dealt with. Only the next ones can leave it out.
            self._asked_ms.update((key, heard_ms) for key in keys if key in self._asked_ms)

    async def _answered(self, key: PartitionKey, data: PartitionData, *, has_room: bool) -> None:
        mirrored, sent = self._followed.get(key), self._plan.remembered.get(key)
        if mirrored is None or sent is None:
            return
        mirror, took = mirrored.mirror, False
        self._note_idle(key)
        try:
            whole = whole_batches(memoryview(data.records or b""))  # type: ignore[arg-type]
            records = await in_slices(whole)
            if self._followed.get(key) is not mirrored:
                return
            step = mirror.answered(sent, _answer(data, records, has_room=has_room), self._now_ms())
            # A session leaves out partitions without records, also where the log has become shorter.
            self._asks_all = self._asks_all or data.diverging_epoch is not None
            if step is Hold.REFRESH:
                self._refresh()
            elif step is Hold.LIST_OFFSETS:
                start, end = await self._source.log_range(mirrored.source, self._broker)
                mirror.listed(sent, start, end, self._now_ms())
            elif isinstance(step, Take):
                took = await self._append(mirrored, records, step.offset, sent.leader_epoch)
            if self._follows_log_start and not data.error_code and mirrored.is_led:
                mirrored.follow_start(data.log_start_offset)
        except ApiError as e:
            log.warning(
                "link_append_failed", link=self._link, partition=mirrored.partition.name, error=str(e)
            )
            mirror.failed(str(e) or e.code.name, self._now_ms())
            mirror.doubt()
        self._plan.touched(key, took)

    async def _append(
        self, mirrored: MirroredPartition, records: memoryview, offset: int, source_epoch: int
    ) -> bool:
        before = mirrored.partition.log.end_offset
        for _ in mirrored.take(records, offset, source_epoch):
            # Each step appends a few megabytes at most.
            await asyncio.sleep(0)
        mirrored.mirror.progressed(self._now_ms())
        self._reserve_producer_ids(mirrored.largest_producer_id)
        return mirrored.partition.log.end_offset > before

    def _has_room(self, response: FetchResponse) -> bool:
        """Whether one more batch would have fitted, and the source was not held back by a quota."""
        size = 0
        for topic in response.responses:
            for data in topic.partitions:
                size += memoryview(data.records or b"").nbytes  # type: ignore[arg-type]
        is_short = size + _BATCH_BYTES <= self._response_bytes
        return is_short and not response.throttle_time_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _answer(data: PartitionData, records: memoryview, *, has_room: bool) -> Answer:
    return Answer(
        ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE,
        data.high_watermark,
        data.log_start_offset,
        data.diverging_epoch is not None,
        LastBatch.of(read_header(records)) if records else None,
        is_crowded=not has_room,
    )


def _topic_id(key: PartitionKey) -> TopicId:
    return key[0]
