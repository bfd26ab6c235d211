"""`python -m disasters`: prints the table as it comes and exits with 1 if a disaster did harm."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from disasters import report
from disasters.catalogue import Disaster
from disasters.combined import COMBINED
from disasters.judge import Result, Verdict
from disasters.published import PAGE, published
from disasters.run import Runner
from disasters.system import SYSTEMS
from disasters.table import ALL
from docs import measured
from lab import MissingTool
from tools.arguments import Arguments


def main() -> int:
    given = _arguments()
    if given.list:
        print("\n".join(f"{d.name:28} {f'row {d.row}' if d.row else '':7} {d.done}" for d in ALL))
        return 0
    if given.publish:
        PAGE.write_text(published(PAGE.read_text()))
        measured.write()
        return 0
    chosen = _chosen(given)
    # As for an interrupt: the brokers must end with the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("disasters: ended"))
    if given.keep:
        results = _run(chosen, given, given.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-disasters-") as temporary:
            results = _run(chosen, given, Path(temporary))
    print(report.summary(results))
    return 0 if all(r.verdict.is_good or r.verdict is Verdict.SKIPPED for r in results) else 1


def _arguments() -> argparse.Namespace:
    parser = Arguments(prog="python -m disasters", description=__doc__)
    parser.add_argument("--against", choices=tuple(SYSTEMS), default="penstock", help="which brokers")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names, or numbers of rows")
    parser.add_argument("--list", action="store_true", help="name the disasters and stop")
    parser.add_argument("--publish", action="store_true", help="put results into the pages and stop")
    parser.add_argument("--fresh", action="store_true", help="a cluster of its own for each disaster")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which stay there")
    parser.add_argument("--results", type=Path, help="a JSON file that the results are merged into")
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> list[Disaster]:
    names = set(given.only)
    known = [*ALL, *COMBINED.disasters]
    if unknown := names - {d.name for d in known} - {str(d.row) for d in ALL if d.row}:
        sys.exit(f"no disaster {', '.join(sorted(unknown))}; see --list")
    chosen = [d for d in known if d.name in names or str(d.row) in names] if names else list(ALL)
    return [disaster for disaster in chosen if SYSTEMS[given.against].name in disaster.systems]


def _run(chosen: list[Disaster], given: argparse.Namespace, directory: Path) -> list[Result]:
    results: list[Result] = []
    print(report.head(), flush=True)
    try:
        with Runner(SYSTEMS[given.against], directory, print, given.fresh) as runner:
            for result in runner.run(chosen):
                results.append(result)
                print(report.line(result), flush=True)
                if not result.verdict.is_good:
                    print("".join(f"    {line}\n" for line in result.said), end="", flush=True)
                if given.results:
                    report.save(results, given.results)
    except MissingTool as missing:
        print(f"disasters: SKIPPED, {missing}")
    return results


if __name__ == "__main__":
    sys.exit(main())
