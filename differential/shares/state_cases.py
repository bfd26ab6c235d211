"""Bad requests to the share coordinator: the APIs between brokers for the state of share partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from differential.shares.scene import Scene, shown
from penstock.wire.apis import delete_share_group_state as delete
from penstock.wire.apis import initialize_share_group_state as initialize
from penstock.wire.apis import read_share_group_state as read
from penstock.wire.apis import read_share_group_state_summary as summary
from penstock.wire.apis import write_share_group_state as write

__all__ = ["STATE_CASES", "begin", "get", "put"]

_UNKNOWN_ID: Final = bytes(15) + b"\x07"
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
#: (first offset, last offset, state, delivery count)
_Batch = tuple[int, int, int, int]


def begin(
    scene: Scene,
    state_epoch: int = 1,
    start_offset: int = 0,
    partition: int = 0,
    topic_id: bytes | None = None,
    group: str | None = None,
) -> str:
    data = initialize.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start_offset)
    topic = initialize.InitializeStateData(topic_id=topic_id or scene.topic_id, partitions=[data])
    request = initialize.InitializeShareGroupStateRequest(
        group_id=scene.group if group is None else group, topics=[topic]
    )
    return shown(scene.state(initialize.INITIALIZE_SHARE_GROUP_STATE, request))


def put(
    scene: Scene,
    *batches: _Batch,
    state_epoch: int = 1,
    leader_epoch: int = 0,
    start_offset: int = 0,
    partition: int = 0,
    topic_id: bytes | None = None,
) -> str:
    data = write.PartitionData(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=0,
        state_batches=[
            write.StateBatch(first_offset=f, last_offset=n, delivery_state=s, delivery_count=c)
            for f, n, s, c in batches
        ],
    )
    topic = write.WriteStateData(topic_id=topic_id or scene.topic_id, partitions=[data])
    request = write.WriteShareGroupStateRequest(group_id=scene.group, topics=[topic])
    return shown(scene.state(write.WRITE_SHARE_GROUP_STATE, request))


def get(scene: Scene, leader_epoch: int = 0, partition: int = 0, topic_id: bytes | None = None) -> str:
    data = read.PartitionData(partition=partition, leader_epoch=leader_epoch)
    topic = read.ReadStateData(topic_id=topic_id or scene.topic_id, partitions=[data])
    answer = scene.state(
        read.READ_SHARE_GROUP_STATE, read.ReadShareGroupStateRequest(group_id=scene.group, topics=[topic])
    )
    outcome = shown(answer)
    if outcome != "NONE":
        return outcome
    (found,) = answer.results[0].partitions
    batches: list[_Batch] = []
    for b in found.state_batches:
        batch = (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
        if batches and batches[-1][1] + 1 == batch[0] and batches[-1][2:] == batch[2:]:
            # Kafka joins some of them.
            batch = (batches.pop()[0], *batch[1:])
        batches.append(batch)
    return f"NONE, epoch {found.state_epoch}, start {found.start_offset}, {batches}"


def _summarise(scene: Scene, partition: int = 0, topic_id: bytes | None = None) -> str:
    data = summary.PartitionData(partition=partition, leader_epoch=0)
    topic = summary.ReadStateSummaryData(topic_id=topic_id or scene.topic_id, partitions=[data])
    request = summary.ReadShareGroupStateSummaryRequest(group_id=scene.group, topics=[topic])
    answer = scene.state(summary.READ_SHARE_GROUP_STATE_SUMMARY, request)
    outcome = shown(answer)
    if outcome != "NONE":
        return outcome
    (found,) = answer.results[0].partitions
    return f"NONE, epochs {found.state_epoch} {found.leader_epoch}, start {found.start_offset}"


def _drop(scene: Scene, partition: int = 0, topic_id: bytes | None = None) -> str:
    data = delete.PartitionData(partition=partition)
    topic = delete.DeleteStateData(topic_id=topic_id or scene.topic_id, partitions=[data])
    request = delete.DeleteShareGroupStateRequest(group_id=scene.group, topics=[topic])
    return shown(scene.state(delete.DELETE_SHARE_GROUP_STATE, request))


def _on(step: Callable[..., str], **changes: Any) -> Callable[[Scene], str]:
    """On a topic without a state."""
    return lambda scene: step(scene.create(), **changes)


def _prepare(scene: Scene) -> None:
    """Begin a state with the state epoch 1, once the coordinator knows the topic."""
    scene.create().until(lambda: begin(scene) == "NONE")


def _after(step: Callable[..., str], *arguments: Any, **changes: Any) -> Callable[[Scene], str]:
    """On a state with the state epoch 1."""

    def run(scene: Scene) -> str:
        _prepare(scene)
        return step(scene, *arguments, **changes)

    return run


def _steps(*steps: Callable[[Scene], str]) -> Callable[[Scene], str]:
    """The outcome of the last step on a state with the state epoch 1."""

    def run(scene: Scene) -> str:
        _prepare(scene)
        return [step(scene) for step in steps][-1]

    return run


def _written(*writes: Sequence[_Batch], start_offset: int = 0) -> Callable[[Scene], str]:
    """The outcome of the last write, and the state after it."""

    def run(scene: Scene) -> str:
        _prepare(scene)
        outcomes = [put(scene, *batches, start_offset=start_offset) for batches in writes]
        return f"{outcomes[-1]}; {get(scene)}"

    return run


STATE_CASES: Final[dict[str, Callable[[Scene], str]]] = {
    "initializing": _on(begin),
    "initializing without a group": _on(begin, group=""),
    "initializing an unknown topic": _on(begin, topic_id=_UNKNOWN_ID),
    "initializing an unknown partition": _on(begin, partition=9),
    "initializing a negative partition": _on(begin, partition=-1),
    "initializing without a start offset": _on(begin, start_offset=-1),
    "initializing with a lower state epoch": _after(begin, state_epoch=0),
    "initializing with a higher state epoch": _after(begin, state_epoch=2),
    "reading what is not initialized": _on(get),
    "reading an unknown topic": _on(get, topic_id=_UNKNOWN_ID),
    "reading an unknown partition": _on(get, partition=9),
    "reading a negative partition": _on(get, partition=-1),
    "reading with a lower leader epoch": _steps(
        lambda scene: get(scene, leader_epoch=5), lambda scene: get(scene, leader_epoch=4)
    ),
    "reading without a leader epoch": _steps(
        lambda scene: get(scene, leader_epoch=5), lambda scene: get(scene, leader_epoch=-1)
    ),
    "writing what is not initialized": _on(put),
    "writing to an unknown topic": _on(put, topic_id=_UNKNOWN_ID),
    "writing to an unknown partition": _on(put, partition=9),
    "writing to a negative partition": _on(put, partition=-1),
    "writing with a lower leader epoch": _steps(
        lambda scene: get(scene, leader_epoch=5), lambda scene: put(scene, leader_epoch=4)
    ),
    "writing with a higher leader epoch": _steps(
        lambda scene: get(scene, leader_epoch=5), lambda scene: put(scene, leader_epoch=6)
    ),
    "writing with a lower state epoch": _after(put, state_epoch=0),
    "writing with a higher state epoch": _after(put, state_epoch=2),
    "writing batches": _written([(0, 4, ACKNOWLEDGED, 1), (7, 9, AVAILABLE, 2)]),
    "writing batches that touch": _written([(0, 4, ACKNOWLEDGED, 1), (5, 9, ACKNOWLEDGED, 1)]),
    "writing batches that overlap": _written([(1, 5, AVAILABLE, 1), (3, 9, ACKNOWLEDGED, 2)]),
    "writing a lower delivery count": _written([(1, 5, AVAILABLE, 3)], [(2, 3, ACKNOWLEDGED, 1)]),
    "writing a batch below the start offset": _written([(0, 4, ARCHIVED, 1)], start_offset=3),
    "writing a lower start offset": lambda scene: "; ".join(
        [
            begin(scene.create()),
            put(scene, (7, 9, ACKNOWLEDGED, 1), start_offset=5),
            put(scene, (1, 2, ACKNOWLEDGED, 1), start_offset=0),
            get(scene),
        ]
    ),
    "deleting": _after(_drop),
    "deleting what is not initialized": _on(_drop),
    "deleting in an unknown topic": _on(_drop, topic_id=_UNKNOWN_ID),
    "deleting an unknown partition": _on(_drop, partition=9),
    "deleting a negative partition": _on(_drop, partition=-1),
    "a summary": _after(_summarise),
    "a summary of what is not initialized": _on(_summarise),
    "a summary of an unknown topic": _on(_summarise, topic_id=_UNKNOWN_ID),
    "a summary of an unknown partition": _on(_summarise, partition=9),
    "a summary of a negative partition": _on(_summarise, partition=-1),
}
