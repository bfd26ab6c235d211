"""`python -m differential`: prints seeds and differences; exits with 1 if one is not allowed."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter

from differential.brokers import both, common_versions, warm_up
from differential.generator import KINDS, generate
from differential.operations import Operation
from differential.run import Disagreement, Party, run
from differential.shrink import shrink
from tools.arguments import Arguments

OPERATIONS = 300
SHRINKING_TRIES = 60


def main() -> int:
    parser = Arguments(prog="python -m differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the first seed")
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="per seed")
    parser.add_argument("--only", default="", help=f"kinds, by comma: {', '.join(KINDS)}")
    parser.add_argument("--against", choices=("kafka", "penstock"), default="kafka")
    parser.add_argument("--keep-going", action="store_true", help="report every kind of difference once")
    given = parser.parse_args()
    only = [kind for kind in given.only.split(",") if kind]
    unknown = [kind for kind in only if kind not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}: use {', '.join(KINDS)}")
    # Ends the brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed, allowed, sent = 0, Counter[str](), 0
    seen: set[tuple[str, str]] = set()
    with both(given.against) as (ours, theirs):
        versions = common_versions(ours, theirs)
        for party in (ours, theirs):
            warm_up(party)
        for seed in range(given.seed, given.seed + given.seeds):
            began = time.monotonic()
            operations = generate(seed, given.operations, versions, only)
            report = run(ours, theirs, operations, keep_going=given.keep_going)
            allowed += report.allowed
            sent += report.operations
            agree = "DISAGREE" if report.disagreements else "agree"
            took_s = time.monotonic() - began
            print(
                f"seed {seed}: {agree} after {report.operations} operations, {took_s:.1f} s",
                flush=True,
            )
            failed += bool(report.disagreements)
            for found in report.disagreements:
                if found.signature in seen:
                    continue
                seen.add(found.signature)
                tries = 0 if given.keep_going else SHRINKING_TRIES
                print(
                    "\n".join(_minimal(ours, theirs, operations, found, tries)),
                    flush=True,
                )
    print(f"{sent} operations; allowed differences: {dict(allowed) or 'none'}; seeds that disagree: {failed}")
    return 1 if failed else 0


def _minimal(
    ours: Party,
    theirs: Party,
    operations: list[Operation],
    found: Disagreement,
    tries: int,
) -> list[str]:
    """The operations that are needed, and how the last one differs."""

    def still_fails(candidate: list[Operation]) -> bool:
        again = run(ours, theirs, candidate).disagreements
        return any(a.signature == found.signature and a.index == len(candidate) - 1 for a in again)

    if not tries:
        return found.lines()
    needed = shrink(operations[: found.index + 1], still_fails, tries)
    return [*(f"  {operation}" for operation in needed[:-1]), *found.lines()]


if __name__ == "__main__":
    sys.exit(main())
