"""Coverage-guided fuzzing with atheris, where it is installed: ``tools/fuzz --guided frames -runs=100000``.

The corpus is ``tests/fuzz/corpus``: what libFuzzer finds worth keeping is written there; keep it small.
"""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(
    include=["magnetar.broker", "magnetar.protocol", "magnetar.config", "magnetar.security"]
):
    from fuzz_targets import CORPUS, TARGETS


def main() -> None:
    """The first argument is the target; the rest is libFuzzer's."""
    logging.getLogger("magnetar").propagate = False
    name = sys.argv[1] if len(sys.argv) > 1 else "frames"
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]()
    atheris.Setup([sys.argv[0], str(corpus), "-max_len=4096", *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
