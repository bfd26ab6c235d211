"""What a batch commits, kept before it commits anything.

Each try of a batch keeps a plan under a name of its own. Delta takes one commit of rows for each batch, and
that commit names its plan: whichever driver makes it, all tries go on with that plan.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec

from penstock.jobs.ledger import StateBroken
from penstock.jobs.storage import Store
from penstock.tables.tasks import TaskResult

__all__ = ["Plan", "Plans", "SparkBatch"]

_CHECKPOINT: Final = "checkpoint/metadata"
_OFFSETS: Final = "checkpoint/offsets"
#: of a file of offsets: its version, and settings with the time of the batch
_HEADER_LINES: Final = 2


class SparkBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as Spark's checkpoint has it."""

    batch_id: int
    #: Spark's id of the checkpoint; None before there is one
    checkpoint: str | None = None
    #: where the batch ends, as Spark writes it
    offsets: str | None = None


class Plan(msgspec.Struct, kw_only=True):
    """What a batch shows."""

    batch: SparkBatch
    read_at_ms: int
    #: the columns of values
    fields: str
    #: those of them that the batch brings
    columns: list[str]
    result: TaskResult


class Plans:
    """The plans in the state of one query, and the batches of its checkpoint."""

    def __init__(self, folder: Store, state: Store, files: Store) -> None:
        """`folder` has the checkpoint and the state, and `files` are those of the tables."""
        self._folder = folder
        self._state = state
        self._files = files

    def checkpoint(self) -> str | None:
        """Spark's id of the checkpoint; None before there is one."""
        if not self._folder.exists(_CHECKPOINT):
            return None
        found: dict[str, str] = msgspec.json.decode(self._folder.read(_CHECKPOINT))
        return found["id"]

    def batch(self, batch_id: int) -> SparkBatch:
        """A batch that Spark has begun."""
        path, offsets = f"{_OFFSETS}/{batch_id}", None
        if self._folder.exists(path):
            lines = self._folder.read(path).decode().splitlines()
            offsets = "\n".join(lines[_HEADER_LINES:])
        return SparkBatch(batch_id=batch_id, checkpoint=self.checkpoint(), offsets=offsets)

    def keep(self, plan: Plan) -> str:
        """Keep the plan of a try; its name."""
        name = f"plan-{plan.batch.batch_id}-{uuid4().hex}.json"
        self._state.write(name, msgspec.json.encode(plan))
        return name

    def kept(self, batch: SparkBatch) -> tuple[str, Plan] | None:
        """The plan of an earlier try, and its name; None if none has all its files.

        Why: vacuum removes files that no commit has shown for a day.
        """
        prefix = f"plan-{batch.batch_id}-"
        for name in self._state.names(""):
            if name.startswith(prefix):
                plan = self.read(name, batch)
                if self.has_files(plan):
                    return name, plan
        return None

    def read(self, name: str, batch: SparkBatch) -> Plan:
        """A plan by its name; StateBroken if it is gone, or of a batch with other messages."""
        if not self._state.exists(name):
            raise StateBroken(
                f"{name} of batch {batch.batch_id} is missing in {self._state.uri}, and its table has the "
                "batch: another driver runs, or the state must be restored"
            )
        plan = msgspec.json.decode(self._state.read(name), type=Plan)
        if plan.batch.checkpoint != batch.checkpoint:
            raise StateBroken(
                f"batch {batch.batch_id} has a plan of another checkpoint in {self._folder.uri}: "
                "restore that checkpoint, or delete the table with its data"
            )
        if None not in (plan.batch.offsets, batch.offsets) and plan.batch.offsets != batch.offsets:
            raise StateBroken(
                f"batch {batch.batch_id} has other offsets in the checkpoint in {self._folder.uri} than in "
                "its plan: restore both together, or delete the table with its data"
            )
        return plan

    def has_files(self, plan: Plan) -> bool:
        """Whether all files of a plan are there."""
        files = [*plan.result.files, *plan.result.dead_files]
        return all(self._files.exists(f"{each.table}/{each.path}") for each in files)
