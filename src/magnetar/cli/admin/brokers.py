"""Commands of brokers and their settings."""

from __future__ import annotations

from magnetar.cli.admin.call import Action, piece
from magnetar.cli.admin.rendering import rows

ACTIONS: dict[str, Action] = {
    "brokers list": lambda call: call.ask("GET", f"/admin/v2/brokers/{piece(call['cluster'])}"),
    "brokers leader-broker": lambda call: call.ask("GET", "/admin/v2/brokers/leaderBroker"),
    "brokers namespaces": lambda call: call.ask(
        "GET", f"/admin/v2/brokers/{piece(call['cluster'])}/{piece(call['url'])}/ownedNamespaces"
    ),
    "brokers shutdown": lambda call: call.send(
        "POST",
        "/admin/v2/brokers/shutdown",
        {
            "maxConcurrentUnloadPerSec": call["max-concurrent-unload-per-sec"],
            "forcedTerminateTopic": call["forced-terminate-topic"],
        },
    ),
    "brokers update-dynamic-config": lambda call: call.send(
        "POST", f"/admin/v2/brokers/configuration/{piece(call['config'])}/{piece(call['value'])}"
    ),
    "brokers delete-dynamic-config": lambda call: call.send(
        "DELETE", f"/admin/v2/brokers/configuration/{piece(call['config'])}"
    ),
    "brokers list-dynamic-config": lambda call: call.ask("GET", "/admin/v2/brokers/configuration"),
    "brokers get-all-dynamic-config": lambda call: rows(
        call.ask("GET", "/admin/v2/brokers/configuration/values")
    ),
    "brokers healthcheck": lambda call: call.ask("GET", "/admin/v2/brokers/health"),
    "brokers get-internal-config": lambda call: call.ask("GET", "/admin/v2/brokers/internal-configuration"),
    "brokers get-runtime-config": lambda call: rows(
        call.ask("GET", "/admin/v2/brokers/configuration/runtime")
    ),
    "brokers version": lambda call: call.ask("GET", "/admin/v2/brokers/version"),
}
