"""Each message is in one of the two tables, once, whatever dies and in whichever order."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.jobs import delta
from penstock.jobs.delta import INSTANT, DeltaTables, write_part
from penstock.jobs.ledger import Ledger, StateBroken
from penstock.jobs.storage import Store
from penstock.tables.batches import Batch, Decoders
from penstock.tables.definition import TableDefinition
from penstock.tables.job import TableMaintenance
from penstock.tables.plans import Plans
from penstock.values.decoding import Decoded, JsonDecoder
from tests.tables.in_process import START_S, Message, definition, new_batches, rows_of, run_here


class Killed(Exception):
    """Stands for the death of the driver."""


def columns(table: TableDefinition) -> list[str]:
    return [field.name for field in DeltaTable(table.to).schema().fields if not field.name.startswith("_")]


def test_each_message_becomes_a_row_with_its_place(tmp_path: Path) -> None:
    table, batches = definition(tmp_path), list[Batch]()
    running = new_batches(table, batches.append)
    running.process(
        [Message(0, {"id": 1}), Message(1, {"id": 2, "city": "Oslo"}), Message(0, None, None, 1)], 0
    )
    assert rows_of(table.to) == [
        {"_partition": 0, "_offset": 0, "_key": "k", "id": 1, "city": None},
        {"_partition": 0, "_offset": 1, "_key": "k", "id": 2, "city": "Oslo"},
        {"_partition": 1, "_offset": 0, "_key": None, "id": None, "city": None},
    ]
    (batch,) = batches
    assert (batch.read, batch.rows, batch.dead, batch.columns) == (3, 3, 0, ["id", "city"])
    assert sum(batch.files.values()) == 2
    assert not list(tmp_path.glob("orders/**/_*.parquet*"))


def test_a_batch_is_shown_once(tmp_path: Path) -> None:
    table = definition(tmp_path)
    running = new_batches(table)
    running.process([Message(0, {"id": 1})], 0)
    running.process([Message(0, {"id": 1})], 0)
    again = new_batches(table, makes=False)
    again.process([Message(0, {"id": 1})], 0)
    again.process([Message(1, {"id": 2})], 1)
    assert [row["id"] for row in rows_of(table.to)] == [1, 2]
    assert len(list((tmp_path / table.state / "state").iterdir())) == 1


def test_new_columns_are_added_and_misfits_are_dead_letters(tmp_path: Path) -> None:
    table = definition(tmp_path)
    running = new_batches(table)
    running.process([Message(0, {"id": 1, "place": {"city": "Oslo"}})], 0)
    running.process(
        [
            Message(1, {"id": "text"}),
            Message(2, {"id": 2, "place": {"zip": 5}, "tags": ["x"]}),
            Message(3, b"{"),
            Message(4, {"ID": 3}),
            Message(5, {"_offset": 3}),
            Message(6, {"a b": 3}),
            Message(7, {"place": {"CITY": 1}}),
            Message(8, [1, 2]),
            Message(9, {"place": {"CITY": None}, "a b": None, "tags": []}),
        ],
        1,
    )
    assert columns(table) == ["id", "place", "tags", "value"]
    rows = rows_of(table.to)
    assert [row["_offset"] for row in rows] == [0, 2, 8, 9]
    assert rows[0]["place"] == {"city": "Oslo", "zip": None}
    assert rows[1]["place"] == {"city": None, "zip": 5}
    assert rows[2]["value"] == [1, 2]
    dead = rows_of(f"{table.root}/{table.dead_letters}")
    assert [(row["offset"], row["reason"]) for row in dead] == [
        (1, "id is a long, and 'text' does not fit"),
        (3, "the value is not JSON: Input data was truncated"),
        (4, "'ID' differs from the column 'id' by case alone"),
        (5, "'_offset' is the name of a column of the table itself"),
        (6, "'a b' cannot be the name of a column"),
        (7, "'CITY' differs from the column 'city' by case alone"),
    ]
    assert (dead[0]["topic"], dead[0]["partition"], dead[0]["value"]) == ("orders", 0, b'{"id": "text"}')


def test_tasks_that_bring_one_column_with_several_types_make_it_json_text(tmp_path: Path) -> None:
    table = definition(tmp_path)
    new_batches(table).process([Message(0, {"x": 1}), Message(0, {"x": "a"}, partition=1)], 0)
    assert [row["x"] for row in rows_of(table.to)] == ["1", '"a"']


def test_a_json_schema_fixes_the_columns(tmp_path: Path) -> None:
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}'
    table = definition(tmp_path, schema="json", json_schema=schema)
    running = new_batches(table)
    assert columns(table) == ["id", "at"]
    running.process([Message(0, {"id": 1, "more": 2}), Message(1, {"id": 1.5})], 0)
    assert rows_of(table.to) == [{"_partition": 0, "_offset": 0, "_key": "k", "id": 1, "at": None}]
    (dead,) = rows_of(f"{table.root}/{table.dead_letters}")
    assert dead["reason"] == "id is a long, and 1.5 does not fit"


def test_an_upsert_table_has_the_latest_message_of_each_key(tmp_path: Path) -> None:
    table = definition(tmp_path, mode="upsert")
    running = new_batches(table)
    running.process([Message(n, {"n": n}, f"k{n % 5}") for n in range(20)], 0)
    assert sorted((row["_key"], row["n"]) for row in rows_of(table.to)) == [
        (f"k{n}", 15 + n) for n in range(5)
    ]
    running.process(
        [
            Message(20, None, "k0"),
            Message(21, {"n": 21}, "k1"),
            Message(22, {"m": "x"}, "k2"),
            Message(23, {"n": "misfit"}, "k3"),
            Message(24, {"n": 24}, None),
            Message(25, None, "never"),
        ],
        1,
    )
    assert sorted((row["_key"], row["n"], row["m"]) for row in rows_of(table.to)) == [
        ("k1", 21, None),
        ("k2", None, "x"),
        ("k3", 18, None),
        ("k4", 19, None),
    ]
    dead = rows_of(f"{table.root}/{table.dead_letters}")
    assert [row["offset"] for row in dead] == [23, 24]
    assert dead[1]["reason"] == "the message has no key"


class WithSchema:
    """Keys of a registry: a byte for the schema of the writer, and JSON."""

    def decode(self, data: bytes) -> Decoded:
        return JsonDecoder().decode(data[1:])


@pytest.mark.parametrize("buckets", [1, 64])
def test_a_key_has_one_row_whichever_schema_its_writer_has(tmp_path: Path, buckets: int) -> None:
    """Its bytes begin with the id of the schema, and may have the fields in another order."""
    table = definition(
        tmp_path, mode="upsert", key="registry", registry="http://127.0.0.1:1", buckets=buckets
    )
    running = new_batches(table, decoders=Decoders(JsonDecoder(), WithSchema()))
    running.process([Message(n, {"n": n}, f'1{{"shop": 7, "id": {n}}}') for n in range(8)], 0)
    running.process([Message(8 + n, {"n": 8 + n}, f'2{{"id": {n}, "shop": 7}}') for n in range(4)], 1)
    running.process([Message(12 + n, None, f'3{{"id": {n}.0, "shop": 7}}') for n in range(2, 6)], 2)
    assert sorted((row["_key"], row["n"]) for row in rows_of(table.to)) == [
        (f'{{"id":{key},"shop":7}}', number) for key, number in ((0, 8), (1, 9), (6, 6), (7, 7))
    ]
    assert not rows_of(f"{table.root}/{table.dead_letters}")


def test_a_tombstone_with_a_time_that_no_table_has_deletes_its_key(tmp_path: Path) -> None:
    table, batches = definition(tmp_path, mode="upsert"), list[Batch]()
    running = new_batches(table, batches.append)
    running.process([Message(0, {"n": 0}, "a"), Message(1, {"n": 1}, "b"), Message(2, {"n": 2}, "c")], 0)
    running.process([Message(3, None, "a", 0, 2**42), Message(4, None, "b", 0, -(2**42))], 1)
    assert [row["_key"] for row in rows_of(table.to)] == ["c"]
    assert rows_of(f"{table.root}/{table.dead_letters}") == []
    assert (batches[1].deleted, batches[1].newest_ms) == (2, 0)


def test_a_bucket_without_keys_has_no_file(tmp_path: Path) -> None:
    table = definition(tmp_path, mode="upsert")
    running = new_batches(table)
    running.process([Message(0, {"n": 1})], 0)
    running.process([Message(1, None)], 1)
    assert rows_of(table.to) == []
    assert DeltaTable(table.to).file_uris() == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_maintenance_removes_files_of_no_version_and_leaves_the_rows(tmp_path: Path, mode: str) -> None:
    table = definition(tmp_path, mode=mode)
    running = new_batches(table)
    for number in range(4):
        running.process([Message(number, {"n": number}, f"k{number % 2}")], number)
    rows = rows_of(table.to)
    stray = next(tmp_path.glob("orders/_*=*")) / "stray.parquet"
    stray.write_bytes(b"of a failed try")
    os.utime(stray, (1, 1))
    tables = TableMaintenance(table, None)
    for folder in (table.folder, table.dead_letters):
        tables.maintain(folder, 24)
    assert rows_of(table.to) == rows
    assert not stray.exists()
    assert len(DeltaTable(table.to).file_uris()) == (1 if mode == "append" else len(rows))
    running.process([Message(9, {"n": 9}, "k0")], 4)
    assert max(row["n"] for row in rows_of(table.to)) == 9


POINTS = [
    (Store, "write", "plan-1-"),
    (DeltaTables, "show", "rows"),
    (DeltaTables, "show", "dead letters"),
    (Store, "write", "manifest-1.json"),
]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("point", range(len(POINTS)))
def test_a_driver_that_dies_shows_each_message_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, moment: str, point: int
) -> None:
    """And a retry that would judge otherwise changes nothing once there is a plan."""
    table = definition(tmp_path, mode=mode)
    first = new_batches(table)
    first.process([Message(0, {"n": 0}, "a"), Message(1, {"n": 1}, "b")], 0)
    messages = [Message(2, {"n": 2}, "a"), Message(3, {"n": "x"}, "b"), Message(4, {"m": 4}, "c")]
    owner, name, call = POINTS[point]
    method = getattr(owner, name)
    calls = 0

    def deadly(self: Any, *args: Any) -> Any:
        nonlocal calls
        calls += name == "show"
        is_it = str(args[0]).startswith(call) or (calls == {"rows": 1, "dead letters": 2}.get(call))
        if is_it and moment == "before":
            raise Killed
        result = method(self, *args)
        if is_it:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, deadly)
        with pytest.raises(Killed):
            first.process(messages, 1)
    second = new_batches(table, makes=False)
    has_plan = (point, moment) != (0, "before")
    second.process([] if has_plan else messages, 1)
    second.process([Message(5, {"n": 5}, "d")], 2)
    rows, dead = rows_of(table.to), rows_of(f"{table.root}/{table.dead_letters}")
    kept = [0, 1, 2, 4, 5] if mode == "append" else [1, 2, 4, 5]
    assert [row["_offset"] for row in rows] == kept
    assert [row["offset"] for row in dead] == [3]


@pytest.mark.parametrize("seed", range(5))
def test_random_batches_and_deaths_leave_the_latest_row_of_each_key(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = definition(tmp_path, mode="upsert")
    running = new_batches(table)
    expected: dict[str, int] = {}
    offset = 0
    for number in range(8):
        messages = []
        for _ in range(chance.randrange(12)):
            key = f"k{chance.randrange(6)}"
            value = None if chance.random() < 0.3 else {"n": offset}
            messages.append(Message(offset, value, key))
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = offset
            offset += 1
        running.process(messages, number)
        if chance.random() < 0.5:
            running = new_batches(table, makes=False)
            running.process(messages, number)
    assert {row["_key"]: row["n"] for row in rows_of(table.to)} == expected


def test_a_plan_whose_files_are_gone_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = definition(tmp_path)
    first = new_batches(table)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "show", lambda *_: exec("raise Killed", {"Killed": Killed}))
        with pytest.raises(Killed):
            first.process([Message(0, {"n": 0})], 0)
    for file in tmp_path.glob("orders/_day=*/*.parquet"):
        file.unlink()
    new_batches(table, makes=False).process([Message(0, {"n": 0})], 0)
    assert [row["n"] for row in rows_of(table.to)] == [0]


def test_a_checkpoint_and_a_state_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    table = definition(tmp_path)
    metadata = tmp_path / table.state / "checkpoint" / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('{"id": "one"}')
    running = new_batches(table)
    running.process([Message(0, {"n": 0})], 0)
    running.check()
    metadata.write_text('{"id": "another"}')
    with pytest.raises(StateBroken, match="missing or another one"):
        running.check()
    with pytest.raises(StateBroken, match="restore both together"):
        running.process([Message(0, {"n": 0})], 0)
    metadata.unlink()
    with pytest.raises(StateBroken, match="missing or another one"):
        new_batches(table, makes=False).check()


def test_a_plan_of_another_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of a new checkpoint may have more messages: the plan would hide them."""
    table = definition(tmp_path)
    metadata = tmp_path / table.state / "checkpoint" / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('{"id": "one"}')
    first = new_batches(table)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "show", lambda *_: exec("raise Killed", {"Killed": Killed}))
        with pytest.raises(Killed):
            first.process([Message(0, {"n": 0})], 0)
    metadata.write_text('{"id": "another"}')
    more = [Message(0, {"n": 0}), Message(1, {"n": 1})]
    with pytest.raises(StateBroken, match="plan of another checkpoint"):
        new_batches(table, makes=False).process(more, 0)
    assert rows_of(table.to) == []
    metadata.write_text('{"id": "one"}')
    new_batches(table, makes=False).process([Message(0, {"n": 0})], 0)
    assert [row["n"] for row in rows_of(table.to)] == [0]


def test_a_topic_that_was_created_again_is_refused(tmp_path: Path) -> None:
    """Its offsets begin again: the table would have messages of both, or none of the new ones."""
    table = definition(tmp_path)
    ids: list[str | None] = [None]
    running = new_batches(table, topic_id=lambda: ids[-1])
    for number, known in enumerate([None, "one", None, "one"]):
        ids.append(known)
        running.process([Message(number, {"n": number})], number)
    ids.append("two")
    for fails in (running.check, lambda: running.process([Message(4, {"n": 4})], 4)):
        with pytest.raises(StateBroken, match="created again: delete the table with --data and create it"):
            fails()
    again = new_batches(table, makes=False, topic_id=lambda: ids[-1])
    with pytest.raises(StateBroken, match="the topic orders was created again"):
        again.check()
    assert [row["n"] for row in rows_of(table.to)] == [0, 1, 2, 3]


def test_a_table_with_rows_and_without_a_state_is_refused(tmp_path: Path) -> None:
    table = definition(tmp_path)
    new_batches(table).process([Message(0, {"n": 0})], 0)
    for file in (tmp_path / table.state / "state").iterdir():
        file.unlink()
    with pytest.raises(StateBroken, match="has rows, and"):
        new_batches(table, makes=False)


def test_a_driver_that_another_has_overtaken_commits_nothing(tmp_path: Path) -> None:
    """Its plan would hide batches, and its manifest would roll the state back."""
    table = definition(tmp_path)
    stalled = new_batches(table)
    other = new_batches(table, makes=False)
    for number in range(3):
        other.process([Message(number, {"n": number})], number)
    state = tmp_path / table.state / "state"
    manifest = (state / "manifest-2.json").read_bytes()
    with pytest.raises(StateBroken, match="another driver has changed the state in"):
        stalled.process([Message(0, {"n": 0})], 0)
    assert (state / "manifest-2.json").read_bytes() == manifest
    other.process([Message(3, {"n": 3})], 3)
    assert [row["n"] for row in rows_of(table.to)] == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("moment", range(3))
def test_two_drivers_at_one_batch_show_one_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, moment: int
) -> None:
    """The other one has a message for a misfit, and comes between the steps of the first."""
    table = definition(tmp_path, mode=mode)
    first, other = new_batches(table), new_batches(table, makes=False)
    first.process([Message(0, {"n": 0}, "a")], 0)
    other = new_batches(table, makes=False)
    steps = 0
    begins = DeltaTables.show

    def other_first(*args: Any, **options: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 1 + moment // 2:
            with monkeypatch.context() as patched:
                patched.setattr(DeltaTables, "show", begins)
                # Of the odd moments, the other one plans before it sees the plan of the first.
                patched.setattr(Plans, "kept", (lambda *_: None) if moment % 2 else kept)
                other.process([Message(1, {"n": "x"}, "a"), Message(2, {"n": 2}, "b")], 1)
        return begins(*args, **options)

    kept = Plans.kept
    monkeypatch.setattr(DeltaTables, "show", other_first)
    with pytest.raises(StateBroken, match="another driver"):
        first.process([Message(1, {"n": 1}, "a"), Message(2, {"n": "x"}, "b")], 1)
    assert steps >= 1
    rows, dead = rows_of(table.to), rows_of(f"{table.root}/{table.dead_letters}")
    is_others = moment == 1
    assert [row["offset"] for row in dead] == [1 if is_others else 2]
    new = {row["_offset"] for row in rows} - {0}
    assert new == ({2} if is_others else {1})


def test_a_commit_that_another_driver_has_made_meanwhile_is_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have opened the table at the same version."""
    table = definition(tmp_path)
    first, other = new_batches(table), new_batches(table, makes=False)
    add_columns = delta._add_columns

    def other_first(opened: Any, columns: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(delta, "_add_columns", add_columns)
            patched.setattr(Plans, "kept", lambda *_: None)
            patched.setattr(Ledger, "finish", lambda *_: None)
            other.process([Message(0, b"{"), Message(1, None)], 0)

    with monkeypatch.context() as patched:
        patched.setattr(delta, "_add_columns", other_first)
        first.process([Message(0, None), Message(1, b"{")], 0)
    assert [row["_offset"] for row in rows_of(table.to)] == [1]
    assert [row["offset"] for row in rows_of(f"{table.root}/{table.dead_letters}")] == [0]


def test_a_plan_of_other_offsets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file of offsets, Spark plans a batch anew: the plan would hide its other messages."""
    table = definition(tmp_path)
    offsets = tmp_path / table.state / "checkpoint" / "offsets" / "0"
    offsets.parent.mkdir(parents=True)
    offsets.write_text('v1\n{"batchTimestampMs":1}\n{"orders":{"0":1}}')
    first = new_batches(table)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "show", lambda *_: exec("raise Killed", {"Killed": Killed}))
        with pytest.raises(Killed):
            first.process([Message(0, {"n": 0})], 0)
    offsets.write_text('v1\n{"batchTimestampMs":2}\n{"orders":{"0":2}}')
    with pytest.raises(StateBroken, match="batch 0 has other offsets in the checkpoint"):
        new_batches(table, makes=False).process([Message(0, {"n": 0}), Message(1, {"n": 1})], 0)
    offsets.write_text('v1\n{"batchTimestampMs":2}\n{"orders":{"0":1}}')
    new_batches(table, makes=False).process([], 0)
    assert [row["n"] for row in rows_of(table.to)] == [0]


def test_a_batch_of_dead_letters_alone_names_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = definition(tmp_path)
    first = new_batches(table)
    show = DeltaTables.show

    def deadly(self: Any, *args: Any) -> Any:
        show(self, *args)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "show", deadly)
        with pytest.raises(Killed):
            first.process([Message(0, b"{")], 0)
    new_batches(table, makes=False).process([Message(0, {"n": 0})], 0)
    assert rows_of(table.to) == []
    assert [row["offset"] for row in rows_of(f"{table.root}/{table.dead_letters}")] == [0]


def test_a_plan_that_is_missing_and_was_committed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = definition(tmp_path)
    first = new_batches(table)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "finish", lambda *_: exec("raise Killed", {"Killed": Killed}))
        with pytest.raises(Killed):
            first.process([Message(0, {"n": 0})], 0)
    (plan,) = (tmp_path / table.state / "state").glob("plan-0-*.json")
    plan.unlink()
    with pytest.raises(StateBroken, match=r"plan-0-.*json of batch 0 is missing"):
        new_batches(table, makes=False).process([Message(0, {"n": 0})], 0)


def test_batches_that_are_missing_are_refused(tmp_path: Path) -> None:
    running = new_batches(definition(tmp_path))
    running.process([], 0)
    with pytest.raises(StateBroken, match="batch 2 comes after 0"):
        running.process([], 2)


def test_tasks_that_never_agree_on_columns_end_the_batch(tmp_path: Path) -> None:
    names = iter(range(100))

    def changing(messages: Any, task: Any, tasks: int) -> Any:
        return run_here([Message(0, {f"c{next(names)}": 1})], task, tasks)

    running = new_batches(definition(tmp_path), run=changing)
    with pytest.raises(StateBroken, match="other columns, or other keys, each time"):
        running.process([], 0)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_times_that_delta_does_not_know_are_dead_letters(tmp_path: Path, mode: str) -> None:
    first, last = -62_135_596_800, 253_402_300_799
    table = definition(tmp_path, mode=mode)
    running = new_batches(table)
    seconds = [first - 1, first, last, last + 1, 1_763_554_000_000, -(2**42)]
    running.process(
        [Message(n, {"n": n}, f"k{n}", 0, second - START_S) for n, second in enumerate(seconds)], 0
    )
    running.process([Message(6, {"n": 6}, "k6")], 1)
    assert sorted(row["n"] for row in rows_of(table.to)) == [1, 2, 6]
    place = f"{table.root}/{table.dead_letters}"
    assert [(row["offset"], row["reason"]) for row in rows_of(place)] == [
        (n, "the timestamp is not of the years 1 to 9999") for n in (0, 3, 4, 5)
    ]
    dead = DeltaTable(place).to_pyarrow_table().sort_by("offset")
    assert [str(time) for time in dead["timestamp"].to_pylist()] == [
        "0001-01-01 00:00:00+00:00",
        *["9999-12-31 23:59:59.999999+00:00"] * 2,
        "0001-01-01 00:00:00+00:00",
    ]


@pytest.mark.parametrize(("part", "second"), [("57853-02-02", 0), ("2026-11-19", 1_763_554_000_000)])
def test_no_file_has_a_day_that_readers_do_not_know(tmp_path: Path, part: str, second: int) -> None:
    rows = pa.table({"_timestamp": pa.array([second * 1_000_000]).cast(INSTANT)})
    with pytest.raises(AssertionError):
        write_part(Store(str(tmp_path)), "orders", "_day", part, rows)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("partition", [0, 1], ids=["one task", "two tasks"])
def test_fields_of_a_new_structure_that_clash_are_dead_letters(tmp_path: Path, partition: int) -> None:
    table = definition(tmp_path)
    running = new_batches(table)
    values = [{"u": {"id": 1}}, {"u": {"ID": 2}}, {"u": {"id": 3, "a b": 1}}, {"l": [{"n": 1, "N": 2}]}]
    running.process([Message(n, value, "k", n % (partition + 1)) for n, value in enumerate(values)], 0)
    running.process([Message(4, {"u": {"id": 5}, "l": [{"n": 6}]})], 1)
    rows = {row["_offset"]: (row["u"], row["l"]) for row in rows_of(table.to)}
    assert rows == {0: ({"id": 1}, None), 4: ({"id": 5}, [{"n": 6}])}
    dead = rows_of(f"{table.root}/{table.dead_letters}")
    assert {row["offset"]: row["reason"] for row in dead} == {
        1: "'ID' differs from the column 'id' by case alone",
        2: "'a b' cannot be the name of a column",
        3: "'N' differs from the column 'n' by case alone",
    }


class WithColumns:
    """JSON of which each value has a map of structures, with the fields that it has."""

    def decode(self, data: bytes) -> Decoded:
        value = json.loads(data)
        fields = pa.struct([(name, pa.int64()) for each in value["m"].values() for name in each])
        return Decoded(value, pa.struct([("m", pa.map_(pa.string(), fields))]))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_structures_in_maps_get_new_fields(tmp_path: Path, mode: str) -> None:
    table = definition(tmp_path, mode=mode)
    running = new_batches(table, decoders=Decoders(WithColumns()))
    running.process([Message(0, {"m": {"x": {"a": 1}}}, "k0")], 0)
    values = [{"m": {"x": {"a": 2, "b": 3}}}, {"m": {"y": {"A": 4}}}, {"m": {"x": {"c": 5}}}]
    running.process([Message(n, value, f"k{n}") for n, value in enumerate(values, 1)], 1)
    assert [row["m"] for row in rows_of(table.to)] == [
        [("x", {"a": 1, "b": None, "c": None})],
        [("x", {"a": 2, "b": 3, "c": None})],
        [("x", {"a": None, "b": None, "c": 5})],
    ]
    (dead,) = rows_of(f"{table.root}/{table.dead_letters}")
    assert dead["reason"] == "'A' differs from the column 'a' by case alone"


def test_an_object_that_no_column_can_have_is_a_dead_letter(tmp_path: Path) -> None:
    table = definition(tmp_path)
    running = new_batches(table)
    values = [{"x": {"a b": 1}, "y": 1}, {"y": 2}, {"l": [{"in": {"": 1}}], "y": 3}, {"x": {}, "y": 4}]
    running.process([Message(n, value) for n, value in enumerate(values)], 0)
    assert [row["y"] for row in rows_of(table.to)] == [2, 4]
    running.process([Message(4, {"x": {"c": 1}}), Message(5, {"x": {"a b": 1}})], 1)
    assert columns(table) == ["y", "x"]
    dead = rows_of(f"{table.root}/{table.dead_letters}")
    assert [(row["offset"], row["reason"]) for row in dead] == [
        (0, "'a b' cannot be the name of a column"),
        (2, "'' cannot be the name of a column"),
        (5, "'a b' cannot be the name of a column"),
    ]
