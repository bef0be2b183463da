"""Records the matrix of a broker: ``python -m access_matrix HTTP_URL BINARY_PORT FILE [ONLY]``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from access_matrix.cells import Asking, write

url, port, file = sys.argv[1:4]
found: dict[str, Sequence[str]] = {}
with Path(f"{file}.part").open("a+") as part:
    # What an earlier run has found before it was ended counts.
    part.seek(0)
    found.update({key: outcomes for key, *outcomes in (line.rstrip("\n").split("\t") for line in part)})
    asking = Asking(
        url,
        int(port),
        patience=0.5,
        prefix=f"{int(time.time()):x}",
        recording=True,
    )
    found |= asking.everything(
        *sys.argv[4:5],
        told=lambda key, outcomes: print(key, *outcomes, sep="\t", file=part, flush=True),
        known=found,
    )
Path(file).write_text(write(found))
