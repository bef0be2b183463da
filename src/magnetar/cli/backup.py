"""``magnetar backup``, ``magnetar restore`` and ``magnetar verify-backup``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.cli.command_lines import SIZES, access_values, add_access_flags, positive, quantity
from magnetar.cli.printable import size, when
from magnetar.exit_codes import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from magnetar.admin_client import AdminClient

_KEPT = 7
_BYTES_PER_SECOND = "100m"
_SHOWN = 5
"""Maximum number of printed names of files that belong to no backup."""


def add_backup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "backup",
        help="back up a standalone broker, running or stopped",
        description="Copies a consistent snapshot of a standalone broker, with all data that it has "
        "acknowledged, to a folder with backups. Later backups in the same folder copy only what is "
        "new. If the broker runs, the command must run on its machine.",
    )
    parser.add_argument(
        "target", type=Path, metavar="TARGET", help="folder for the backups; created if missing"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="data directory of a stopped broker, or the path where the data directory of a running "
        "broker is mounted (default: the directory that the running broker reports)",
    )
    parser.add_argument(
        "--keep",
        type=positive,
        default=_KEPT,
        metavar="N",
        help="keep the newest N backups in the folder and remove older ones (%(default)s)",
    )
    _add_pace(parser)
    parser.add_argument("--dry-run", action="store_true", help="report what would be copied; copy nothing")
    add_access_flags(parser)


def add_restore(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "restore",
        help="restore a backup of a standalone broker",
        description="Writes a backup to a new or empty data directory, and checks every byte. Run the same "
        "command again if it was interrupted.",
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help="folder with backups")
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        default=Path("data"),
        help="data directory, new or empty (%(default)s)",
    )
    _add_number(parser, "the last one")
    _add_pace(parser)
    parser.add_argument("--dry-run", action="store_true", help="report what would be restored; write nothing")


def add_verify_backup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "verify-backup",
        help="check backups of a standalone broker",
        description="Reads every byte of the backups in a folder, compares it with its checksum, and checks "
        "that metadata and ledgers belong together. Changes nothing.",
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help="folder with backups")
    _add_number(parser, "all")
    _add_pace(parser)


def _add_number(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--backup", type=positive, dest="number", metavar="N", help=f"number of the backup to use ({default})"
    )


def _add_pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bytes-per-second",
        type=_speed,
        default=_speed(_BYTES_PER_SECOND),
        metavar="SIZE",
        help=f"maximum bytes per second, with an optional unit k, m or g ({_BYTES_PER_SECOND}); 0: no limit",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _speed(text: str) -> int:
    try:
        found = quantity(text, SIZES)
    except ValueError:
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 500k, 100m or 0")
    return found


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """A context manager: SIGTERM ends the block like Ctrl-C, so that incomplete files are removed."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_backup(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar backup``; returns the exit code: 0 the backup was taken, 1 it was not."""
    from magnetar.admin_client import AdminClient, AdminError
    from magnetar.cli.cluster_access import AccessRefused, cluster_access
    from magnetar.ledger.interface import LedgerError
    from magnetar.server.backup import BackupRequest, take_backup
    from magnetar.server.backup_folder import BackupRefused

    wanted = BackupRequest(
        parsed.target, parsed.data_dir, parsed.keep, parsed.bytes_per_second, parsed.dry_run, parsed.quiet
    )

    def broker() -> AdminClient:
        access = cluster_access(access_values(parsed))
        return AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)

    try:
        with _ended_in_order():
            taken = take_backup(wanted, broker)
    except (AccessRefused, AdminError, BackupRefused, LedgerError, OSError) as error:
        sys.stderr.write(f"magnetar: no backup was taken: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("magnetar: no backup was taken: interrupted\n")
        return FAILED
    backup = taken.backup
    what = f"backup {backup.number} of ledger store {backup.store}"
    has = f"{len(backup.files)} files, {size(backup.bytes)}"
    new = f"{len(taken.new)} files, {size(taken.new_bytes)}"
    if parsed.dry_run:
        sys.stdout.write(f"{what} would have {has}; it would copy {new}\n")
        return SUCCEEDED
    sys.stdout.write(f"{what} as of {when(backup.taken_ms)} in {parsed.target}: {has}; new: {new}\n")
    if taken.removed:
        sys.stdout.write(f"removed: backup {', '.join(map(str, taken.removed))}\n")
    return SUCCEEDED


def run_restore(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar restore``; returns the exit code: 0 the backup was restored, 1 it was not."""
    from magnetar.server.backup_folder import BackupRefused
    from magnetar.server.restore import RestoreRequest, restore_backup

    wanted = RestoreRequest(
        parsed.source, parsed.data_dir, parsed.number, parsed.bytes_per_second, parsed.dry_run, parsed.quiet
    )
    try:
        with _ended_in_order():
            backup = restore_backup(wanted)
    except (BackupRefused, OSError) as error:
        sys.stderr.write(f"magnetar: not restored: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("magnetar: not restored: interrupted\n")
        return FAILED
    done = "would be restored" if parsed.dry_run else "restored"
    sys.stdout.write(
        f"{done}: backup {backup.number} as of {when(backup.taken_ms)} to {parsed.data_dir}: "
        f"{len(backup.files)} files, {size(backup.bytes)}\n"
    )
    return SUCCEEDED


def run_verify_backup(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar verify-backup``; returns the exit code: 0 the backups are intact, 1 they are not."""
    from magnetar.server.backup_folder import BackupRefused
    from magnetar.server.restore import verify_backups

    try:
        found = verify_backups(parsed.source, parsed.number, parsed.bytes_per_second, quiet=parsed.quiet)
    except (BackupRefused, OSError) as error:
        sys.stderr.write(f"magnetar: not verified: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("magnetar: not verified: interrupted\n")
        return FAILED
    for backup in found.backups:
        sys.stdout.write(
            f"backup {backup.number} as of {when(backup.taken_ms)} is whole: "
            f"{len(backup.files)} files, {size(backup.bytes)}\n"
        )
    for path in found.unused[:_SHOWN]:
        sys.stdout.write(f"{path} belongs to no backup; the next magnetar backup removes it\n")
    if len(found.unused) > _SHOWN:
        sys.stdout.write(f"and {len(found.unused) - _SHOWN} more\n")
    sys.stdout.write(f"read: {size(found.bytes)}\n")
    return SUCCEEDED
