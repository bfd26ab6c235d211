"""Searches for requests that hold a broker's event loop: `python -m tests.hostile --help`."""

from __future__ import annotations

import sys

from tests.hostile.clients import Kind
from tests.hostile.sweep import Plan, sweep
from tools.arguments import Arguments


def main() -> int:
    parser = Arguments(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--apis", default="", help="names of APIs, with commas; all by default")
    parser.add_argument("--small", type=int, default=1200, help="N of the growth from N to 4 N")
    parser.add_argument("--largest", type=int, default=20_000, help="the size that must not stall")
    parser.add_argument("--latest", action="store_true", help="only the latest version of each API")
    parser.add_argument("--ends", action="store_true", help="only the oldest and the latest version")
    parser.add_argument("--shared", action="store_true", help="the same brokers for all APIs")
    parser.add_argument("--no-shrink", action="store_true", help="report failures as they were found")
    parser.add_argument("--steps", action="store_true", help="no honest client: on a busy machine it waits")
    parser.add_argument("--kinds", default="", help="kinds of clients, with commas; all by default")
    given = parser.parse_args()
    plan = Plan(
        small=given.small,
        largest=given.largest,
        apis=[name for name in given.apis.split(",") if name],
        every_version=not given.latest,
        only_ends=given.ends,
        kinds=[Kind(name) for name in given.kinds.split(",") if name] or tuple(Kind),
        shared=given.shared,
        shrinks=not given.no_shrink,
        honest=not given.steps,
    )
    report = sweep(plan, lambda text: print(text, flush=True))
    print(f"{report.requests} requests, {len(report.failures)} failures")
    print(f"longest step at size {plan.largest}: {report.worst_step[0]:.1f} ms, {report.worst_step[1]}")
    print(f"growth from N to 4 N: at most {report.worst_growth[0]:.1f}, {report.worst_growth[1]}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
