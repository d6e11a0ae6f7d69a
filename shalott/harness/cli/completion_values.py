"""What values options and arguments have, for a shell that completes them.

By the name of an option or argument, in every command that has one (harness/cli/completion.py).
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from shalott.broker.known_bugs import CATALOGUE
from shalott.broker.rabbit.ctl.verbs import VERBS as RABBIT_VERBS
from shalott.checkers.judge import JUDGES
from shalott.checkers.models.outside import MODELS
from shalott.cluster.systems.record import SYSTEMS, TOGETHER
from shalott.core.errors import ShalottError
from shalott.core.parameters import flags_of
from shalott.harness.cli.catalogue import KINDS
from shalott.harness.cli.checking import OPTIONS
from shalott.harness.cli.completion import SHELLS
from shalott.harness.cli.ctl import VERBS
from shalott.harness.report.meta import STORY_NAMES
from shalott.harness.run.backends import BACKENDS
from shalott.harness.run.request import DELIVERIES, POWER_LOSSES, STORE, Request
from shalott.harness.run.store import LATEST, PLAN
from shalott.nemesis.record import nemesis_names
from shalott.spark_analysis.engine_choice import ENGINES
from shalott.workloads.record import WORKLOADS


def prepare(app: typer.Typer) -> None:
    """Have the commands of ``app`` offer values, too."""
    for command in app.registered_commands:
        called = command.callback
        if called is None:
            continue
        if command.name == "check":
            called = command.callback = check_as_typer()
        offering(called, command.name or called.__name__)


def offering(called: Callable[..., object], command: str) -> None:
    """Have the function's options and arguments offer values."""
    hints = typing.get_type_hints(called, include_extras=True)
    for name, hint in hints.items():
        offer = offer_of(command, name)
        if offer is not None and hasattr(hint, "__metadata__"):
            info = copy.copy(hint.__metadata__[0])  # which commands may share
            info.autocompletion = offer
            hints[name] = Annotated[hint.__origin__, info]
    called.__annotations__ = hints  # those that typer reads, and no others made of texts
    if hasattr(called, "__signature__"):
        told = [each.replace(annotation=hints[each.name]) for each in signature_of(called)]
        called.__signature__ = inspect.Signature(told)


def signature_of(called: Callable[..., object]) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(called).parameters.values())


def check_as_typer() -> Callable[..., None]:
    """`shalott check`, which reads its arguments itself, as typer would have it."""

    def check(**typed: object) -> None:
        """It is asked what it takes, and never called."""

    parameters = []
    for names, takes, _, text in OPTIONS:
        name = names[0].lstrip("-").replace("-", "_")
        option = typer.Option(*names, help=text)
        kind = bool | None if takes is None else str | None
        parameters.append(_parameter(name, Annotated[kind, option]))
    parameters.append(_parameter("file", Annotated[list[str] | None, typer.Argument()]))
    check.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    check.__annotations__ = {each.name: each.annotation for each in parameters}
    return check


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


# -- what is offered -------------------------------------------------------------------------------

Offer = Callable[[typer.Context, str], Sequence[str]]  # (what is typed before, the beginning)
Names = Callable[[typer.Context], Iterable[str]]
TARGETS = ("one", "minority", "majority", "all", "master", "mirrors", "controller")
WITH_FLAGS = ("test", "search", "node", "up")  # those of workloads and systems


def offer_of(command: str, name: str) -> Offer | None:
    """The values of an option or argument; None: its values are files, numbers or times."""
    key = f"{command} {name}"
    names = NAMES.get(key) or NAMES.get(name)
    choices = _choices().get(name, ()) if command in WITH_FLAGS else ()
    if names is None and choices:
        return _offer(lambda ctx: choices)
    return _offer(names, in_list=name == "nemesis") if names is not None else None


def _offer(names: Names, *, in_list: bool = False) -> Offer:
    """``in_list``: what is typed are several, with commas between them."""

    def offer(ctx: typer.Context, incomplete: str) -> Sequence[str]:
        before, comma, _ = incomplete.rpartition(",") if in_list else ("", "", "")
        try:
            return [f"{before}{comma}{name}" for name in names(ctx)]
        except (ShalottError, OSError):  # what is wrong is said when the command runs
            return []

    return offer


@cache
def _choices() -> Mapping[str, Sequence[str]]:
    """Of the parameters of workloads and systems."""
    structs = [each.parameters for each in WORKLOADS.records()]
    structs += [each.parameters for each in SYSTEMS.records()]
    flags = [flag for struct in structs for flag in flags_of(struct)]
    return {flag.name.replace("-", "_"): flag.choices for flag in flags}


def _profiles(ctx: typer.Context) -> Iterable[str]:
    return SYSTEMS.find(ctx.params.get("system") or Request().system).profiles


def _layouts(ctx: typer.Context) -> Iterable[str]:
    layouts = SYSTEMS.find(ctx.params.get("system") or Request().system).layouts
    return (TOGETHER, *(layouts.names if layouts is not None else ()))


def _runs(ctx: typer.Context) -> Iterable[str]:
    """Of the store that is named: each run, and what its runs are called."""
    root = Path(ctx.params.get("store") or STORE)
    stored = sorted(path.parent.relative_to(root) for path in root.glob(f"*/*/{PLAN}"))
    runs = [run for run in stored if run.name != LATEST]
    return (LATEST, *dict.fromkeys(run.parts[0] for run in runs), *map(str, runs))


def _verbs(ctx: typer.Context) -> Iterable[str]:
    return (*VERBS, *RABBIT_VERBS)


# What has values, by the name of the option or argument; of one command only by "command name".
NAMES: Mapping[str, Names] = {
    "system": lambda ctx: SYSTEMS.names(),
    "systems name": lambda ctx: SYSTEMS.names(),
    "node system": lambda ctx: SYSTEMS.names(),
    "workload": lambda ctx: WORKLOADS.names(),
    "workloads name": lambda ctx: WORKLOADS.names(),
    "nemesis": lambda ctx: (*nemesis_names(), "none", "all"),
    "faults name": lambda ctx: nemesis_names(),
    "checkers name": lambda ctx: KINDS["checkers"].entries(),
    "model": lambda ctx: (*MODELS.names(), *JUDGES),
    "models name": lambda ctx: (*MODELS.names(), *JUDGES),
    "cluster": lambda ctx: BACKENDS,
    "profile": _profiles,
    "layout": _layouts,
    "bug": lambda ctx: [bug.id for bug in CATALOGUE],
    "targets": lambda ctx: TARGETS,
    "delivery": lambda ctx: DELIVERIES,
    "power_loss": lambda ctx: POWER_LOSSES,
    "scenario": lambda ctx: STORY_NAMES,
    "run": _runs,
    "file": _runs,
    "matrix file": lambda ctx: (),
    "verb": _verbs,
    "shell": lambda ctx: SHELLS,
    "report engine": lambda ctx: ENGINES,
    "check engine": lambda ctx: ("shalott", "porcupine", "both"),
}
