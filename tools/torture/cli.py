"""The command line of tools/killtest.

Exit codes: 0 all counts are 0; 1 a mode that was asked for cannot be had on this machine; 2 usage;
3 a promise was broken, and the directory is left for inspection.
"""

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path

import trio

from tools.torture.oracle import PROMISES
from tools.torture.rounds import MODES, Plan, Torture, why_not

LONG_ROUNDS = {"black": 300, "white": 180, "power": 60, "snapshot": 12}
SHOWN_MAX = 10


def parse_arguments(description: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", action="append", choices=MODES, help="more of them with more")
    parser.add_argument("--rounds", type=int, default=30, help="in each mode")
    parser.add_argument("--long", action="store_true", help="all modes the machine has, at length")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--load-s", type=float, default=0.5, help="longest load before a kill")
    parser.add_argument("--segment-bytes", type=int, default=1 << 20)
    parser.add_argument("--persist-mode", default="sync_data")
    parser.add_argument("--keep", action="store_true", help="leave the directory in any case")
    return parser.parse_args()


def main(description: str) -> int:
    """Run, report, and keep the evidence when a promise was broken."""
    options = parse_arguments(description)
    directory = Path(tempfile.mkdtemp(prefix="sepp-killtest-"))
    print(f"seed {options.seed}, directory {directory}", flush=True)
    broken = 0
    for mode in options.mode or (MODES if options.long else ("black",)):
        problem = why_not(mode, directory)
        if problem is not None:
            print(f"{mode}: not run: {problem}", flush=True)
            if options.mode:
                shutil.rmtree(directory)
                return 1
            continue
        found, is_ending = run_mode(mode, directory, options)
        broken += found
        if is_ending:
            break
    if broken or options.keep:
        print(f"left for inspection: {directory}")
    else:
        shutil.rmtree(directory)
    return 3 if broken else 0


def run_mode(mode: str, directory: Path, options: argparse.Namespace) -> tuple[int, bool]:
    """Run one mode and print what came of it.

    Returns:
        How many promises were broken, and whether a signal has asked for the end.
    """
    plan = Plan(
        LONG_ROUNDS[mode] if options.long else options.rounds,
        options.clients,
        options.load_s,
        options.segment_bytes,
        options.persist_mode,
    )
    place = directory / mode
    place.mkdir()
    started = time.monotonic()
    torture = Torture(mode, place, plan, random.Random(f"{options.seed} {mode}"))
    try:
        trio.run(torture.run)
    finally:
        torture.close()
    oracle, tally = torture.oracle, torture.tally
    print(
        f"{mode}: {tally.kills} kills, {tally.recovery_kills} more during recovery, "
        f"{tally.at_call.total()} at a chosen call {dict(sorted(tally.at_call.items()))}, "
        f"{tally.cuts} power cuts, {tally.snapshots} snapshots"
    )
    print(
        f"{mode}: {oracle.operations} operations, {len(oracle.enqueued)} jobs acknowledged, "
        f"{len(oracle.acked)} acked, {time.monotonic() - started:.1f} s"
    )
    print(f"{mode}: " + ", ".join(f"{name} {len(getattr(oracle, name))}" for name in PROMISES))
    for name in PROMISES:
        for case in getattr(oracle, name)[:SHOWN_MAX]:
            print(f"  {name}: {case}")
    print(end="", flush=True)
    return oracle.broken(), torture.is_ending
