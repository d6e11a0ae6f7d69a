"""list_queues and the other verbs that print a table: what their columns are called, and where
they come from in the management API.

Source: rabbitmqctl(8) of RabbitMQ 3.10, Server Status and Virtual hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    CtlError,
    Session,
)

Row = Mapping[str, Any]  # of the API's JSON
Value = Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class Listing:
    """``path``: below /api; "{vhost}" becomes the vhost that was asked for. ``columns``: by name,
    a key of what the API shows or a function of it; ``usual``: those that are printed if none is
    named. ``fixed``: no column can be named; a word is what "{word}" in the path and the texts is.
    ``missing``: what is said if there is no such thing."""

    path: tuple[str, ...]
    banner: str
    columns: Mapping[str, str | Value]
    usual: tuple[str, ...]
    streams: bool = True  # says how long it would wait, as those do that ask queue by queue
    fixed: bool = False
    missing: str = ""

    @property
    def takes_word(self) -> bool:
        return "{word}" in self.path


def _same(*names: str) -> dict[str, str | Value]:
    return {name: name for name in names}


def _policy(shown: Row) -> object:
    return shown.get("policy") or ""


_QUEUES: Mapping[str, str | Value] = {
    **_same("name", "durable", "auto_delete", "arguments", "pid", "exclusive", "messages_ready"),
    **_same("messages_unacknowledged", "messages", "consumers", "state", "type"),
    **_same("slave_pids", "recoverable_slaves"),
    "policy": _policy,
    "vhost": "vhost",
    "synchronised_slave_pids": "sync_slave_pids",
    "mirror_pids": "slave_pids",
    "synchronised_mirror_pids": "sync_slave_pids",
    "operator_policy": "operator_policy",
    "effective_policy_definition": "effective_policy_definition",
    "gm_pids": "gm_pids",
    "members": lambda shown: [shown.get("node"), *shown.get("slave_nodes", ())],
    "online": lambda shown: [shown.get("node"), *shown.get("slave_nodes", ())],
}


def _policies(path: str, what: str) -> Listing:
    return Listing(
        (path, "{vhost}"),
        f'Listing {what} for vhost "{{vhost}}" ...',
        {
            **_same("vhost", "name", "pattern", "apply-to", "priority"),
            "definition": lambda shown: msgspec.json.encode(shown["definition"]).decode(),
        },
        ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
        streams=False,
        fixed=True,
    )


LISTINGS: Mapping[str, Listing] = {
    "list_queues": Listing(
        ("queues", "{vhost}"), "Listing queues for vhost {vhost} ...", _QUEUES, ("name", "messages")
    ),
    "list_exchanges": Listing(
        ("exchanges", "{vhost}"),
        "Listing exchanges for vhost {vhost} ...",
        {
            **_same("name", "type", "durable", "auto_delete", "internal", "arguments"),
            "policy": _policy,
        },
        ("name", "type"),
    ),
    "list_bindings": Listing(
        ("bindings", "{vhost}"),
        "Listing bindings for vhost {vhost}...",
        {
            "source_name": "source",
            "source_kind": lambda shown: "exchange",
            "destination_name": "destination",
            "destination_kind": "destination_type",
            **_same("routing_key", "arguments"),
        },
        (
            *("source_name", "source_kind", "destination_name", "destination_kind"),
            *("routing_key", "arguments"),
        ),
    ),
    "list_connections": Listing(
        ("connections",),
        "Listing connections ...",
        {
            **_same("name", "user", "peer_host", "peer_port", "state", "channels", "vhost"),
            **_same("protocol", "node", "connected_at", "pid"),
        },
        ("user", "peer_host", "peer_port", "state"),
    ),
    "list_channels": Listing(
        ("channels",),
        "Listing channels ...",
        {
            **_same("pid", "name", "number", "user", "vhost", "transactional", "confirm"),
            **_same("consumer_count", "messages_unacknowledged", "messages_unconfirmed"),
            **_same("prefetch_count", "global_prefetch_count", "state", "node"),
            "connection": lambda shown: shown["connection_details"]["name"],
        },
        ("pid", "user", "consumer_count", "messages_unacknowledged"),
    ),
    "list_consumers": Listing(
        ("consumers", "{vhost}"),
        "Listing consumers in vhost {vhost} ...",
        {
            "queue_name": lambda shown: shown["queue"]["name"],
            "channel_pid": lambda shown: shown["channel_details"]["pid"],
            **_same("consumer_tag", "ack_required", "prefetch_count", "active"),
            **_same("activity_status", "arguments", "exclusive"),
        },
        (
            *("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count"),
            *("active", "arguments"),
        ),
    ),
    "list_vhosts": Listing(
        ("vhosts",), "Listing vhosts ...", {**_same("name", "tracing")}, ("name",), streams=False
    ),
    "list_policies": _policies("policies", "policies"),
    "list_operator_policies": _policies("operator-policies", "operator policy overrides"),
    "list_permissions": Listing(
        ("vhosts", "{vhost}", "permissions"),
        'Listing permissions for vhost "{vhost}" ...',
        _same("user", "configure", "write", "read"),
        ("user", "configure", "write", "read"),
        streams=False,
        fixed=True,
        missing="Virtual host '{vhost}' does not exist",
    ),
    "list_user_permissions": Listing(
        ("users", "{word}", "permissions"),
        'Listing permissions for user "{word}" ...',
        _same("vhost", "configure", "write", "read"),
        ("vhost", "configure", "write", "read"),
        streams=False,
        fixed=True,
        missing='Error:\n{{:no_such_user, "{word}"}}',
    ),
    "list_users": Listing(
        ("users",),
        "Listing users ...",
        {"user": "name", "tags": "tags"},
        ("user", "tags"),
        streams=False,
        fixed=True,
    ),
}


async def run_listing(session: Session, name: str) -> None:
    """Print it. Raises CtlError."""
    listing, typed = LISTINGS[name], session.typed
    word = typed.arguments[0] if listing.takes_word else ""
    columns = _columns(listing, () if listing.takes_word else typed.arguments)
    if listing.streams and not typed.is_quiet:
        session.inform(f"Timeout: {float(typed.options.get('--timeout', 60))} seconds ...")
    session.inform(listing.banner.format(vhost=typed.vhost, word=word))
    shown = await _shown(session, listing, word)
    rows = [_row(listing, one, columns) for one in shown if _wanted(session, one)]
    session.say(render(session, rows, columns))
    if not rows and not listing.streams and typed.formatter == "table":
        session.say([""])


async def _shown(session: Session, listing: Listing, word: str) -> list[dict[str, object]]:
    """What is in a vhost that there is not is an empty list, as RabbitMQ has it, where no text says
    that it is missing."""
    vhost = session.typed.vhost
    known = {"{vhost}": ("vhosts", vhost, EXIT_DATA), "{word}": ("users", word, EXIT_UNAVAILABLE)}
    for place, (kind, name, exit_code) in known.items():
        if place not in listing.path:
            continue
        if all(one["name"] != name for one in await session.get(kind)):
            if not listing.missing:
                return []
            raise CtlError(exit_code, listing.missing.format(vhost=vhost, word=word))
    filled = {"{vhost}": vhost, "{word}": word}
    told: list[dict[str, object]] = await session.get(
        *(filled.get(each, each) for each in listing.path)
    )
    return told


def render(session: Session, rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """As the chosen formatter has it."""
    typed = session.typed
    headers = not typed.has("--silent") and not typed.has("--no-table-headers")
    if typed.formatter == "json":
        return as_json(rows, columns)
    if typed.formatter == "csv":
        return as_csv(rows, columns, headers=headers)
    return as_table(rows, columns, headers=headers)


def _columns(listing: Listing, named: Sequence[str]) -> tuple[str, ...]:
    """Raises CtlError for one that there is not."""
    words = tuple(dict.fromkeys(word for each in named for word in each.split(",") if word))
    if not words:
        return listing.usual
    unknown = [word for word in words if word not in listing.columns]
    if unknown or listing.fixed:
        keys = ", ".join(unknown or words)
        text = f"Error (argument validation): Info key(s) {keys} are not supported"
        raise CtlError(EXIT_USAGE, text)
    return words


def _wanted(session: Session, shown: Row) -> bool:
    """By --online, --offline and --local."""
    typed = session.typed
    is_down = shown.get("state") in ("down", "stopped", "crashed", "unresponsive")
    if typed.has("--online") and is_down:
        return False
    if typed.has("--offline") and not is_down:
        return False
    return not typed.has("--local") or shown.get("node") == session.node


def _row(listing: Listing, shown: Row, columns: Sequence[str]) -> dict[str, object]:
    row: dict[str, object] = {}
    for name in columns:
        source = listing.columns[name]
        row[name] = shown.get(source) if isinstance(source, str) else source(shown)
    return row


# -- formats ---------------------------------------------------------------------------------------

# Tables and JSON as rabbitmqctl 3.10 prints them (lib/rabbitmq/cli/formatters).


def as_table(rows: Sequence[Row], columns: Sequence[str], *, headers: bool) -> list[str]:
    """A line a row, cells apart by tabs; nothing at all if there is no row."""
    if not rows:
        return []
    lines = ["\t".join(columns)] if headers else []
    return lines + ["\t".join(cell(row.get(name)) for name in columns) for row in rows]


def as_csv(rows: Sequence[Row], columns: Sequence[str], *, headers: bool) -> list[str]:
    """Each cell in quotes."""
    told = [[cell(row.get(name)) for name in columns] for row in rows]
    lines = [list(columns), *told] if headers and rows else told
    return [",".join(_quoted(text) for text in line) for line in lines]


def as_json(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """An array, an element a line."""
    told = [_json({name: row.get(name) for name in columns}) for row in rows]
    return ["[", "\n,".join(told), "]"] if told else ["[", "", "]"]


def cell(value: object) -> str:
    """One cell of a table. Pids and names stand as they are, without quotes, in lists too."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case list() | tuple():
            return f"[{', '.join(map(cell, value))}]"
        case dict():  # as Erlang writes a list of pairs
            pairs = (f"{{{_term(name)},{_term(inner)}}}" for name, inner in value.items())
            return f"[{', '.join(pairs)}]"
        case _:
            return str(value)


def _term(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else cell(value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


# -- gm_ring ---------------------------------------------------------------------------------------

# gm_ring: one queue's GM ring, as each node's own member has it. rabbitmqctl has no such verb.
#
# A row for every publisher that a member knows; a node without a member, or without an answer, has
# one row that says so.

COLUMNS = (
    *("node", "role", "member", "left", "right", "aliases", "publisher", "last_pub", "last_ack"),
    "pending_ack",
)


async def gm_ring(session: Session) -> None:
    """Raises CtlError."""
    vhost, name = session.typed.vhost, session.typed.arguments[0]
    session.inform(f"Ring of queue '{name}' in vhost '{vhost}' ...")
    path = ("shalott", "queues", vhost, name, "ring")
    told = await session.ask("GET", path, missing="not_found")
    if session.typed.formatter == "json":
        session.say([msgspec.json.encode(told).decode()])
        return
    rows = [row for node in told["nodes"] for row in _rows(node)]
    session.say(render(session, rows, COLUMNS))


def _rows(node: Row) -> list[dict[str, object]]:
    if not node["reachable"]:
        return [{"node": node["node"], "role": "unreachable"}]
    member = node["member"]
    if member is None:
        return [{"node": node["node"], "role": "silent" if node["silent"] else "none"}]
    if member["id"] is None:
        return [{"node": node["node"], "role": member["role"]}]
    shared = {
        "node": node["node"],
        "role": member["role"],
        "member": member["id"],
        **{key: member[key] for key in ("left", "right", "aliases")},
    }
    return [
        {
            **shared,
            "publisher": each["id"],
            "last_pub": each["last_pub"],
            "last_ack": each["last_ack"],
            "pending_ack": [pub["number"] for pub in each["pending_ack"]],
        }
        for each in member["publishers"]
    ] or [shared]
