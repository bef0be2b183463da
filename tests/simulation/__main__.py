"""``python -m simulation --seed N --trace``: runs one seed, or many, outside of the tests."""

from __future__ import annotations

import argparse
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor

from simulation.bookkeeper.scenario import Scenario as LedgerScenario
from simulation.one_seed import one, one_of_ledgers
from simulation.scenario import Scenario

_SEEDS_A_POOL = 250


def show(seed: int, *, trace: bool, ledgers: bool) -> int:
    """One seed, its steps if wanted, and the traceback of what went wrong."""
    scenario = LedgerScenario(seed, printing=trace) if ledgers else Scenario(seed, printing=trace)
    try:
        scenario.run()
    except BaseException:  # noqa: BLE001 - shown
        traceback.print_exc()
        if not trace:
            sys.stderr.write("\n".join(scenario.world.trace.last) + "\n")
        return 1
    print(f"seed {seed}: {scenario.world.trace.steps} steps, trace {scenario.world.trace.digest()}")
    return 0


def many(first: int, count: int, processes: int, *, ledgers: bool) -> int:
    """A range of seeds; each that fails is named at once."""
    failed: list[int] = []
    seconds = 0.0
    done = 0
    for begin in range(first, first + count, _SEEDS_A_POOL):
        block = range(begin, min(begin + _SEEDS_A_POOL, first + count))
        # New processes for each block: SQLite's side of old worlds stays in the memory of those that were.
        with ProcessPoolExecutor(processes) as pool:
            for seed, _digest, wrong, took in pool.map(
                one_of_ledgers if ledgers else one, block, chunksize=10
            ):
                done += 1
                seconds += took
                if wrong:
                    failed.append(seed)
                    replay = f"tools/simulate{' --ledgers' if ledgers else ''} --seed {seed} --trace"
                    print(f"seed {seed}: {wrong[:1000]}\n  replay: {replay}", flush=True)
                if done % 1000 == 0:
                    print(f"{done} seeds, {len(failed)} failed", flush=True)
    print(f"{count} seeds from {first}, {seconds / max(count, 1):.3f} s each, failed: {failed or 'none'}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Simulates the whole broker by seeds.")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument(
        "--ledgers", action="store_true", help="of ledgers on bookies, in place of the broker"
    )
    parser.add_argument("--trace", action="store_true", help="print each step of it")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed, trace=options.trace, ledgers=options.ledgers)
    return many(options.first, options.seeds, options.processes, ledgers=options.ledgers)


if __name__ == "__main__":
    sys.exit(main())
