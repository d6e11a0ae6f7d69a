"""``shalott ctl``: what an operator asks of the brokers of a run that lasts, or was left running.

Each verb is a request to the nodes' management API (broker/rocket/node/management.py). The nodes
are those of a run, whose directory says where they listen (``endpoints.json``), or the one at
``--endpoint``. A question goes to every node, or to the one that is named; what changes something
goes to one: ``promote`` to the node that is named, ``elect-master`` to the first that takes it.
``follow`` asks the master for its epoch first, unless one is given. The verbs of rabbitmqctl are
read as rabbitmqctl reads them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.config import COOKIE
from shalott.broker.rabbit.ctl.session import EXIT_UNAVAILABLE, CtlError, Invalid
from shalott.broker.rabbit.ctl.verbs import VERBS as RABBIT_VERBS
from shalott.broker.rabbit.ctl.verbs import read as read_words
from shalott.broker.rabbit.ctl.verbs import run as run_verb
from shalott.cluster.http import Management
from shalott.cluster.nodes import Endpoint
from shalott.core.command_options import Argument, Option
from shalott.core.errors import ClientError, UsageError
from shalott.core.json_value import Json, JsonObject
from shalott.harness.cli.near_names import unknown
from shalott.harness.cli.options import StoreField, with_options
from shalott.harness.run.store import ENDPOINTS, Store

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
    body: Json


class Claim(msgspec.Struct, frozen=True):
    """What a node believes of its broker, as far as ``follow`` asks."""

    role: str = "no broker"
    epoch: int | None = None


class Claims(msgspec.Struct, frozen=True):
    claims: tuple[Claim, ...] = ()


def add_commands(app: typer.Typer) -> None:
    loose = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=loose)(with_options(ctl))


VERBS_TOLD = f"{', '.join(VERBS)}; of mirrored: those of rabbitmqctl, which help lists."


@dataclass(frozen=True, slots=True, kw_only=True)
class CtlOptions:
    """Which nodes are asked, and what the verb is told."""

    verb: Annotated[str, Argument(VERBS_TOLD)]
    run: Annotated[
        str, Option("A run's directory or name, latest, or what `shalott up` printed.")
    ] = "latest"
    node: Annotated[str, Option("The node to ask; else all, or the first.")] = ""
    endpoint: Annotated[str, Option("host:port of one node's API, without a run.")] = ""
    broker: Annotated[str, Option("elect-master: the broker that is wanted.")] = ""
    master: Annotated[str, Option("follow: the node to follow.")] = ""
    epoch: Annotated[int | None, Option("promote: else one more; follow: else the master's.")] = (
        None
    )
    as_json: Annotated[bool, Option("Print JSON.", ("--json",))] = False
    store: StoreField = Path("store")


def ctl(context: typer.Context, asked: CtlOptions) -> None:
    """Ask brokers of a running cluster, or tell them: promote, set_policy, list_queues."""
    verb = asked.verb
    if verb in RABBIT_VERBS:
        words = [verb, *context.args, *(["--formatter", "json"] if asked.as_json else [])]
        raise typer.Exit(as_rabbitmqctl(words, lambda name: _nodes(asked, name), asked.node))
    if verb not in VERBS:
        raise unknown("verb", verb, (*VERBS, *RABBIT_VERBS), "shalott ctl --help")
    if context.args:
        raise UsageError(f"shalott ctl {verb}: {context.args[0]} means nothing here")
    nodes = _nodes(asked, asked.node)
    body = _body(asked)
    if body is not None and verb == "follow" and asked.epoch is None:
        if asked.endpoint:
            raise UsageError(
                f"shalott ctl follow: without a run it is not known where {asked.master} can be"
                " asked for its epoch: give --epoch"
            )
        master = _nodes_of_run(asked, "master", asked.master)
        answers = asyncio.run(follow(nodes, master, body))
    else:
        answers = asyncio.run(ask(VERBS[verb], nodes, body))
    typer.echo(_as_json(answers) if asked.as_json else "\n".join(_as_lines(answers)))
    if not any(answer.ok for answer in answers):
        raise typer.Exit(EXIT_REFUSED)


def _nodes(asked: CtlOptions, node: str) -> dict[str, Address]:
    """Where to ask. Raises UsageError."""
    if endpoint := asked.endpoint:
        host, colon, port = endpoint.rpartition(":")
        if not colon or not port.isdigit():
            raise UsageError(f"--endpoint {endpoint}: give host:port, such as 127.0.0.1:15672")
        return {endpoint: (host, int(port))}
    return _nodes_of_run(asked, "node", node)


def _nodes_of_run(asked: CtlOptions, flag: str, node: str) -> dict[str, Address]:
    """All of them, or the one that a flag names. Raises UsageError."""
    place = Path(asked.run) / ENDPOINTS  # where a cluster is that belongs to no run
    if not place.is_file():
        directory = Store(asked.store).find(None if asked.run == "latest" else asked.run)
        place = directory.path / ENDPOINTS
    nodes = read_endpoints(place)
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


def _body(asked: CtlOptions) -> JsonObject | None:
    """Of the request. Raises UsageError for what is missing, or means nothing to the verb."""
    verb = asked.verb
    if verb in ("promote", "follow") and not (asked.node or asked.endpoint):
        raise UsageError(f"shalott ctl {verb}: say which broker it is about, with --node")
    if verb == "follow" and not asked.master:
        raise UsageError("shalott ctl follow: say whom, with --master")
    for flag, value, verbs in (
        ("broker", asked.broker, ("elect-master",)),
        ("master", asked.master, ("follow",)),
        ("epoch", asked.epoch, ("promote", "follow")),
    ):
        if value not in ("", None) and verb not in verbs:
            raise UsageError(f"--{flag} means nothing to {verb}: leave it out")
    if VERBS[verb].method == "GET":
        return None
    given = {"broker": asked.broker, "master": asked.master, "epoch": asked.epoch}
    return {name: value for name, value in given.items() if value not in ("", None)}


async def ask(verb: Verb, nodes: Mapping[str, Address], body: JsonObject | None) -> list[Answer]:
    """All of them; a change one after the other until one takes it."""
    if not verb.changes:
        return list(await asyncio.gather(*(_ask(verb, *one, body) for one in nodes.items())))
    answers: list[Answer] = []
    for one in nodes.items():
        answers.append(await _ask(verb, *one, body))
        if answers[-1].ok:
            return answers[-1:]
    return answers


async def follow(
    nodes: Mapping[str, Address], master: Mapping[str, Address], body: JsonObject
) -> list[Answer]:
    """In the epoch that the master tells: in another one the group would not be at rest."""
    (told,) = await ask(VERBS["claims"], master, None)
    if not told.ok:
        return [told]
    claims = msgspec.convert(told.body, Claims).claims
    claim = claims[0] if claims else Claim()
    if claim.role != "master":
        reason = f"it is {claim.role}, and no master: promote it first, or give --epoch"
        return [Answer(told.node, False, reason)]
    return await ask(VERBS["follow"], nodes, {**body, "epoch": claim.epoch})


async def _ask(verb: Verb, node: str, address: Address, body: JsonObject | None) -> Answer:
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


# -- rabbitmqctl -----------------------------------------------------------------------------------


def as_rabbitmqctl(
    words: Sequence[str], nodes: Callable[[str], Mapping[str, Address]], node: str
) -> int:
    """Do it; returns the exit code. ``nodes``: addresses, of all or of the one that is named. The
    first that answers is asked, as any node of a cluster may be. Raises UsageError.
    """
    try:
        typed = read_words(words)
        timeout_s = typed.timeout_s
    except (CtlError, Invalid) as error:
        typer.echo(str(error), err=True)
        return error.exit_code
    exit_code = EXIT_UNAVAILABLE
    cookie = os.environ.get("SHALOTT_COOKIE", COOKIE)
    for name, (host, port) in nodes(typed.node or node).items():
        one = Asked(host, port, cookie=cookie, timeout_s=timeout_s)
        outcome = asyncio.run(run_verb(typed, one, name))
        exit_code = outcome.exit_code
        if exit_code != EXIT_UNAVAILABLE:
            break
    typer.echo(outcome.stdout, nl=False)
    typer.echo(outcome.stderr, nl=False, err=True)
    return exit_code


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


def _indented(value: Json, indent: str) -> list[str]:
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


def _has_parts(values: Sequence[Json]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _table(rows: Sequence[JsonObject], indent: str) -> list[str]:
    """A list of objects, as columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_scalar(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return [
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _scalar(value: Json) -> str:
    if isinstance(value, list):
        return ", ".join(map(_scalar, value)) or "-"
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "-" if value in (None, "") else str(value)
