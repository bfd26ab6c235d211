"""`python -m penstock.testing.simulation`: run seeds, and replay one that failed."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from typing import Final

from penstock.testing.simulation.directed_faults import DIRECTED_FAULTS
from penstock.testing.simulation.disasters.catalog import DISASTERS, SINGLE, choose
from penstock.testing.simulation.healing import HEALING
from penstock.testing.simulation.scenario import Options, Outcome, simulate
from penstock.testing.simulation.share_faults import SHARE_FAULTS
from penstock.testing.simulation.stalls import STALLS
from penstock.testing.simulation.transaction_faults import TRANSACTION_FAULTS

__all__ = ["main"]

#: A run makes few cycles and many objects that live to its end: the default thresholds cost a tenth of it.
_GC_THRESHOLDS: Final = (50_000, 20, 50)


def main(arguments: list[str] | None = None) -> int:
    # Longer than other functions because it has one statement per option.
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, counting up from the first")
    parser.add_argument("--brokers", type=int, default=1, help="how many there are: 1, 3 or 5")
    parser.add_argument("--seconds", type=float, help="how long a run is, with faults and compaction")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--directed-fault",
        choices=DIRECTED_FAULTS | HEALING | SHARE_FAULTS | STALLS | TRANSACTION_FAULTS,
        help="the faults that lead into one race, instead of drawn faults",
    )
    instead.add_argument("--disaster", choices=DISASTERS, help="damage to copies, instead of drawn faults")
    instead.add_argument("--disasters", action="store_true", help="a disaster of each seed's choice")
    instead.add_argument("--operated", action="store_true", help="an operator changes the cluster")
    instead.add_argument("--transactions", action="store_true", help="transactional clients take part")
    instead.add_argument("--shares", action="store_true", help="members of a share group take part")
    instead.add_argument("--archived", action="store_true", help="an archive: tiered topics, cuts, restores")
    parser.add_argument(
        "--secured", action="store_true", help="TLS, SASL and ACLs everywhere, and encrypted disks"
    )
    parser.add_argument("--replay", action="store_true", help="print the whole history of each run")
    options = parser.parse_args(arguments)
    if options.operated and options.brokers == 1:
        parser.error("--operated needs --brokers 3 or 5: an operator moves replicas between brokers")
    if options.archived and options.brokers == 1:
        parser.error("--archived needs --brokers 3 or 5: leaders of an archive change")
    if options.brokers == 1 and (options.disasters or (options.disaster or "") in DISASTERS.keys() - SINGLE):
        parser.error("disasters need --brokers 3 or 5: they damage some of several replicas")
    needed = 5 if options.directed_fault in HEALING else 3
    if options.directed_fault is not None and options.brokers < needed:
        parser.error(f"--directed-fault {options.directed_fault} needs --brokers {needed}")
    if options.secured and (options.disaster is not None or options.disasters):
        parser.error("disasters damage files in plain text: leave --secured out")
    gc.set_threshold(*_GC_THRESHOLDS)
    # The collection after each seed need not look at modules and classes.
    gc.freeze()
    began = time.perf_counter()
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        drawn = Options.draw(seed, options.brokers)
        if options.directed_fault in TRANSACTION_FAULTS:
            drawn = drawn.with_transactions(options.directed_fault)
        elif options.directed_fault in SHARE_FAULTS:
            drawn = drawn.with_shares(options.directed_fault)
        elif options.directed_fault is not None:
            drawn = drawn.with_directed_fault(options.directed_fault)
        elif options.disaster is not None or options.disasters:
            drawn = drawn.with_disaster(options.disaster or choose(seed))
        elif options.transactions:
            drawn = Options.draw_transactions(seed, options.brokers)
        elif options.archived:
            drawn = Options.draw_archived(seed, options.brokers)
        elif options.shares:
            drawn = Options.draw_shares(seed, options.brokers)
        elif options.seconds is not None:
            drawn = drawn.lengthened(options.seconds)
        elif not (options.operated or options.secured):
            drawn = Options.choose(seed, options.brokers)
        if options.secured:
            drawn = drawn.with_security()
        outcome = simulate(seed, drawn.with_operator() if options.operated else drawn)
        gc.collect()
        failed += outcome.violation is not None
        if outcome.violation is not None or options.replay or options.seeds == 1:
            _print(outcome, history=options.replay or outcome.violation is not None)
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds, {failed} failed, {options.seeds / seconds:.1f} seeds/s")
    return min(failed, 1)


def _as_drawn(options: Options) -> str:
    """The arguments of the command line beside the seed."""
    secured = "--secured " if options.secured else ""
    return secured + _as_drawn_in_plain_text(options)


def _as_drawn_in_plain_text(options: Options) -> str:
    if options.directed_fault is not None:
        return f"--directed-fault {options.directed_fault} "
    if options.archived:
        return "--archived "
    if options.transactional:
        return "--transactions "
    if options.shared:
        return "--shares "
    if options.disaster is not None:
        return f"--disaster {options.disaster} "
    length = f"--seconds {options.duration_s:g} " if options.compaction else ""
    return f"{length}--operated " if options.operated else length


def _print(outcome: Outcome, *, history: bool) -> None:
    if history:
        print("\n".join(outcome.history))
    print(
        f"seed {outcome.seed}: {outcome.violation or 'ok'}\n"
        f"  options {outcome.options}\n"
        f"  {outcome.steps} steps, {outcome.virtual_s:.1f} virtual seconds, "
        f"{outcome.acknowledged} records acknowledged, trace {outcome.trace_hash}\n"
        f"  replay: python -m penstock.testing.simulation --brokers {outcome.options.nodes} "
        f"--seed {outcome.seed} {_as_drawn(outcome.options)}--replay"
    )


if __name__ == "__main__":
    sys.exit(main())
