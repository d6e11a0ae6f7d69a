"""Flags that the command line takes from the records behind the doors.

Each parameter of every workload and system that is here is a flag of ``shalott test``; two records
whose parameters have one name share the flag. What was typed is handed on by the flag's name, and
the struct of the record that the plan uses takes it (core/parameters.py).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import msgspec
import typer

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.parameters import Flag, flags_of
from shalott.workloads.record import WORKLOADS

PANEL = "Of some workloads and systems"


@dataclass(frozen=True, slots=True)
class SharedFlag:
    """A flag, and the records that have it."""

    flag: Flag
    owners: tuple[str, ...]

    @property
    def help(self) -> str:
        choices = f" {', '.join(self.flag.choices)}." if self.flag.choices else ""
        told = f"{', '.join(self.owners)}: {self.flag.help}".rstrip(": ")
        return told if all(each in told for each in self.flag.choices) else told + choices


def shared_flags(*, workloads: bool = True) -> tuple[SharedFlag, ...]:
    """Every parameter's, in the order of the records; or of systems alone."""
    found: dict[str, SharedFlag] = {}
    structs: list[tuple[str, type[msgspec.Struct]]] = []
    if workloads:
        structs = [(record.name, record.parameters) for record in WORKLOADS.records()]
    structs += [(record.name, record.parameters) for record in SYSTEMS.records()]
    for owner, struct in structs:
        for flag in flags_of(struct):
            known = found.get(flag.name)
            owners = (*known.owners, owner) if known is not None else (owner,)
            found[flag.name] = SharedFlag(known.flag if known is not None else flag, owners)
    return tuple(found.values())


def with_parameter_flags(
    command: Callable[..., None], flags: Sequence[SharedFlag], helps: Mapping[str, str]
) -> Callable[..., None]:
    """``command`` with the flags as options of its own; it gets what was typed as ``given``, by the
    flag's name. ``helps``: what to tell of options that it has already, by their name."""
    signature = inspect.signature(command, eval_str=True)
    own = [
        _with_help(each, helps.get(each.name))
        for each in signature.parameters.values()
        if each.name != "given"
    ]
    taken = dict.fromkeys(each.name for each in own)
    added = {_python_name(shared.flag): shared for shared in flags}
    for name in taken:
        added.pop(name, None)  # a flag of every run, such as --rate, stays what it is
    options = [_option(name, shared) for name, shared in added.items()]

    def run(**typed: Any) -> None:
        given: Mapping[str, str | bool] = {
            shared.flag.name: typed[name]
            for name, shared in added.items()
            if typed[name] is not None
        }
        command(**{name: typed[name] for name in taken}, given=given)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    parameters = [*own, *options]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _with_help(parameter: inspect.Parameter, text: str | None) -> inspect.Parameter:
    if text is None:
        return parameter
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.help = text
    return parameter.replace(annotation=Annotated[kind, option])


def _python_name(flag: Flag) -> str:
    return flag.name.replace("-", "_")


def _option(name: str, shared: SharedFlag) -> inspect.Parameter:
    flag = shared.flag
    is_switch = flag.kind == "flag"
    words = f"--{flag.name}/--no-{flag.name}" if is_switch else f"--{flag.name}"
    default = "" if is_switch else flag.typed(flag.default)
    option = typer.Option(
        words, help=shared.help, show_default=default or False, rich_help_panel=PANEL
    )
    kind = bool | None if is_switch else str | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )
