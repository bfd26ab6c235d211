"""One run from beginning to verdict: cluster, clients, faults, healing, and the judgement of the record."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.checker import anomalies
from chaos.clients import Reader, Writer, create_topic, fully_replicated, read_everything
from chaos.cluster import DELIVERIES_MAX, Cluster
from chaos.history import History, Outcome
from chaos.ledger import Ledger
from chaos.links import Links
from chaos.nemesis import KINDS, Fault, schedule, unleash
from chaos.network import Network
from chaos.passing_topics import PREFIX, PassingTopics
from chaos.watching import HealthWatch, Late
from chaos.workers import Workers
from lab.home import lab_root

__all__ = ["Verdict", "run"]

_START_S: Final = 120.0
#: how long a cluster may take that is whole again until everything works; long, because tests share machines
_HEALED_S: Final = 150.0
#: messages sent when all is whole again
_LAST: Final = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run; `complaints` are failures of liveness after healing."""

    faults: int
    outcomes: dict[str, int]
    read: int
    anomalies: dict[str, Sequence[object]]
    complaints: list[str]
    #: transactions by outcome and client
    transactions: dict[str, int]

    @property
    def is_good(self) -> bool:
        return not self.anomalies and not self.complaints

    @property
    def is_late(self) -> bool:
        """Whether all that went wrong is that the cluster was not whole in time. No record is missing."""
        late = all(isinstance(each, Late) for each in self.complaints)
        return bool(self.complaints) and late and not self.anomalies

    def lines(self) -> list[str]:
        counts = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        found = [
            f"ANOMALY {name}: {len(cases)}, such as {cases[0]}" for name, cases in self.anomalies.items()
        ]
        transactions = ", ".join(f"{count} {name}" for name, count in sorted(self.transactions.items()))
        return [
            f"{self.faults} faults; sends: {counts}; {self.read} records read",
            f"transactions: {transactions}",
            *found,
            *(f"NOT LIVE: {complaint}" for complaint in self.complaints),
            "verdict: " + ("good" if self.is_good else "BAD"),
        ]


def run(
    seconds: float,
    seed: int,
    brokers: int,
    say: Callable[[str], None],
    kinds: Sequence[str] = tuple(KINDS),
    keep: Path | None = None,
    network: Network | None = None,
    *,
    java: bool = False,
    secured: bool = False,
    members: Sequence[str] = (),
) -> Verdict:
    """Run the seed's faults of these kinds; with `keep`, the brokers' data and logs stay there.

    Proxies make the network unless another is given. `java` adds transactions of the Java client, unless
    the cluster is secured. With `secured`, connections use TLS, and disks are encrypted. `members` are the
    clients of a share group that consumes the topic, too (chaos/workers.py).
    """
    faults = schedule(seed, seconds, range(1, brokers + 1), kinds)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-chaos-") as temporary,
        Cluster(keep or Path(temporary), brokers, network or Links(), secured=secured) as cluster,
    ):
        create_topic(cluster.bootstrap, brokers, _START_S, cluster.client_config)
        ledger = Ledger(
            cluster.bootstrap, _HEALED_S, java=java and not secured, security=cluster.client_config
        )
        jars = lab_root() / "kafka" / "libs"
        workers = Workers(cluster.bootstrap, cluster.client_config, members, jars, DELIVERIES_MAX)
        return _suffer(cluster, ledger, workers, seconds, faults, say)


def _suffer(
    cluster: Cluster,
    ledger: Ledger,
    workers: Workers,
    seconds: float,
    faults: Sequence[Fault],
    say: Callable[[str], None],
) -> Verdict:
    history, values = History(), itertools.count()
    client = cluster.client_config
    writers = [Writer(f"writer-{n}", cluster.bootstrap, history, values, client) for n in (1, 2)]
    readers = [Reader(f"member-{n}", cluster.bootstrap, history, "group", client) for n in (1, 2)]
    readers.append(Reader("reader", cluster.bootstrap, history, None, client))
    for writer in writers:
        writer.start()
    for reader in readers:
        reader.start()
    ledger.start()
    workers.start()
    passing = PassingTopics(cluster.bootstrap, client)
    passing.start()
    health = HealthWatch({node: cluster.watched(node) for node in cluster.nodes})
    health.start()
    unleash(cluster, faults, seconds, say)
    cluster.heal()
    complaints = _look_for_life(cluster, writers, history)
    complaints += passing.finish(_HEALED_S)
    complaints += health.finish(_HEALED_S, PREFIX)
    say(f"{passing.count} topics created and deleted")
    say(f"{health.reports} health reports, {health.judged} of them with partitions without a leader")
    if not read_everything(cluster.bootstrap, history, _HEALED_S, client):
        complaints.append(f"the log was not read to its end within {_HEALED_S:g} s")
    for reader in readers:
        reader.finish(_HEALED_S)
    complaints += ledger.finish()
    complaints += workers.finish(lambda: history.sends, _HEALED_S)
    for line in workers.lines():
        say(line)
    outcomes = {outcome.value: history.count(outcome) for outcome in Outcome}
    read = sum(len(poll.records) for poll in history.polls)
    found = {
        **anomalies(history),
        **ledger.anomalies(),
        **workers.anomalies(history.sends),
    }
    return Verdict(len(faults), outcomes, read, found, complaints, ledger.counts())


def _look_for_life(cluster: Cluster, writers: Sequence[Writer], history: History) -> list[str]:
    """The failures of liveness after healing; stops the writers."""
    complaints: list[str] = []
    if not fully_replicated(cluster.bootstrap, _HEALED_S, cluster.client_config):
        complaints.append(Late(f"not every replica was in sync within {_HEALED_S:g} s"))
    for writer in writers:
        writer.stop()
    complaints += [
        f"{writer.name} has ended with a fatal error: {writer.fatal_error}"
        for writer in writers
        if writer.fatal_error is not None
    ]
    for writer in writers:
        if missing := writer.finish(_HEALED_S):
            complaints.append(f"{writer.name} has heard nothing of {missing} messages within {_HEALED_S:g} s")
    last = history.sends[-_LAST:]
    if lacking := [send for send in last if send.outcome is not Outcome.ACKNOWLEDGED]:
        complaints.append(f"{len(lacking)} of the last {len(last)} messages were not acknowledged")
    return complaints
