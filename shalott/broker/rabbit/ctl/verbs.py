"""Every verb: how many words it takes, and what does it. ``run`` is the whole command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.ctl import cluster, vhosts
from shalott.broker.rabbit.ctl.listing import LISTINGS, gm_ring, run_listing
from shalott.broker.rabbit.ctl.session import EXIT_USAGE, CtlError, Session, Typed, parse

Run = Callable[[Session], Awaitable[None]]
MANY = 1000  # columns


@dataclass(frozen=True, slots=True)
class Verb:
    """``words``: what stands behind the verb, for the usage; ``least`` and ``most`` of them.
    ``when``: whether it is asked of a node whose broker runs, or is stopped."""

    words: str
    least: int
    most: int
    run: Run
    when: Literal["running", "stopped", "always"] = "running"


SET_POLICY = (
    "[-p <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name> <pattern> <definition>"
    " [<priority>]"
)


def _listing(name: str) -> Verb:
    listing = LISTINGS[name]
    run = partial(run_listing, name=name)
    if listing.takes_word:
        return Verb("<username>", 1, 1, run)
    if listing.fixed:
        return Verb("[-p <vhost>]", 0, 0, run)
    return Verb("[-p <vhost>] [<column> ...]", 0, MANY, run)


VERBS: Mapping[str, Verb] = {
    "set_policy": Verb(SET_POLICY, 3, 4, vhosts.set_policy),
    "set_operator_policy": Verb(SET_POLICY, 3, 3, vhosts.set_operator_policy),
    "clear_operator_policy": Verb("[-p <vhost>] <name>", 1, 1, vhosts.clear_operator_policy),
    "clear_policy": Verb("[-p <vhost>] <name>", 1, 1, vhosts.clear_policy),
    "cluster_status": Verb("", 0, 0, cluster.cluster_status, when="always"),
    "add_vhost": Verb("<vhost>", 1, 1, vhosts.add_vhost),
    "delete_vhost": Verb("<vhost>", 1, 1, vhosts.delete_vhost),
    "stop_app": Verb("", 0, 0, cluster.stop_app, when="always"),
    "start_app": Verb("", 0, 0, cluster.start_app, when="always"),
    "reset": Verb("", 0, 0, cluster.reset, when="stopped"),
    "force_reset": Verb("", 0, 0, cluster.force_reset, when="stopped"),
    "join_cluster": Verb(
        "[--disc|--ram] <existing_cluster_member>", 1, 1, cluster.join_cluster, when="stopped"
    ),
    "force_boot": Verb("", 0, 0, cluster.force_boot, when="stopped"),
    "set_permissions": Verb(
        "[-p <vhost>] <user> <conf> <write> <read>", 4, 4, vhosts.set_permissions
    ),
    "clear_permissions": Verb("[-p <vhost>] <user>", 1, 1, vhosts.clear_permissions),
    "forget_cluster_node": Verb("[--offline] <node>", 1, 1, cluster.forget_cluster_node),
    "set_vm_memory_high_watermark": Verb(
        "<fraction> | absolute <value>", 1, 2, cluster.set_watermark, when="always"
    ),
    "sync_queue": Verb("[-p <vhost>] <queue>", 1, 1, cluster.sync_queue),
    "cancel_sync_queue": Verb("[-p <vhost>] <queue>", 1, 1, cluster.cancel_sync_queue),
    "gm_ring": Verb("[-p <vhost>] <queue>", 1, 1, gm_ring),
    **{name: _listing(name) for name in LISTINGS},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """As of a process that has ended."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


def read(words: Sequence[str]) -> Typed:
    """What was typed, if the verb is known and has as many words as it takes. Raises CtlError."""
    typed = parse(words)
    verb = VERBS.get(typed.verb)
    if verb is None:
        raise CtlError(EXIT_USAGE, f"Command '{typed.verb}' not found.")
    if not verb.least <= len(typed.arguments) <= verb.most:
        few = len(typed.arguments) < verb.least
        raise CtlError(
            EXIT_USAGE,
            f"Error (argument validation): {'not enough' if few else 'too many'} arguments.\n"
            f"Arguments given:\n\t{' '.join((typed.verb, *typed.arguments))}\n\n"
            f"{_usage(typed.verb)}",
        )
    return typed


def _usage(name: str) -> str:
    return f"Usage\n\nrabbitmqctl {name} {VERBS[name].words}"


async def run(typed: Typed, asked: Asked, node: str) -> Outcome:
    """Do it at one node."""
    session = Session(asked, node, typed)
    verb = VERBS[typed.verb]
    try:
        if verb.when == "running":
            await cluster.require_running(session)
        elif verb.when == "stopped":
            await cluster.require_stopped(session, _usage(typed.verb))
        await verb.run(session)
    except CtlError as error:
        return Outcome(error.exit_code, _text(session.said), error.text + "\n")
    return Outcome(0, _text(session.said))


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
