"""Queues through kills in quick succession: a share group and a delay topic, and the leaders that they need.

Brokers are killed 0.3 to 3 s apart, before the last one is back in sync: leaders of the queue's topic, share
coordinators, group coordinators, leaders of the delay topic and of its target. After that every message has
to be accepted, and every delayed message has to be in the target once. A message that was accepted without a
response counts as accepted, because the broker may have died between both. The group must have no lag.

With `in_turn`, the kills follow one share partition (`kills_in_turn`).
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from chaos.clients import TOPIC, Writer, create_topic, fully_replicated
from chaos.cluster import DELIVERIES_MAX, Cluster
from chaos.delayed_messages import DELAY_TOPIC, DELIVERY_MS, TARGET, DelayedMessages
from chaos.deliveries import Delivery
from chaos.history import History, Outcome
from chaos.kills_in_turn import DOWN_S, PAUSE_S, Brokers, kill_in_turn, start_due
from chaos.links import Links
from chaos.share_members import GROUP
from chaos.workers import DELIVERIES, Workers
from lab.home import lab_root

__all__ = [
    "DELAY_ROLES",
    "KILLS",
    "MESSAGES",
    "QueueVerdict",
    "ShareLoad",
    "judge_delays",
    "kill_leaders",
    "run_queues",
    "unanswered",
]

#: kills of one round
KILLS: Final = 9
#: how many messages of each kind a run sends, at least
MESSAGES: Final = 300
_LOAD_S: Final = 3.0
_START_S: Final = 120.0
_HEALED_S: Final = 150.0
_BROKERS: Final = 3
_LOOK_S: Final = 0.5
_MEMBERS: Final = ("queue", "queue", "librdkafka")
#: a part of the kills is of leaders of each topic
DELAY_ROLES: Final = (DELAY_TOPIC, TARGET)
_ROLES: Final = (TOPIC, "__share_group_state", "__consumer_offsets", *DELAY_ROLES)


@dataclass(slots=True)
class QueueVerdict:
    """The counts of a run."""

    kills: int = 0
    sent: int = 0
    stuck: Sequence[object] = ()
    redelivered: Sequence[object] = ()
    #: messages that were delivered once and accepted, without a response of the broker
    unanswered: int = 0
    #: the largest delivery count of a record; one that reaches the limit of the group is archived
    most_deliveries: int = 0
    #: records that the group has not finished in the end
    lag: int = 0
    delayed: int = 0
    missing: Sequence[str] = ()
    #: in the target more often than in the delay topic
    moved_twice: Sequence[str] = ()
    #: the delay topic has them twice: the producer has written them again
    sent_twice: Sequence[str] = ()
    complaints: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (
            self.stuck
            or self.redelivered
            or self.missing
            or self.moved_twice
            or self.sent_twice
            or self.lag
            or self.complaints
        )

    def lines(self) -> list[str]:
        return [
            f"{self.kills} kills; share group: {self.sent} messages acknowledged, {len(self.stuck)} stuck, "
            f"{len(self.redelivered)} delivered again, lag {self.lag}; "
            f"{self.unanswered} accepted without a response, delivery count up to {self.most_deliveries}",
            f"delay topic: {self.delayed} messages acknowledged, {len(self.missing)} missing, "
            f"{len(self.moved_twice)} moved twice, {len(self.sent_twice)} written twice by the producer",
            *(f"  stuck: {each}" for each in self.stuck[:5]),
            *(f"  delivered again: {each}" for each in self.redelivered[:5]),
            *(f"  missing: {each}" for each in self.missing[:5]),
            *(f"  moved twice: {each}" for each in self.moved_twice[:5]),
            *(f"  written twice: {each}" for each in self.sent_twice[:5]),
            *(f"NOT LIVE: {complaint}" for complaint in self.complaints),
            "verdict: " + ("good" if self.is_good else "BAD"),
        ]


class ShareLoad:
    """A writer, and the members of a share group that accept its messages; from `start` to `judge`."""

    def __init__(self, bootstrap: str, deliveries_max: int = DELIVERIES) -> None:
        """`deliveries_max` is the largest delivery limit that the brokers take."""
        self._bootstrap = bootstrap
        jars = lab_root() / "kafka" / "libs"
        self._workers = Workers(bootstrap, {}, _MEMBERS, jars, deliveries_max)
        self._history = History()
        self._writer = Writer("writer", bootstrap, self._history, itertools.count(), delivery_ms=DELIVERY_MS)

    def start(self) -> None:
        self._workers.start()
        self._writer.start()

    def is_small(self) -> bool:
        """Returns true as long as too few messages are acknowledged, or a kind of client has got none."""
        return self._history.count(Outcome.ACKNOWLEDGED) < MESSAGES or bool(self._workers.idle)

    def end(self, verdict: QueueVerdict) -> None:
        """Stop the writer when all replicas are in sync again."""
        if not fully_replicated(self._bootstrap, _HEALED_S):
            verdict.complaints.append(f"not every replica was in sync within {_HEALED_S:g} s")
        self._writer.stop()
        if missing := self._writer.finish(_HEALED_S):
            verdict.complaints.append(f"the writer has heard nothing of {missing} messages")

    def judge(self, verdict: QueueVerdict) -> None:
        """Wait until the group has finished all messages, and count."""
        history, workers = self._history, self._workers
        workers.await_accepted(lambda: history.sends, _HEALED_S)
        verdict.lag = _lag(self._bootstrap, _HEALED_S)
        verdict.complaints += workers.finish(lambda: history.sends, _HEALED_S)
        verdict.most_deliveries = max((each.delivery_count for each in workers.deliveries), default=0)
        found = workers.anomalies(history.sends)
        verdict.unanswered = unanswered(workers.deliveries)
        verdict.sent = history.count(Outcome.ACKNOWLEDGED)
        verdict.stuck = found.get("queue-lost", ())
        verdict.redelivered = found.get("queue-redelivered", ())


def run_queues(
    seed: int, kills: int, say: Callable[[str], None], keep: Path | None = None, *, in_turn: bool = False
) -> QueueVerdict:
    """Kill `kills` leaders, chosen by the seed, under a share group and a delay topic."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-queues-") as temporary,
        Cluster(keep or Path(temporary), _BROKERS, Links()) as cluster,
    ):
        create_topic(cluster.bootstrap, _BROKERS, _START_S)
        delayed = DelayedMessages(cluster.bootstrap, seed)
        delayed.create_topics(_START_S)
        load = ShareLoad(cluster.bootstrap, DELIVERIES_MAX)
        load.start()
        delayed.start()
        time.sleep(_LOAD_S)
        rng = random.Random(seed)
        if in_turn:
            done = kill_in_turn(cluster, TOPIC, GROUP, rng, kills, say)
        else:
            done = kill_leaders(cluster, _ROLES, rng, kills, say)
        cluster.heal()
        time.sleep(_LOAD_S)
        # A busy machine sends few messages in a given time.
        deadline = time.monotonic() + _HEALED_S
        while (load.is_small() or len(delayed.acknowledged) < MESSAGES) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return _judge(load, delayed, done)


def kill_leaders(
    brokers: Brokers, roles: Sequence[str], rng: random.Random, kills: int, say: Callable[[str], None]
) -> int:
    """Kill leaders of these topics, and start each again a moment later. Returns the number of kills."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    done = 0
    began = time.monotonic()
    back: dict[int, float] = {}
    while done < kills:
        role = rng.choice(roles)
        node = _leader(admin, role, rng)
        if node is not None and brokers.runs(node):
            say(f"{time.monotonic() - began:6.1f} s  kill {node}, a leader of {role}")
            brokers.kill(node)
            back[node] = time.monotonic() + rng.uniform(*DOWN_S)
            done += 1
        start_due(brokers, back, time.monotonic() + rng.uniform(*PAUSE_S))
    return done


def _leader(admin: AdminClient, topic: str, rng: random.Random) -> int | None:
    """The leader of some partition, as the broker that answers first knows it."""
    try:
        found = admin.list_topics(topic, timeout=1.0).topics[topic].partitions.values()
    except (KafkaException, KeyError):
        return None
    leaders = sorted({partition.leader for partition in found if partition.leader > 0})
    return rng.choice(leaders) if leaders else None


def unanswered(deliveries: Sequence[Delivery]) -> int:
    """The messages that were delivered once, and whose acceptance no broker has answered."""
    times = Counter(delivery.value for delivery in deliveries)
    return sum(
        delivery.is_accepted and delivery.accepted_at is None and times[delivery.value] == 1
        for delivery in deliveries
    )


def _lag(bootstrap: str, timeout_s: float) -> int:
    """The records that the share group has not finished, when it makes no more progress."""
    command = [sys.executable, "-m", "penstock", "share", "describe", GROUP, "--json"]
    deadline = time.monotonic() + timeout_s
    lag = -1
    # A partition without a lag is one whose leader has not answered: it is not known to be finished.
    while lag and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        described = subprocess.run(
            [*command, "--bootstrap", bootstrap], capture_output=True, text=True, check=False
        )
        if described.returncode == 0:
            (group,) = json.loads(described.stdout)
            lags = [place["lag"] for place in group["partitions"]]
            lag = -1 if None in lags or not lags else sum(lags)
    return lag


def _judge(load: ShareLoad, delayed: DelayedMessages, kills: int) -> QueueVerdict:
    verdict = QueueVerdict(kills)
    load.end(verdict)
    verdict.complaints += delayed.stop(_HEALED_S)
    load.judge(verdict)
    judge_delays(delayed, verdict)
    return verdict


def judge_delays(delayed: DelayedMessages, verdict: QueueVerdict) -> None:
    """Wait until all delayed messages are in the target, and count."""
    delayed.wait(_HEALED_S)
    verdict.delayed = len(delayed.acknowledged)
    verdict.missing = sorted(delayed.acknowledged - delayed.moved.keys())
    written = Counter(delayed.written.values())
    verdict.sent_twice = sorted(value for value, count in written.items() if count > 1)
    verdict.moved_twice = sorted(
        value for value, count in delayed.moved.items() if count > max(1, written[value])
    )
    delayed.finish()
