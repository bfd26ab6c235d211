"""A message is in one task of an upsert, or the driver knows that it may not be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.jobs.ledger import StateBroken
from penstock.tables.batches import Decoders
from penstock.tables.dealing import BUCKET, dealt, received
from penstock.tables.keys import KeyReader
from penstock.tables.tasks import AppendTask, TaskResult, UpsertTask, run_on_spark
from penstock.values.decoding import Decoded, JsonDecoder, Undecodable
from tests.tables.in_process import Message, blocks, definition, new_batches, result_of, rows_of, shuffled

TASKS = 2


class Registry:
    """Keys of the form ID:NAME, where the schema 2 may be missing."""

    def __init__(self) -> None:
        self.has_all = False

    def decode(self, data: bytes) -> Decoded:
        schema, _, name = data.decode().partition(":")
        if schema == "2" and not self.has_all:
            raise Undecodable("the schema registry has no schema 2")
        return Decoded(name)


MESSAGES = [Message(number, {"n": number}, f"{1 + number % 2}:{number // 2}") for number in range(20)]


class Losing:
    """A session that loses what readers have dealt after some of the tasks, and reads it again."""

    def __init__(self, registry: Registry, first: Sequence[int], *, times: int) -> None:
        self.registry = registry
        self.first = first
        self.left = times
        #: by run
        self.read: list[int] = []

    def __call__(self, messages: Any, task: AppendTask | UpsertTask, tasks: int) -> list[TaskResult]:
        assert isinstance(task, UpsertTask)
        before = shuffled([[blocks(messages)]], task, tasks)
        if self.left:
            self.left -= 1
            self.registry.has_all = not self.registry.has_all
        after = shuffled([[blocks(messages)]], task, tasks)
        given = [before[number] if number in self.first else after[number] for number in range(tasks)]
        results = [result_of(task, part) for part in given]
        self.read.append(sum(each.read for each in results))
        return results


@pytest.mark.parametrize("first", [[0], [1]])
def test_keys_that_a_registry_learns_between_two_tasks_are_dealt_again(
    tmp_path: Path, first: list[int]
) -> None:
    registry = Registry()
    table = definition(tmp_path, mode="upsert", buckets=7)
    run = Losing(registry, first, times=1)
    batches = new_batches(table, run=run, decoders=Decoders(JsonDecoder(), registry))
    batches.process(MESSAGES, 0)
    assert run.read[0] != len(MESSAGES), "no message has come to two tasks, or to none"
    assert len(run.read) == 3, "one that does not agree, one that finds the columns, and one that has them"
    # Of two messages with one key the later one counts.
    assert {row["_key"]: row["n"] for row in rows_of(table.to)} == {str(n): 2 * n + 1 for n in range(10)}
    assert rows_of(f"{table.root}/{table.dead_letters}") == []


def test_keys_that_change_each_time_end_the_batch(tmp_path: Path) -> None:
    registry = Registry()
    table = definition(tmp_path, mode="upsert", buckets=7)
    run = Losing(registry, [0], times=100)
    batches = new_batches(table, run=run, decoders=Decoders(JsonDecoder(), registry))
    with pytest.raises(StateBroken, match="or other keys, each time that it is read"):
        batches.process(MESSAGES, 0)
    assert rows_of(table.to) == []


def test_a_digest_follows_from_messages_and_buckets_alone() -> None:
    def digest(parts: list[list[Message]], buckets: int = 8) -> str:
        given = dealt([blocks(part) for part in parts], KeyReader(), buckets, TASKS)
        found = received(given)
        assert found is not None
        assert len(found.messages) == sum(len(part) for part in parts)
        return found.digest

    whole = digest([MESSAGES])
    assert digest([MESSAGES[:7], MESSAGES[7:]]) == whole
    assert digest([MESSAGES], buckets=9) != whole
    assert digest([MESSAGES[1:]]) != whole
    assert digest([[*MESSAGES[:-1], MESSAGES[-1]._replace(partition=1)]]) != whole


def test_a_reader_without_messages_deals_nothing() -> None:
    assert list(dealt([], KeyReader(), 8, TASKS)) == []
    assert received([]) is None


@pytest.mark.process
def test_each_task_of_a_session_gets_the_digests_of_all_readers(spark: SparkSession, tmp_path: Path) -> None:
    taken: list[list[TaskResult]] = []

    def run(messages: Any, task: AppendTask | UpsertTask, tasks: int) -> list[TaskResult]:
        found = run_on_spark(messages, task, tasks)
        taken.append(found)
        return found

    table = definition(tmp_path, mode="upsert", buckets=8)
    rows = blocks(MESSAGES).to_pylist()
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )
    new_batches(table, run=run).process(frame.repartition(3), 0)
    last = taken[-1]
    assert len(last) == TASKS
    assert sum(each.read for each in last) == len(MESSAGES)
    assert all(each.read for each in last)
    assert len({each.dealt for each in last}) == 1
    assert last[0].dealt is not None
    assert {row["_key"]: row["n"] for row in rows_of(table.to)} == {
        each.key: each.value["n"] for each in MESSAGES
    }
    assert BUCKET not in rows_of(table.to)[0]
