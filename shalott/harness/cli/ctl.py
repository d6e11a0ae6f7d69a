"""``shalott ctl``: what an operator asks of the brokers of a run that lasts, or was left running.

Each verb is a request to the nodes' management API (broker/rocket/node/management.py). The nodes
are those of a run, whose directory says where they listen (``endpoints.json``), or the one at
``--endpoint``. A question goes to every node, or to the one that is named; what changes something
goes to one: ``promote`` to the node that is named, ``elect-master`` to the first that takes it.
``follow`` asks the master for its epoch first, unless one is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from shalott.core.errors import ClientError, UsageError
from shalott.harness.cli.ctl_rabbit import RABBIT_VERBS, as_rabbitmqctl

TIMEOUT_MS = 10_000
EXIT_REFUSED = 1

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Verb:
    """``changes``: asked of one node only."""

    method: str
    path: str
    text: str
    changes: bool = False


VERBS: Mapping[str, Verb] = {
    "claims": Verb("GET", "/api/shalott/claims", "what each node believes"),
    "ha-status": Verb("GET", "/api/shalott/ha-status", "how far the slaves are"),
    "get-sync-state-set": Verb("GET", "/api/shalott/sync-state-set", "the controllers' view"),
    "epoch-cache": Verb("GET", "/api/shalott/epoch-cache", "which epoch wrote which bytes"),
    "promote": Verb("POST", "/api/shalott/promote", "make a slave the master", changes=True),
    "follow": Verb("POST", "/api/shalott/follow", "make a broker a slave", changes=True),
    "elect-master": Verb(
        "POST", "/api/shalott/elect-master", "have controllers elect anew", changes=True
    ),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one node said. ``body`` is JSON, or the text of a refusal."""

    node: str
    ok: bool
    body: Any


def add_ctl_command(app: typer.Typer) -> None:
    """Register it."""
    loose = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=loose)(ctl)


def ctl(
    context: typer.Context,
    verb: Annotated[str, typer.Argument(help=", ".join((*VERBS, *RABBIT_VERBS)))],
    run: Annotated[str, typer.Option(help="A run's directory or name, or latest.")] = "latest",
    node: Annotated[str, typer.Option(help="The node to ask; else all, or the first.")] = "",
    endpoint: Annotated[str, typer.Option(help="host:port of one node's API, without a run.")] = "",
    broker: Annotated[str, typer.Option(help="elect-master: the broker that is wanted.")] = "",
    master: Annotated[str, typer.Option(help="follow: the node to follow.")] = "",
    epoch: Annotated[
        int | None, typer.Option(help="promote: else one more; follow: else the master's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[Path, typer.Option("--store", help="Where runs are kept.")] = Path("store"),
) -> None:
    """Ask the brokers of a running cluster, or tell them: promote, elect-master, ha-status; and as
    rabbitmqctl does: set_policy, list_queues, cluster_status."""
    import asyncio  # here, as in ``ask``: every other command would pay for it

    if verb in RABBIT_VERBS:
        words = [verb, *context.args, *(["--formatter", "json"] if as_json else [])]
        raise typer.Exit(
            as_rabbitmqctl(words, lambda name: _nodes(run, name, endpoint, store), node)
        )
    if verb not in VERBS:
        known = ", ".join((*VERBS, *RABBIT_VERBS))
        raise UsageError(f"unknown verb {verb}: choose one of {known}")
    if context.args:
        raise UsageError(f"shalott ctl {verb}: {context.args[0]} means nothing here")
    nodes = _nodes(run, node, endpoint, store)
    body = _body(verb, node or endpoint, broker=broker, master=master, epoch=epoch)
    if body is not None and verb == "follow" and epoch is None:
        if endpoint:
            raise UsageError(
                f"shalott ctl follow: without a run nobody knows where {master} can be asked for"
                " its epoch: give --epoch"
            )
        answers = asyncio.run(follow(nodes, _nodes_of_run(run, "master", master, store), body))
    else:
        answers = asyncio.run(ask(VERBS[verb], nodes, body))
    typer.echo(_as_json(answers) if as_json else "\n".join(_as_lines(answers)))
    if not any(answer.ok for answer in answers):
        raise typer.Exit(EXIT_REFUSED)


def _nodes(run: str, node: str, endpoint: str, store: Path) -> dict[str, Address]:
    """Where to ask. Raises UsageError."""
    if endpoint:
        host, colon, port = endpoint.rpartition(":")
        if not colon or not port.isdigit():
            raise UsageError(f"--endpoint {endpoint}: give host:port, such as 127.0.0.1:15672")
        return {endpoint: (host, int(port))}
    return _nodes_of_run(run, "node", node, store)


def _nodes_of_run(run: str, flag: str, node: str, store: Path) -> dict[str, Address]:
    """All of them, or the one that a flag names. Raises UsageError."""
    from shalott.harness.run.store import ENDPOINTS, Store

    directory = Store(store).find(None if run == "latest" else run)
    nodes = read_endpoints(directory.path / ENDPOINTS)
    if not node:
        return nodes
    if node not in nodes:
        raise UsageError(f"--{flag} {node}: the run has {', '.join(nodes)}")
    return {node: nodes[node]}


def read_endpoints(path: Path) -> dict[str, Address]:
    """Each node's management API, as the run noted it when it had booted. Raises UsageError."""
    try:
        noted = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Address]])
        return {node: ports["management"] for node, ports in noted.items()}
    except OSError as error:
        raise UsageError(
            f"{path.parent} does not say where its nodes listen: it has not booted, or was"
            " simulated; give --endpoint host:port"
        ) from error
    except (msgspec.MsgspecError, KeyError) as error:
        raise UsageError(f"{path} is damaged: give --endpoint host:port") from error


def _body(
    verb: str, asked: str, *, broker: str, master: str, epoch: int | None
) -> dict[str, Any] | None:
    """Of the request. Raises UsageError for what is missing, or means nothing to the verb."""
    if verb in ("promote", "follow") and not asked:
        raise UsageError(f"shalott ctl {verb}: say which broker it is about, with --node")
    if verb == "follow" and not master:
        raise UsageError("shalott ctl follow: say whom, with --master")
    for flag, value, verbs in (
        ("broker", broker, ("elect-master",)),
        ("master", master, ("follow",)),
        ("epoch", epoch, ("promote", "follow")),
    ):
        if value not in ("", None) and verb not in verbs:
            raise UsageError(f"--{flag} means nothing to {verb}: leave it out")
    if VERBS[verb].method == "GET":
        return None
    given = {"broker": broker or None, "master": master or None, "epoch": epoch}
    return {name: value for name, value in given.items() if value is not None}


async def ask(
    verb: Verb, nodes: Mapping[str, Address], body: dict[str, Any] | None
) -> list[Answer]:
    """All of them; a change one after the other until one takes it."""
    import asyncio

    if not verb.changes:
        return list(await asyncio.gather(*(_ask(verb, *one, body) for one in nodes.items())))
    answers: list[Answer] = []
    for one in nodes.items():
        answers.append(await _ask(verb, *one, body))
        if answers[-1].ok:
            return answers[-1:]
    return answers


async def follow(
    nodes: Mapping[str, Address], master: Mapping[str, Address], body: dict[str, Any]
) -> list[Answer]:
    """In the epoch that the master tells: in another one the group would not be at rest."""
    (told,) = await ask(VERBS["claims"], master, None)
    if not told.ok:
        return [told]
    claims = told.body.get("claims") or [{"role": "no broker"}]
    if claims[0]["role"] != "master":
        role = claims[0]["role"]
        reason = f"it is {role}, and no master: promote it first, or give --epoch"
        return [Answer(told.node, False, reason)]
    return await ask(VERBS["follow"], nodes, {**body, "epoch": claims[0]["epoch"]})


async def _ask(verb: Verb, node: str, address: Address, body: dict[str, Any] | None) -> Answer:
    from shalott.cluster.http import Management
    from shalott.cluster.nodes import Endpoint

    management = Management(Endpoint(*address), timeout_ms=TIMEOUT_MS)
    try:
        response = await management.request(verb.method, verb.path, body)
        answer = response.json()
    except ClientError as error:
        return Answer(node, False, str(error))
    if response.status >= 300:
        reason = answer.get("reason") if isinstance(answer, dict) else answer
        return Answer(node, False, f"refused with {response.status}: {reason}")
    return Answer(node, True, answer)


# -- telling ---------------------------------------------------------------------------------------


def _as_json(answers: Sequence[Answer]) -> str:
    told = {answer.node: answer.body if answer.ok else {"error": answer.body} for answer in answers}
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def _as_lines(answers: Sequence[Answer]) -> list[str]:
    lines: list[str] = []
    for answer in answers:
        lines.append(f"{answer.node}:" if answer.ok else f"{answer.node}: {answer.body}")
        if answer.ok:
            lines += _indented(answer.body, "  ")
    return lines


def _indented(value: Any, indent: str) -> list[str]:
    """A mapping's fields a line each; what is nested stands below, further in."""
    if isinstance(value, dict):
        lines = []
        for name, inner in value.items():
            if isinstance(inner, dict) or (isinstance(inner, list) and _has_parts(inner)):
                lines += [f"{indent}{name}:", *_indented(inner, indent + "  ")]
            else:
                lines.append(f"{indent}{name:<24}  {_scalar(inner)}")
        return lines
    if isinstance(value, list) and _has_parts(value):
        return _table(value, indent)
    return [f"{indent}{_scalar(value)}"]


def _has_parts(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _table(rows: list[dict[str, Any]], indent: str) -> list[str]:
    """A list of objects, as columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_scalar(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return [
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_scalar, value)) or "-"
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "-" if value in (None, "") else str(value)
