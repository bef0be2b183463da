"""A file that is replaced is whole after any power cut, also when the last rename was kept by half."""

from __future__ import annotations

from random import Random

from simulated_io import PowerLost, SimulatedDisk

from magnetar.ledger.embedded.identity import replace_file


def test_replaced_again_and_again_under_power_cuts() -> None:
    """Each life replaces the file until the power goes; what is found is one of the last two contents."""
    for seed in range(300):
        random = Random(seed)
        disk = SimulatedDisk(seed)
        disk.make_directory("d")
        disk.sync_directory(".")
        replace_file(disk, "d", "f", b"0" * 3000)
        allowed = {b"0" * 3000}
        for life in range(1, 6):
            content = str(life).encode() * (3000 + life)
            disk.cut_power_at(random.randrange(1, 7))
            try:
                replace_file(disk, "d", "f", content)
                allowed = {content}
            except PowerLost:
                allowed = allowed | {content}
            disk = disk.power_cut()
            file = disk.open("d/f")
            found = file.read(file.size(), 0)
            file.close()
            assert found in allowed, f"seed {seed}, life {life}: {len(found)} bytes of neither"
            allowed = {found}
