"""Every verb: how many words it takes, and what does it. ``run`` is the whole command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from shalott.broker.base.http.client import Asked
from shalott.broker.rabbit.ctl import cluster, memory, policies
from shalott.broker.rabbit.ctl.arguments import EXIT_USAGE, CtlError, Typed, parse
from shalott.broker.rabbit.ctl.listing import LISTINGS, run_listing
from shalott.broker.rabbit.ctl.session import Session

Run = Callable[[Session], Awaitable[None]]
MANY = 1000  # columns


@dataclass(frozen=True, slots=True)
class Verb:
    """``words``: what stands behind the verb, for the usage; ``least`` and ``most`` of them.
    ``stopped``: whether it may be asked of a node whose broker does not run."""

    words: str
    least: int
    most: int
    run: Run
    stopped: bool = False


VERBS: Mapping[str, Verb] = {
    "set_policy": Verb(
        "[-p <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name> <pattern>"
        " <definition> [<priority>]",
        3,
        4,
        policies.set_policy,
    ),
    "clear_policy": Verb("[-p <vhost>] <name>", 1, 1, policies.clear_policy),
    "cluster_status": Verb("", 0, 0, cluster.cluster_status, stopped=True),
    "add_vhost": Verb("<vhost>", 1, 1, cluster.add_vhost),
    "delete_vhost": Verb("<vhost>", 1, 1, cluster.delete_vhost),
    "stop_app": Verb("", 0, 0, cluster.stop_app, stopped=True),
    "start_app": Verb("", 0, 0, cluster.start_app, stopped=True),
    "forget_cluster_node": Verb("[--offline] <node>", 1, 1, cluster.forget_cluster_node),
    "set_vm_memory_high_watermark": Verb(
        "<fraction> | absolute <value>", 1, 2, memory.set_watermark, stopped=True
    ),
    "sync_queue": Verb("[-p <vhost>] <queue>", 1, 1, cluster.sync_queue),
    "cancel_sync_queue": Verb("[-p <vhost>] <queue>", 1, 1, cluster.cancel_sync_queue),
    **{
        name: Verb(
            "[-p <vhost>]" if listing.fixed else "[-p <vhost>] [<column> ...]",
            0,
            0 if listing.fixed else MANY,
            partial(run_listing, name=name),
        )
        for name, listing in LISTINGS.items()
    },
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
            f"Usage\n\nrabbitmqctl {typed.verb} {verb.words}",
        )
    return typed


async def run(typed: Typed, asked: Asked, node: str) -> Outcome:
    """Do it at one node."""
    session = Session(asked, node, typed)
    verb = VERBS[typed.verb]
    try:
        if not verb.stopped:
            await cluster.require_running(session)
        await verb.run(session)
    except CtlError as error:
        return Outcome(error.exit_code, _text(session.said), error.text + "\n")
    return Outcome(0, _text(session.said))


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
