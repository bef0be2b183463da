"""Fuzzes until so many frames were fed: ``python tests/fuzz/fuzz_run.py --frames 1000000``.

Needs tests/fuzz and tests/harness on the module path; tools/fuzz sees to that.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Of one seed."""

    seed: int
    frames: int
    failure: str
    resident_mib: int


def run(seed: int) -> Outcome:
    """One seed, in a process of its own kind: every other one with the hot modules interpreted."""
    from fuzz_cases import run_seed

    logging.getLogger("magnetar").propagate = False
    try:
        frames, failure = run_seed(seed), ""
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        frames, failure = 0, traceback.format_exc()
    return Outcome(seed, frames, failure, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def _work(seeds: range, frames: int, pure: bool, answers: multiprocessing.Queue[Outcome | None]) -> None:
    if pure:
        os.environ["MAGNETAR_PURE"] = "1"
    fed = 0
    for seed in seeds:
        outcome = run(seed)
        fed += outcome.frames
        answers.put(outcome)
        if fed >= frames:
            break
    answers.put(None)


def outcomes(first_seed: int, frames: int, processes: int) -> Iterator[Outcome]:
    """Outcomes of seeds from ``first_seed`` on, until all together fed so many frames."""
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[Outcome | None] = context.Queue()
    workers = [
        context.Process(
            target=_work,
            args=(range(first_seed + i, 2**62, processes), -(-frames // processes), i % 2 == 1, answers),
        )
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    left = len(workers)
    while left:
        outcome = answers.get()
        if outcome is None:
            left -= 1
        else:
            yield outcome
    for worker in workers:
        worker.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="the second one runs interpreted")
    parser.add_argument("--seed", type=int, help="only this one, in this process")
    options = parser.parse_args()
    if options.seed is not None:
        alone = run(options.seed)
        print(alone.failure or f"seed {alone.seed}: {alone.frames} frames, nothing found")
        return 1 if alone.failure else 0
    began, fed, seeds, failed, resident, said = time.monotonic(), 0, 0, 0, 0, 0.0
    for outcome in outcomes(options.first_seed, options.frames, options.processes):
        fed += outcome.frames
        seeds += 1
        resident = max(resident, outcome.resident_mib)
        if outcome.failure:
            failed += 1
            print(f"--- seed {outcome.seed}\n{outcome.failure}", flush=True)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{fed:,} frames, {seeds} brokers, {failed} failed", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(
        f"{fed:,} frames on {seeds} brokers in {seconds:.0f} s ({fed / seconds:,.0f}/s), "
        f"{failed} seeds failed; largest process {resident} MiB"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
