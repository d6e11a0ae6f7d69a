"""list_queues and the other verbs that print a table, as data, and how tables look.

What the columns are and where they come from stands in management/columns.py.
Source: rabbitmqctl(8) of RabbitMQ 3.10, Server Status and Virtual hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from shalott.broker.rabbit.ctl.calls import USER_TERM, VHOST, Need, require
from shalott.broker.rabbit.ctl.session import BOLD, PLAIN, Invalid, Session, Shown
from shalott.broker.rabbit.management import columns
from shalott.broker.rabbit.management.columns import Columns, Row


@dataclass(frozen=True, slots=True)
class Listing:
    """``path``: below /api; "{vhost}" becomes the vhost that was asked for. ``usual``: the columns
    that are printed if none is named. ``fixed``: none can be named; a word is what "{username}" in
    the path and the texts is. ``need``: what must be there; without one, what is in a vhost that
    there is not is an empty list, as RabbitMQ has it. ``beside``: columns that help does not name.
    ``states``: the only queues that are told, by their state."""

    path: tuple[str, ...]
    banner: str
    columns: Columns
    usual: tuple[str, ...]
    streams: bool = True  # nothing is printed for no row, not even an empty line
    fixed: bool = False
    need: Need | None = None
    beside: Columns = field(default_factory=dict)
    told_timeout: bool = False  # says how long it would wait
    headers: bool = True
    states: tuple[str, ...] = ()

    @property
    def takes_word(self) -> bool:
        return "{username}" in self.path


def _fixed(path: tuple[str, ...], banner: str, those: Columns, need: Need | None = None) -> Listing:
    return Listing(path, banner, those, tuple(those), streams=False, fixed=True, need=need)


LISTINGS: Mapping[str, Listing] = {
    "list_queues": Listing(
        ("queues", "{vhost}"),
        "Listing queues for vhost {vhost} ...",
        columns.QUEUES,
        ("name", "messages"),
        beside=columns.QUEUES_BESIDE,
        told_timeout=True,
    ),
    "list_unresponsive_queues": Listing(
        ("queues", "{vhost}"),
        "Listing unresponsive queues for vhost {vhost} ...",
        columns.QUEUES,
        ("name",),
        states=("unresponsive",),
    ),
    "list_exchanges": Listing(
        ("exchanges", "{vhost}"),
        "Listing exchanges for vhost {vhost} ...",
        columns.EXCHANGES,
        ("name", "type"),
    ),
    "list_bindings": Listing(
        ("bindings", "{vhost}"),
        "Listing bindings for vhost {vhost}...",
        columns.BINDINGS,
        (
            *("source_name", "source_kind", "destination_name", "destination_kind"),
            *("routing_key", "arguments"),
        ),
    ),
    "list_connections": Listing(
        ("connections",),
        "Listing connections ...",
        columns.CONNECTIONS,
        ("user", "peer_host", "peer_port", "state"),
        beside=columns.same("node"),
    ),
    "list_channels": Listing(
        ("channels",),
        "Listing channels ...",
        columns.CHANNELS,
        ("pid", "user", "consumer_count", "messages_unacknowledged"),
        beside=columns.same("node", "state"),
    ),
    "list_consumers": Listing(
        ("consumers", "{vhost}"),
        "Listing consumers in vhost {vhost} ...",
        columns.CONSUMERS,
        (
            *("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count"),
            *("active", "arguments"),
        ),
        beside=columns.same("exclusive"),
    ),
    "list_vhosts": Listing(
        ("vhosts",), "Listing vhosts ...", columns.VHOSTS, ("name",), streams=False
    ),
    "list_policies": _fixed(
        ("policies", "{vhost}"),
        'Listing policies for vhost "{vhost}" ...',
        columns.POLICIES,
        VHOST,
    ),
    "list_operator_policies": _fixed(
        ("operator-policies", "{vhost}"),
        'Listing operator policy overrides for vhost "{vhost}" ...',
        columns.POLICIES,
        VHOST,
    ),
    "list_permissions": _fixed(
        ("vhosts", "{vhost}", "permissions"),
        'Listing permissions for vhost "{vhost}" ...',
        columns.PERMISSIONS,
        VHOST,
    ),
    "list_topic_permissions": _fixed(
        ("vhosts", "{vhost}", "topic-permissions"),
        'Listing topic permissions for vhost "{vhost}" ...',
        columns.TOPIC_PERMISSIONS,
        VHOST,
    ),
    "list_user_permissions": _fixed(
        ("users", "{username}", "permissions"),
        'Listing permissions for user "{username}" ...',
        columns.USER_PERMISSIONS,
        USER_TERM,
    ),
    "list_user_topic_permissions": Listing(
        ("users", "{username}", "topic-permissions"),
        'Listing topic permissions for user "{username}" ...',
        columns.USER_TOPIC_PERMISSIONS,
        tuple(columns.USER_TOPIC_PERMISSIONS),
        streams=False,
        fixed=True,
        need=USER_TERM,
        headers=False,
    ),
    "list_users": _fixed(("users",), "Listing users ...", columns.USERS),
    "list_parameters": _fixed(
        ("parameters",),
        'Listing runtime parameters for vhost "{vhost}" ...',
        columns.PARAMETERS,
        VHOST,
    ),
    "list_global_parameters": _fixed(
        ("global-parameters",),
        "Listing global runtime parameters ...",
        columns.GLOBAL_PARAMETERS,
    ),
}
ALL_VHOST_LIMITS = _fixed(
    ("vhost-limits",), "Listing limits for all vhosts ...", columns.VHOST_LIMITS
)
ALL_USER_LIMITS = _fixed(("user-limits",), "Listing limits for all users ...", columns.USER_LIMITS)


async def run_listing(session: Session, listing: Listing) -> None:
    """Print it. Raises CtlError, Invalid."""
    typed = session.typed
    words = {"vhost": typed.vhost}
    if listing.takes_word:
        words["username"] = typed.arguments[0]
    names = _columns(listing, () if listing.takes_word else typed.arguments)
    if listing.told_timeout:
        session.inform(f"Timeout: {typed.timeout_s} seconds ...")
    session.inform(listing.banner.format(**words))
    if listing.need is not None:
        await require(session, listing.need, words)
    shown = await _shown(session, listing, words)
    rows = [_row(listing, one, names) for one in shown if _wanted(session, listing, one)]
    session.say(render(session, rows, names, headers=listing.headers))
    if not rows and not listing.streams and typed.formatter == "table":
        session.say([""])


async def _shown(session: Session, listing: Listing, words: Mapping[str, str]) -> list[Row]:
    vhost = words["vhost"]
    may_be_none = "{vhost}" in listing.path and listing.need is None
    if may_be_none and all(one["name"] != vhost for one in await session.get("vhosts")):
        return []
    path = [part.format(**words) for part in listing.path]
    told: list[Row] = await session.get(*path)
    if listing is LISTINGS["list_parameters"]:
        told = [one for one in told if one["vhost"] == vhost]
    return told


def render(
    session: Session, rows: Sequence[Row], names: Sequence[str], *, headers: bool = True
) -> list[str]:
    """As the chosen formatter has it."""
    typed = session.typed
    without = typed.has("--no-table-headers")
    if typed.formatter == "json":
        return as_json(rows, names)
    if typed.formatter == "csv":
        return as_csv(rows, names, headers=not without)
    if typed.formatter == "pretty_table":
        return as_pretty_table(rows, names)
    return as_table(rows, names, headers=headers and not without and not typed.has("--silent"))


def _columns(listing: Listing, named: Sequence[str]) -> tuple[str, ...]:
    """Raises Invalid for one that there is not."""
    words = tuple(dict.fromkeys(word for each in named for word in each.split(",") if word))
    if not words:
        return listing.usual
    known = (*listing.columns, *listing.beside)
    unknown = [word for word in words if word not in known]
    if unknown or listing.fixed:
        raise Invalid(f"Info key(s) {', '.join(unknown or words)} are not supported")
    return words


def _wanted(session: Session, listing: Listing, shown: Row) -> bool:
    """By --online, --offline and --local."""
    typed = session.typed
    if listing.states and shown.get("state") not in listing.states:
        return False
    is_down = shown.get("state") in ("down", "stopped", "crashed", "unresponsive")
    if typed.has("--online") and is_down:
        return False
    if typed.has("--offline") and not is_down:
        return False
    return not typed.has("--local") or shown.get("node") == session.node


def _row(listing: Listing, shown: Row, names: Sequence[str]) -> dict[str, object]:
    sources = {**listing.beside, **listing.columns}
    return {name: columns.value(shown, sources[name]) for name in names}


# -- formats ---------------------------------------------------------------------------------------

# Tables, CSV and JSON as rabbitmqctl 3.10 prints them (lib/rabbitmq/cli/formatters).

TABLES = ("arguments", "client_properties")  # columns that are tables of AMQP's


def as_table(rows: Sequence[Row], names: Sequence[str], *, headers: bool) -> list[str]:
    """A line a row, cells apart by tabs; nothing at all if there is no row."""
    if not rows:
        return []
    lines = ["\t".join(names)] if headers else []
    return lines + ["\t".join(cell(row.get(name)) for name in names) for row in rows]


def as_csv(rows: Sequence[Row], names: Sequence[str], *, headers: bool) -> list[str]:
    """Each cell in quotes."""
    told = [[cell(row.get(name)) for name in names] for row in rows]
    lines = [list(names), *told] if headers and rows else told
    return [",".join(_quoted(text) for text in line) for line in lines]


def as_json(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """An array, an element a line."""
    told = [
        msgspec.json.encode({name: _plain(name, row.get(name)) for name in names}).decode()
        for row in rows
    ]
    return ["[", "\n,".join(told), "]"] if told else ["[", "]"]


def _plain(name: str, value: object) -> object:
    if value is None:
        return ""
    return _triples(value) if name in TABLES else value


def _triples(value: object) -> object:
    """A table as Erlang has it: name, type and value of each."""
    if isinstance(value, dict):
        return [[name, _kind(inner), _triples(inner)] for name, inner in value.items()]
    return value


def _kind(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
        case float():
            return "double"
        case str():
            return "longstr"
        case dict():
            return "table"
        case list():
            return "array"
    return "void"


def as_pretty_table(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """In frames of a VT100's line drawing characters."""
    told = [[_pretty(row.get(name)) for name in names] for row in rows]
    widths = [max(len(line[at]) for line in [list(names), *told]) + 2 for at in range(len(names))]

    def frame(left: str, between: str, right: str) -> str:
        return f"\x1b(0{left}{between.join('q' * width for width in widths)}{right}\x1b(B"

    def line(cells: Sequence[str], texts: Sequence[str]) -> str:
        wide = [
            f" {cell}{' ' * (width - len(text) - 1)}"
            for cell, text, width in zip(cells, texts, widths, strict=True)
        ]
        bar = "\x1b(0x\x1b(B"
        return f"{bar}{bar.join(wide)}{bar}"

    titles = [f"{BOLD}{name}{PLAIN}" for name in names]
    body = [part for each in told for part in (frame("t", "n", "u"), line(each, each))]
    return [frame("l", "w", "k"), line(titles, names), *body, frame("m", "v", "j")]


def _pretty(value: object) -> str:
    return "".join(map(cell, value)) if isinstance(value, list | tuple) else cell(value)


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
            return f"[{','.join(pairs)}]"
        case _:
            return str(value)


def _term(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else cell(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


# -- gm_ring ---------------------------------------------------------------------------------------

# gm_ring: one queue's GM ring, as each node's own member has it. rabbitmqctl has no such verb.
#
# A row for every publisher that a member knows; a node without a member, or without an answer, has
# one row that says so.

RING_COLUMNS = (
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
    session.say(render(session, rows, RING_COLUMNS))


def _rows(node: Shown) -> list[dict[str, object]]:
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
