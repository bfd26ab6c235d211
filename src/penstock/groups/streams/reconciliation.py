"""The next step of a member towards its target: revoke tasks first, then take free ones.

Invariant: an active task has at most one process, and a process has a task in at most one role. The old
owner has to report that it has revoked the task before it is assigned again.
"""

from __future__ import annotations

from penstock.groups.epoch_group import MemberState
from penstock.groups.streams.member import StreamsMember, current_tasks
from penstock.groups.streams.owners import TaskOwners
from penstock.groups.streams.records import StreamsGroupCurrentMemberAssignmentValue
from penstock.groups.streams.tasks import (
    NO_TASKS_WITH_EPOCHS,
    EpochTasks,
    Tasks,
    TasksByRole,
    TasksWithEpochs,
)

__all__ = ["next_tasks"]


def next_tasks(
    member: StreamsMember,
    target_epoch: int,
    target: TasksByRole,
    owned: TasksByRole | None,
    owners: TaskOwners,
) -> StreamsGroupCurrentMemberAssignmentValue | None:
    """The member's next tasks; None if they do not change.

    `owned` has the tasks that the member reports, None if the request has none.
    """
    if member.is_reconciled_to(target_epoch):
        return None
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if owned is None or member.revoking.is_any_in(owned):
            return None
        epoch += 1
    kept, revoking = _kept(member.assigned, target)
    if not revoking.is_empty and (owned is None or revoking.is_any_in(owned)):
        # The member stays in its epoch until it has revoked these.
        return _changed(member, epoch, MemberState.UNREVOKED, kept, revoking)
    assigned, waits = _with_free(member, kept, target, target_epoch, owners)
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return _changed(member, target_epoch, state, assigned, NO_TASKS_WITH_EPOCHS)


def _kept(assigned: TasksWithEpochs, target: TasksByRole) -> tuple[TasksWithEpochs, TasksWithEpochs]:
    """Divide the tasks of a member into those of its target and those to revoke."""
    kept_active: EpochTasks = {}
    gone_active: EpochTasks = {}
    for subtopology, epochs in assigned.active.items():
        wanted = target.active.get(subtopology, frozenset[int]())
        kept = {index: epoch for index, epoch in epochs.items() if index in wanted}
        if kept:
            kept_active[subtopology] = kept
        if len(kept) < len(epochs):
            gone_active[subtopology] = {i: epoch for i, epoch in epochs.items() if i not in wanted}
    kept_standby, gone_standby = _divided(assigned.standby, target.standby)
    kept_warmup, gone_warmup = _divided(assigned.warmup, target.warmup)
    return (
        TasksWithEpochs(kept_active, kept_standby, kept_warmup),
        TasksWithEpochs(gone_active, gone_standby, gone_warmup),
    )


def _divided(has: Tasks, target: Tasks) -> tuple[Tasks, Tasks]:
    kept = {s: both for s, indexes in has.items() if (both := indexes & target.get(s, set()))}
    gone = {s: rest for s, indexes in has.items() if (rest := indexes - target.get(s, set()))}
    return kept, gone


def _with_free(
    member: StreamsMember, kept: TasksWithEpochs, target: TasksByRole, target_epoch: int, owners: TaskOwners
) -> tuple[TasksWithEpochs, bool]:
    """Add the tasks of the target that no process has. Returns true if the member waits for others."""
    process, waits = member.process_id, False
    active = dict(kept.active)
    for subtopology, indexes in target.active.items():
        has = active.get(subtopology, {})
        missing = indexes - has.keys()
        free = {
            index: target_epoch
            for index in missing
            if owners.active(subtopology, index) is None and not owners.has_other(subtopology, index, process)
        }
        waits = waits or len(free) < len(missing)
        if free:
            active[subtopology] = has | free
    others: list[Tasks] = []
    for has_other, wanted in ((kept.standby, target.standby), (kept.warmup, target.warmup)):
        found = dict(has_other)
        for subtopology, indexes in wanted.items():
            known = found.get(subtopology, set())
            missing = indexes - known
            unused = {
                index
                for index in missing
                if owners.active(subtopology, index) != process
                and not owners.has_other(subtopology, index, process)
            }
            waits = waits or len(unused) < len(missing)
            if unused:
                found[subtopology] = known | unused
        others.append(found)
    return TasksWithEpochs(active, others[0], others[1]), waits


def _changed(
    member: StreamsMember,
    epoch: int,
    state: MemberState,
    assigned: TasksWithEpochs,
    revoking: TasksWithEpochs,
) -> StreamsGroupCurrentMemberAssignmentValue | None:
    is_same = (
        epoch == member.epoch
        and state is member.state
        and assigned == member.assigned
        and revoking == member.revoking
    )
    if is_same:
        return None
    return current_tasks(epoch, member.epoch, state, assigned, revoking)
