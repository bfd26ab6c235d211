"""Applies committed metadata records to the cluster image, and notifies the parts of the broker.

Only this module changes the image, one batch of records at a time, and never during work that must not see a
change (`between_changes`). Other tasks run while it applies a large batch. They see changes of partitions one
by one, but a topic with all of its new partitions or none of them (`BatchApplication`).

A snapshot may replace a part of the log that this node has not read. Listeners then get the records that lead
from the old image to the new one, and `doubt` is set meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.base.logs import get_logger
from penstock.broker.base.steps import in_slices
from penstock.broker.node.metadata_log import MetadataLog
from penstock.metadata.batch_application import BatchApplication
from penstock.metadata.image import ClusterImage
from penstock.metadata.snapshot import image_in_steps
from penstock.model.errors import PenstockError
from penstock.model.steps import Steps, collected, is_slice_over
from penstock.raft.messages import LogPoint
from penstock.records.record import iter_records
from penstock.wire.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    decode_metadata_record,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import RemoveDelegationTokenRecord, RemoveUserScramCredentialRecord

__all__ = ["MetadataLoader"]

log = get_logger("metadata")


class MetadataLoader:
    """Applies committed records in order, from `start` to `stop`."""

    def __init__(
        self,
        image: ClusterImage,
        metadata_log: MetadataLog,
        *,
        on_applied: Callable[[Sequence[Struct]], Awaitable[None]],
        on_progress: Callable[[int, int], Steps[None] | None],
        on_failure: Callable[[PenstockError], None],
    ) -> None:
        """`on_applied` is called with every batch of records after it was applied, `on_progress` with the end
        offset of the image and the size of that batch, `on_failure` when no more records can be applied. The
        image does not change before the steps that `on_progress` returns are done.
        """
        self.image = image
        self._log = metadata_log
        #: all records below this offset are in the image, and `on_applied` has returned for them
        self.applied = 0
        self._committed = 0
        self._installed = metadata_log.snapshot
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        #: Why the records that listeners get are no proof that data may be deleted; None if they are. A
        #: snapshot does not mention a topic: no record says that the topic was deleted.
        self.doubt: str | None = None
        self.on_applied = on_applied
        self._on_progress = on_progress
        self._on_failure = on_failure

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Report a record that cannot be read or applied: this node's image is outdated from then on."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("metadata_not_applied", offset=self.applied, error=repr(error), exc_info=error)
            self._on_failure(
                PenstockError(f"the metadata from offset {self.applied} on cannot be applied: {error!r}")
            )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def committed(self, end_offset: int) -> None:
        if end_offset > self._committed:
            self._committed = end_offset
            self._wake.set()

    def installed(self, snapshot: LogPoint) -> None:
        self._installed = snapshot
        self._wake.set()

    def wait_for(self, end_offset: int) -> asyncio.Future[None]:
        """Done when all records below `end_offset` are applied; the caller may set another result before."""
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.applied >= end_offset:
            reached.set_result(None)
        else:
            self._waiting.append((end_offset, reached))
        return reached

    async def between_changes(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while the image does not change."""
        async with self._turn:
            await work()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._installed is not None or self.applied < self._committed:
                async with self._turn:
                    if self._installed is not None:
                        await self._load(self._installed)
                    else:
                        await self._apply_more()

    async def _apply_more(self) -> None:
        """Apply the batches of one read."""
        batches = self._log.read_checked(self.applied, self._committed)
        for number, (header, batch) in enumerate(batches, 1):
            if self._installed is not None or header.next_offset > self._committed:
                return
            records = [] if header.is_control else await in_slices(self._apply(batch))
            await self._notify(records, header.next_offset)
            steps = self._on_progress(header.next_offset, len(batch))
            if steps is not None:
                await in_slices(steps)
            if is_slice_over(number):
                await asyncio.sleep(0)

    def _apply(self, batch: memoryview) -> Steps[list[Struct]]:
        """Apply a batch to the image; returns its records."""
        records: list[Struct] = []
        application = BatchApplication(self.image)
        for record in iter_records(batch):
            assert record.value is not None
            records.append(decode_metadata_record(record.value))
            application.apply(records[-1], record.offset)
            if is_slice_over(len(records)):
                yield
        application.publish()
        return records

    async def _load(self, snapshot: LogPoint) -> None:
        """Replace the content of the image by that of `snapshot`."""
        self._installed = None
        if snapshot.offset <= self.applied:
            return
        records = await in_slices(collected(self._log.snapshots.records(snapshot)))
        loaded = await in_slices(image_in_steps(records, snapshot.offset - 1))
        changes = await in_slices(_differences(self.image, loaded, records))
        # In place: all parts of the broker hold a reference to this image.
        vars(self.image).update(vars(loaded))
        self.committed(snapshot.offset)
        self.doubt = f"a metadata snapshot up to offset {snapshot.offset} does not assign it to this broker"
        try:
            await self._notify(changes, snapshot.offset)
        finally:
            self.doubt = None

    async def _notify(self, records: Sequence[Struct], end_offset: int) -> None:
        if records:
            try:
                await self.on_applied(records)
            except Exception as e:
                log.error("metadata_not_followed", error=repr(e), exc_info=e)
        self.applied = end_offset
        reached = [entry for entry in self._waiting if entry[0] <= end_offset]
        self._waiting = [entry for entry in self._waiting if entry[0] > end_offset]
        for _, future in reached:
            if not future.done():
                future.set_result(None)


def _differences(old: ClusterImage, new: ClusterImage, records: Sequence[Struct]) -> Steps[list[Struct]]:
    """The records that lead a listener from the image `old` to `new`, the image of `records`."""
    changes: list[Struct] = [
        RemoveTopicRecord(topic_id=topic_id)
        for topic_id in old.topics_by_id
        if topic_id not in new.topics_by_id
    ]
    changes += [
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=None)
        for (kind, resource), values in old.configs.items()
        for name in values.keys() - new.configs.get((kind, resource), {}).keys()
    ]
    changes += [
        RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        for name, mechanism in old.scram
        if (name, mechanism) not in new.scram
    ]
    changes += [
        RemoveDelegationTokenRecord(token_id=token_id)
        for token_id in old.tokens
        if token_id not in new.tokens
    ]
    for record in records:
        known = None
        if isinstance(record, PartitionRecord):
            topic = old.topics_by_id.get(record.topic_id)  # type: ignore[call-overload]  # a topic id's bytes
            known = topic and topic.partitions.get(record.partition_id)
        if known is not None and isinstance(record, PartitionRecord):
            changes.append(PartitionChangeRecord(topic_id=record.topic_id, partition_id=record.partition_id))
        else:
            changes.append(record)
        if is_slice_over(len(changes)):
            yield
    return changes
