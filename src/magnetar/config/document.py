"""Writes the documentation pages of settings from the tables of settings.

``python -m magnetar.config.document docs/settings.md``; ``docs/settings-proxy.md`` for proxies,
``docs/settings-websocket.md`` for the WebSocket server without a broker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from magnetar.config.table import (
    Setting,
    SettingClass,
    cluster_settings_table,
    proxy_settings_table,
    settings_table,
    websocket_settings_table,
)

_HEAD = """# Settings

`magnetar standalone --config FILE` reads Pulsar's own property files (`broker.conf`, `standalone.conf`).
Every key of Pulsar 4.0 belongs to one of six classes. This page is generated from the table that the program
itself uses (`python -m magnetar.config.document docs/settings.md`).

- A value that is malformed or out of range prevents the start, and the error gives file and line, whatever
  the class of the key.
- One warning lists all unknown keys.
- An empty value means the default. If a key occurs twice, the last one applies. Files are read as ISO-8859-1,
  as in Java.
- Options of the command line override the file.

**Copies.** The embedded ledger store keeps one copy of an entry, which is synced before it is acknowledged.
Pulsar's `broker.conf` asks for two (`managedLedgerDefaultWriteQuorum=2`, `managedLedgerDefaultAckQuorum=2`).
The embedded store cannot keep this promise, so such a file prevents the start; Pulsar's `standalone.conf`
asks for one. `magnetar broker --config FILE` keeps ledgers in BookKeeper, with the configured number of
copies: see the last section.
"""
_CLUSTER = """## In a cluster

These keys differ in `magnetar broker`, on ZooKeeper and BookKeeper ([cluster.md](cluster.md)); all other keys
are as above.
"""

_PROXY_HEAD = """# Settings of a proxy

`magnetar proxy --config FILE` and `magnetar discovery --config FILE` ([proxy.md](proxy.md)) read Pulsar's own
`proxy.conf`. This page is generated from the table that the program itself uses (`python -m
magnetar.config.document docs/settings-proxy.md`). The rules for malformed, unknown and empty values in
[settings.md](settings.md) apply to proxies, too.
"""

_WEBSOCKET_HEAD = """# Settings of WebSockets without a broker

`magnetar websocket --config FILE` ([websocket.md](websocket.md)) reads Pulsar's own `websocket.conf`. This
page is generated from the table that the program itself uses (`python -m magnetar.config.document
docs/settings-websocket.md`). The rules for malformed, unknown and empty values in [settings.md](settings.md)
apply here, too.
"""

_SECTIONS = {
    SettingClass.HONOURED: (
        "Honoured",
        "Keys that begin with `magnetar` are Magnetar's own.",
    ),
    SettingClass.OPTION: (
        "Options of authentication providers",
        "Honoured by the providers that `authenticationProviders` names ([security.md](security.md)).",
    ),
    SettingClass.GUARDED: (
        "Not honoured yet, and a promise of security, durability or isolation",
        "Any value other than the one shown prevents the start, with file and line, unless "
        "`--accept-unhonoured KEY` names the key; then it causes a warning.",
    ),
    SettingClass.LATER: (
        "Not honoured yet",
        "This release behaves as with the value shown; any other value causes a warning.",
    ),
    SettingClass.MEANINGLESS: (
        "Without meaning here",
        "These keys size or select something that does not exist in Magnetar (Java threads, classes and "
        "archives, clients of remote stores). They are accepted without a message.",
    ),
    SettingClass.BOOKIE: (
        "Keys of the bookie in standalone.conf",
        "Pulsar's standalone file also configures a BookKeeper server, which does not exist here. These keys "
        "are accepted without a message. (So is `journalSyncData`: what is acknowledged is always synced.)",
    ),
}


_BECOMES = {
    SettingClass.HONOURED: "honoured",
    SettingClass.GUARDED: "another value prevents the start",
    SettingClass.LATER: "another value causes a warning",
    SettingClass.MEANINGLESS: "without meaning",
}


def settings_page() -> str:
    """Returns the page of the broker's settings."""
    return "\n".join([_HEAD, *_sections(settings_table()), _CLUSTER, *_cluster_table()]) + "\n"


def proxy_page() -> str:
    """Returns the page of the proxy's settings."""
    return "\n".join([_PROXY_HEAD, *_sections(proxy_settings_table())])


def websocket_page() -> str:
    """Returns the page of the settings of a WebSocket server without a broker."""
    return "\n".join([_WEBSOCKET_HEAD, *_sections(websocket_settings_table())])


def _sections(table: Mapping[str, Setting]) -> Iterator[str]:
    for kind, (title, text) in _SECTIONS.items():
        chosen = [row for row in table.values() if row.kind is kind]
        if not chosen:
            continue
        yield f"## {title} ({len(chosen)})\n\n{text}\n"
        if kind is SettingClass.BOOKIE:
            yield ", ".join(f"`{row.name}`" for row in chosen) + "\n"
        else:
            yield from _table(chosen)


def _table(rows: list[Setting]) -> Iterator[str]:
    yield "| key | type | here | Pulsar's default | range | note |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        unit = f", {row.unit}" if row.unit else ""
        pulsar = "" if row.pulsar == row.default else f"`{row.pulsar}`" if row.pulsar else "unset"
        here = f"`{row.default}`" if row.default else ""
        bounds = row.range.replace("..", " … ").strip()
        yield f"| `{row.name}` | {_type_text(row.type)}{unit} | {here} | {pulsar} | {bounds} | {row.note} |"
    yield ""


def _cluster_table() -> Iterator[str]:
    alone = settings_table()
    yield "| key | effect | here | note |"
    yield "| --- | --- | --- | --- |"
    for row in cluster_settings_table().values():
        if row is alone[row.name]:
            continue
        here = f"`{row.default}`" if row.default else ""
        yield f"| `{row.name}` | {_BECOMES[row.kind]} | {here} | {row.note} |"


def _type_text(kind: str) -> str:
    kind = kind.removesuffix("?")
    for word in ("enum", "list"):
        if kind.startswith(word + "{"):
            choices = kind.removeprefix(word + "{").rstrip("}").split(",")
            return ("one of " if word == "enum" else "some of ") + ", ".join(choices)
    return "list" if kind.startswith("list") else kind


if __name__ == "__main__":
    page = Path(sys.argv[1])
    pages = {"settings-proxy.md": proxy_page, "settings-websocket.md": websocket_page}
    page.write_text(pages.get(page.name, settings_page)(), "utf-8")
