"""What the broker of a pod does before it stops, in a cluster of real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.cli.cluster.moves import excluded_brokers, read_image
from penstock.cli.container.leaving import unregister_leavers
from penstock.cli.container.stopping import StatefulSet, give_away, wait_for_others
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.testing import Cluster, cluster
from tests.testing.cluster_clients import PATIENCE_S, create, produce, read


class Pods(StatefulSet):
    """A set with a number of wanted pods, of which some still exist."""

    def __init__(self, wanted: int, existing: set[int]) -> None:
        self.name = "queue"
        self._wanted, self._existing = wanted, existing

    def wanted(self) -> int:
        return self._wanted

    def has_pod(self, ordinal: int) -> bool:
        return ordinal in self._existing


@contextmanager
def line_to(running: Cluster, *others: int) -> Iterator[DirectLine]:
    """A connection to the brokers but for those that stop."""
    addresses = ",".join(running.address(id_) for id_ in running.ids if id_ not in others)
    with DirectLine(addresses, PATIENCE_S) as line:
        yield line


def test_a_broker_waits_until_others_are_in_sync() -> None:
    with cluster(brokers=3, config={"min.insync.replicas": "2"}) as running:
        create(running, "t")
        first, second, _ = running.isr("t")
        running.kill(second)
        running.wait_for_isr("t", size=2)
        said: list[str] = []
        now = iter(range(1000))
        with line_to(running, second) as line:
            stopped = wait_for_others(
                line, first, 30, said.append, sleep=lambda _: None, clock_s=lambda: next(now)
            )
            assert not stopped
            assert said[0].startswith(f"broker {first} waits: too few other in-sync replicas of t-0")
            running.start(second)
            running.wait_for_isr("t", size=3)
            assert wait_for_others(line, first, PATIENCE_S, said.append)


def test_a_broker_that_leaves_gives_its_replicas_away_and_is_unregistered() -> None:
    with cluster(brokers=4) as running:
        create(running, "t")
        produce(running, "t", b"kept")
        leaving = next(id_ for id_ in running.ids[::-1] if id_ in running.isr("t"))
        with line_to(running, leaving) as line:
            assert give_away(line, leaving, max(running.ids) + 1, PATIENCE_S) > 0
            assert list(read_image(line).partitions_on(leaving)) == []
            assert leaving not in excluded_brokers(line)
        running.stop(leaving)
        bootstrap = ",".join(running.address(id_) for id_ in running.ids if id_ != leaving)
        pods = Pods(leaving, set())

        def unregistered() -> list[str]:
            return list(unregister_leavers(lambda: DirectLine(bootstrap, PATIENCE_S), pods, 1, PATIENCE_S))

        running.wait_until(lambda: f"broker {leaving} still runs" not in unregistered())
        with line_to(running, leaving) as line:
            running.wait_until(lambda: leaving not in read_image(line).brokers)
        assert read(running, "t", 1) == [b"kept"]


def test_pods_that_leave_together_give_nothing_to_each_other() -> None:
    """Kubernetes ends both at once: the second hook runs when the first broker is empty and still up."""
    with cluster(brokers=5) as running:
        for topic in "abcdef":
            create(running, topic)
        first, second = sorted(running.ids)[-2:]
        with line_to(running, first, second) as line:
            assert give_away(line, first, first, PATIENCE_S) > 0
            assert give_away(line, second, first, PATIENCE_S) > 0
            image = read_image(line)
            assert [*image.partitions_on(first), *image.partitions_on(second)] == []


def test_a_pod_that_exists_keeps_its_broker() -> None:
    with cluster(brokers=3) as running:
        highest = max(running.ids)
        running.stop(highest)
        bootstrap = ",".join(running.address(id_) for id_ in running.ids if id_ != highest)

        def look(pods: StatefulSet, voters: int) -> list[str]:
            return list(
                unregister_leavers(lambda: DirectLine(bootstrap, PATIENCE_S), pods, voters, PATIENCE_S)
            )

        assert look(Pods(highest, {highest}), 1) == [f"broker {highest} still runs"]
        assert look(Pods(highest, set()), highest + 1) == []  # it is a voter
        with pytest.raises(Failure, match="no StatefulSet queue that wants pods"):
            look(Pods(0, set()), 1)
