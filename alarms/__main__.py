"""`python -m alarms`: prints one line per fault, and exits with 1 if an alert was not as it should be.

With `--quiet`, no fault is caused: for that many seconds, an hour by default, no alert may fire with the
rules as they are, while clients write and read, and each broker is restarted once as planned.

It exits with 2 without Prometheus, and on a machine that is so busy that alerts fire without a fault.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from alarms.cluster import Cluster
from alarms.fault import Fault
from alarms.faults import FAULTS_IN_ORDER
from alarms.quiet import is_quiet
from alarms.rules import alert_names, as_shipped, shortened
from lab.prometheus import Prometheus, prometheus_path
from tools.arguments import Arguments

#: how long an alert may take to fire, and to resolve: the lag of a link is one of a minute, on a busy machine
_PATIENCE_S: Final = 150.0
#: an hour, after which the longest windows of the rules are full
_QUIET_S: Final = 3600.0
#: how long no alert may fire before the first fault: longer than the shortened windows
_CALM_S: Final = 15.0


def main() -> int:
    parser = Arguments(prog="python -m alarms", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="faults with a word in their name"
    )
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which stay there")
    parser.add_argument(
        "--quiet", type=float, nargs="?", const=_QUIET_S, metavar="SECONDS", help="a time without a fault"
    )
    given = parser.parse_args()
    chosen = [f for f in FAULTS_IN_ORDER if not given.only or any(word in f.name for word in given.only)]
    binary = prometheus_path("prometheus")
    if binary is None:
        print("alarms: prometheus is not installed: apt-get install prometheus", file=sys.stderr)
        return 2
    covered = {alert for fault in FAULTS_IN_ORDER for alert in fault.alerts}
    assert covered == set(alert_names()), covered ^ set(alert_names())
    with tempfile.TemporaryDirectory(prefix="penstock-alarms-") as temporary:
        home = given.keep or Path(temporary)
        (home / "prometheus").mkdir(parents=True)
        rules = shortened() if given.quiet is None else as_shipped()
        with (
            Cluster(home) as cluster,
            Prometheus(binary, home / "prometheus", cluster.targets, rules, cluster.others) as prometheus,
        ):
            if given.quiet is not None:
                return 0 if is_quiet(cluster, prometheus, given.quiet) else 1
            if fired := _fires_without_fault(prometheus):
                print(f"alarms: the machine is too busy: without a fault there is {fired}", file=sys.stderr)
                return 2
            return 0 if _run(cluster, prometheus, chosen) else 1


def _run(cluster: Cluster, prometheus: Prometheus, chosen: Sequence[Fault]) -> bool:
    early = [fault for fault in chosen if fault.begins_early]
    began = {fault.name: time.monotonic() for fault in early}
    for fault in early:
        fault.begin(cluster)
    in_turn = [fault for fault in chosen if not fault.begins_early]
    # The early ones in the middle: while all brokers still run.
    calm = [fault for fault in in_turn if fault.is_calm]
    good = True
    for fault in (*calm, *early, *(fault for fault in in_turn if not fault.is_calm)):
        good &= _suffer(cluster, prometheus, fault, began.get(fault.name))
    print("verdict: " + ("good" if good else "BAD"))
    return good


def _fires_without_fault(prometheus: Prometheus) -> str:
    """Wait for a time without alerts; the last alert with its values if there is none."""
    began, last = time.monotonic(), "no answer of Prometheus"

    def is_calm() -> bool:
        nonlocal began, last
        if firing := _firing(prometheus):
            began, last = time.monotonic(), _still_firing(prometheus, firing) or last
        return time.monotonic() - began >= _CALM_S

    return "" if _until(is_calm) else last


def _suffer(cluster: Cluster, prometheus: Prometheus, fault: Fault, began: float | None) -> bool:
    """One fault from its begin to its end; false if an alert or the health was not as it should be."""
    wanted = set(fault.alerts)
    if began is None:
        began = time.monotonic()
        fault.begin(cluster)
    fired: set[str] = set()
    named = not fault.reason

    def all_seen() -> bool:
        nonlocal named
        fired.update(_firing(prometheus) & wanted)
        named = named or fault.reason in _reasons(cluster)
        return named and fired == wanted

    seen = _until(all_seen)
    fired_s, began = time.monotonic() - began, time.monotonic()
    fault.end(cluster)
    resolved = _until(
        lambda: not _firing(prometheus) & wanted and not (fault.reason and fault.reason in _reasons(cluster))
    )
    outcome = f"fired after {fired_s:.0f} s, resolved after {time.monotonic() - began:.0f} s"
    if not seen:
        outcome = f"DID NOT FIRE: {', '.join(sorted(wanted - fired))}" if fired != wanted else "NO REASON"
    elif not resolved:
        outcome = f"DID NOT RESOLVE ({_still_firing(prometheus, wanted)})"
    print(f"{fault.name:28} {outcome}: {', '.join(fault.alerts)}", flush=True)
    return seen and resolved


def _still_firing(prometheus: Prometheus, wanted: set[str]) -> str:
    """The values of alerts that still fire: those of a machine that is overloaded without the fault, too."""
    try:
        found = prometheus.firing_values()
    except OSError:
        return ""
    return ", ".join(
        f"{name} at {', '.join(f'{value:.3g}' for value in values)}"
        for name, values in found.items()
        if name in wanted
    )


def _firing(prometheus: Prometheus) -> set[str]:
    try:
        return prometheus.firing()
    except OSError:
        return {"no answer"}


def _reasons(cluster: Cluster) -> str:
    """The reasons of all health reports; those of a level that is Healthy are empty."""
    parts = ("broker", "cluster", "topics", "clients")
    return "\n".join(
        reason for report in cluster.health().values() for part in parts for reason in report[part]["reasons"]
    )


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


if __name__ == "__main__":
    sys.exit(main())
