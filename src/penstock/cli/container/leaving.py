"""Unregisters the brokers of pods that were removed for good, once they have no replicas left.

A pod that leaves gives its replicas away before it ends, and stays registered. If its end was cut short, the
replicas that it still has are rebuilt from others, and nothing is unregistered while one is left. A pod that
exists, a broker that is up, and every voter are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from penstock.cli.cluster.draining import receive_again
from penstock.cli.cluster.membership import forget_broker
from penstock.cli.cluster.moves import read_image
from penstock.cli.container.stopping import StatefulSet
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure

__all__ = ["unregister_leavers"]


def unregister_leavers(
    connect: Callable[[], AbstractContextManager[DirectLine]],
    pods: StatefulSet,
    voters: int,
    timeout_s: float,
) -> Iterator[str]:
    """Unregister brokers whose pods are gone; yields a line for each of them."""
    wanted = pods.wanted()
    if wanted < 1:
        raise Failure(f"there is no StatefulSet {pods.name} that wants pods: nothing is unregistered")
    with connect() as line:
        image = read_image(line)
        left = sorted(id_ for id_ in image.brokers if id_ >= max(wanted, voters))
        for id_ in left:
            if image.brokers[id_].active or pods.has_pod(id_):
                yield f"broker {id_} still runs"
                continue
            moves = forget_broker(line.bootstrap, id_, timeout_s)
            # Its id may be excluded by a preStop hook that was killed.
            receive_again(line, [id_])
            yield f"broker {id_} is unregistered: {moves} partitions moved"
