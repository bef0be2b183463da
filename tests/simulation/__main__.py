"""``python -m simulation --seed N --trace``: runs one seed, or many, outside of the tests."""

from __future__ import annotations

import argparse
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from simulation.one_seed import STORIES, one

_SEEDS_A_POOL = 250


def show(story: str, seed: int, *, trace: bool) -> int:
    """One seed, its steps if wanted, and the traceback of what went wrong."""
    scenario = STORIES[story](seed, printing=trace)
    try:
        scenario.run()
    except BaseException:  # noqa: BLE001 - shown
        traceback.print_exc()
        if not trace:
            sys.stderr.write("\n".join(scenario.world.trace.last) + "\n")
        return 1
    print(f"seed {seed}: {scenario.world.trace.steps} steps, trace {scenario.world.trace.digest()}")
    return 0


def many(story: str, first: int, count: int, processes: int, digests: Path | None) -> int:
    """A range of seeds; each that fails is named at once."""
    failed: list[int] = []
    lines: list[str] = []
    seconds = 0.0
    done = 0
    for begin in range(first, first + count, _SEEDS_A_POOL):
        block = range(begin, min(begin + _SEEDS_A_POOL, first + count))
        # New processes for each block: SQLite's side of old worlds stays in the memory of those that were.
        with ProcessPoolExecutor(processes) as pool:
            for seed, digest, wrong, took in pool.map(partial(one, story), block, chunksize=10):
                done += 1
                lines.append(f"{seed} {digest}\n")
                seconds += took
                if wrong:
                    failed.append(seed)
                    chosen = "" if story == "broker" else f" --{story}"
                    replay = f"tools/simulate{chosen} --seed {seed} --trace"
                    print(f"seed {seed}: {wrong[:1000]}\n  replay: {replay}", flush=True)
                if done % 1000 == 0:
                    print(f"{done} seeds, {len(failed)} failed", flush=True)
    if digests is not None:
        digests.write_text("".join(lines))
    print(f"{count} seeds from {first}, {seconds / max(count, 1):.3f} s each, failed: {failed or 'none'}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Simulates the whole broker by seeds.")
    parser.add_argument("--seed", type=int, help="run this one")
    stories = parser.add_mutually_exclusive_group()
    stories.set_defaults(story="broker")
    for name, told in (
        ("ledgers", "ledgers on bookies"),
        ("brokers", "several brokers of a cluster"),
        ("deletions", "deletions in a cluster"),
        ("recreations", "topics of a cluster that are deleted and created again"),
        ("geo", "clusters that replicate to each other"),
        ("shadows", "a topic and its shadow topics"),
    ):
        stories.add_argument(
            f"--{name}",
            dest="story",
            action="store_const",
            const=name,
            help=f"{told}, in place of the standalone broker",
        )
    parser.add_argument("--trace", action="store_true", help="print each step of it")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--digests",
        type=Path,
        metavar="FILE",
        help="write each seed and the digest of its trace, to compare those of two commits",
    )
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.story, options.seed, trace=options.trace)
    return many(options.story, options.first, options.seeds, options.processes, options.digests)


if __name__ == "__main__":
    sys.exit(main())
