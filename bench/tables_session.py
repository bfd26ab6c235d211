"""`python -m bench.tables_session BOOTSTRAP TOPIC FOLDER`: the pace of tables of a topic, as JSON.

An append table and an upsert table read the whole topic, one after the other. The first batch of each does
not count. A process of its own: Java is gone with it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from uuid import uuid4

from penstock.jobs.session import new_session
from penstock.tables.batches import Batch
from penstock.tables.definition import TableDefinition
from penstock.tables.job import TableJob, start
from penstock.tables.opening import make

_BATCH_ROWS = 250_000
_MASTER = "local[2]"


def main(bootstrap: str, topic: str, folder: str) -> None:
    spark = new_session(_MASTER, "penstock-bench")
    paces = {mode: _pace(spark, bootstrap, topic, folder, mode) for mode in ("append", "upsert")}
    print(json.dumps({f"{mode}, rows/s": pace for mode, pace in paces.items()}))
    spark.stop()


def _pace(spark: Any, bootstrap: str, topic: str, folder: str, mode: Any) -> float:
    table = TableDefinition(
        name=mode, id=uuid4().hex, topic=topic, to=f"{folder}/{mode}", mode=mode, schema="infer"
    )
    make(table.check())
    done: list[tuple[float, Batch]] = []
    job = TableJob(table, bootstrap, most_per_batch=_BATCH_ROWS, until_end=True)
    start(spark, job, lambda batch: done.append((time.monotonic(), batch))).wait()
    for at_s, batch in done:
        print(f"{mode}: {batch.read} read at {at_s:.1f} s", file=sys.stderr)
    if len(done) < 2 or any(batch.dead for _, batch in done):
        raise RuntimeError(f"{mode}: {len(done)} batches, or dead letters")
    return sum(batch.read for _, batch in done[1:]) / (done[-1][0] - done[0][0])


if __name__ == "__main__":
    main(*sys.argv[1:])
