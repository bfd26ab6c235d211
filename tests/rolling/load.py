"""Clients of every kind during a roll, and the judgement of what they saw.

Clients are those of the chaos tests. A roll is no fault, so more is expected: no message may fail, and no
transaction may end in a way that its producer does not know.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.checker import anomalies, duplicates
from chaos.clients import TOPIC, Reader, Writer, create_topic, read_everything
from chaos.history import History, Outcome
from chaos.ledger import Ledger
from chaos.workers import Workers
from lab.home import lab_root
from tests.rolling.renumbered import is_renumbered
from tools.golden.reading import records

__all__ = ["Load"]

_PATIENCE_S: Final = 150.0
_BROKERS: Final = 3
#: transactions of the careful producer are committed at this pace
_PACE_S: Final = 0.1
_CALL_S: Final = 60.0
_CAREFUL: Final = "careful"
#: of the share group
_MEMBERS: Final = ("queue", "librdkafka")


class Load:
    """Producers, consumer groups, transactions and a share group, from `start` to `finish`."""

    def __init__(self, bootstrap: str, members: Sequence[str] = _MEMBERS, *, is_basic: bool = False) -> None:
        """A `is_basic` load has no transactions and no share group, which version 0.1.0 did not have."""
        create_topic(bootstrap, _BROKERS, _PATIENCE_S)
        self._bootstrap = bootstrap
        self.history = History()
        #: records that are there twice because of an earlier version
        self.renumbered = 0
        values = itertools.count()
        self._writers = [Writer(f"writer-{n}", bootstrap, self.history, values) for n in (1, 2)]
        self._readers = [Reader(f"member-{n}", bootstrap, self.history, "group") for n in (1, 2)]
        self._readers.append(Reader("reader", bootstrap, self.history, None))
        self._ledger = None if is_basic else Ledger(bootstrap, _PATIENCE_S, java=False)
        self._workers = Workers(bootstrap, {}, () if is_basic else members, lab_root() / "kafka" / "libs")
        self._careful = None if is_basic else CarefulTransactions(bootstrap)

    def start(self) -> None:
        for writer in self._writers:
            writer.start()
        for reader in self._readers:
            reader.start()
        self._workers.start()
        if self._ledger is not None and self._careful is not None:
            self._ledger.start()
            self._careful.start()

    @property
    def acknowledged(self) -> int:
        return self.history.count(Outcome.ACKNOWLEDGED)

    def finish(self, earlier: Path | None = None) -> list[str]:
        """End all clients; returns whatever was wrong.

        If brokers of an earlier version took part, `earlier` is the data directory of a broker. Records that
        librdkafka has sent again in a new producer epoch are only counted then.
        """
        wrong = []
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            if missing := writer.finish(_PATIENCE_S):
                wrong.append(f"{writer.name} has heard nothing of {missing} messages")
            if writer.fatal_error is not None:
                wrong.append(f"{writer.name} has ended: {writer.fatal_error}")
        if self._careful is not None:
            wrong += self._careful.finish()
        if not read_everything(self._bootstrap, self.history, _PATIENCE_S):
            wrong.append("the log was not read to its end")
        for reader in self._readers:
            reader.finish(_PATIENCE_S)
        if self._ledger is not None:
            wrong += self._ledger.finish()
        wrong += self._workers.finish(lambda: self.history.sends, _PATIENCE_S)
        for outcome in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.PENDING):
            if count := self.history.count(outcome):
                wrong.append(f"{count} messages are {outcome.value}")
        found = {
            **anomalies(self.history),
            **({} if self._ledger is None else self._ledger.anomalies()),
            **self._workers.anomalies(self.history.sends),
        }
        if earlier is not None and "duplicate" in found:
            copies = [[*records] for records in duplicates(self.history)]
            broken = [each for each in copies if not is_renumbered(earlier / "topics" / TOPIC, each)]
            self.renumbered = len(copies) - len(broken)
            found = {**found, "duplicate": broken}
        wrong += [f"{name}: {len(cases)}, such as {cases[0]}" for name, cases in found.items() if cases]
        return wrong

    def lines(self) -> list[str]:
        """What the clients did, in words."""
        counted = {} if self._ledger is None else self._ledger.counts()
        transactions = ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))
        return [
            f"{self.acknowledged} messages acknowledged, {self.renumbered} in two producer epochs",
            f"transactions: {transactions}; {self.committed} by the careful producer",
            *self._workers.lines(),
        ]

    @property
    def committed(self) -> int:
        """Transactions of the careful producer."""
        return 0 if self._careful is None else self._careful.committed


class CarefulTransactions:
    """A transactional producer that retries what librdkafka calls retriable, and takes no other error."""

    def __init__(self, bootstrap: str) -> None:
        self.committed = 0
        self._errors: list[str] = []
        self._stopped = threading.Event()
        self._bootstrap = bootstrap
        self._thread = threading.Thread(target=self._run, name="careful", daemon=True)

    def start(self) -> None:
        topic = NewTopic(_CAREFUL, 1, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([topic])[_CAREFUL].result(_CALL_S)
        self._thread.start()

    def finish(self) -> list[str]:
        self._stopped.set()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            self._errors.append("its last transaction does not end")
        read = [int(each[3]) for each in records(self._bootstrap, _CAREFUL, 0, "read_committed")]
        if read != [*range(self.committed)]:
            self._errors.append(
                f"{self.committed} transactions, but {len(read)} records, {len({*read})} different"
            )
        return [f"the careful producer: {error}" for error in self._errors]

    def _run(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "transactional.id": "careful",
            "log_level": 0,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
        }
        producer = Producer(settings)
        try:
            self._repeat(lambda: producer.init_transactions(_CALL_S))
            while not self._stopped.wait(_PACE_S):
                producer.begin_transaction()
                producer.produce(_CAREFUL, b"%d" % self.committed, partition=0)
                self._repeat(lambda: producer.commit_transaction(_CALL_S))
                self.committed += 1
        except KafkaException as error:
            self._errors.append(str(error))

    def _repeat(self, call: Any) -> None:
        """Call until it succeeds; raises an error that is not retriable."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
