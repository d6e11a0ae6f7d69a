"""A command's options, out of the frozen dataclasses that it takes (core/command_options.py).

Typer reads a function's signature, so ``with_options`` gives a command that takes structs one with
a parameter for each field. Besides, parameters of records are flags (harness/cli/test.py):
what was typed of these is handed on as ``given``, by the flag's name, in the struct that has a
field of that name; the struct of the record that the plan uses takes it (core/parameters.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
import typer.core

from shalott.core.command_options import Argument, Option, Prefixed
from shalott.core.errors import UsageError
from shalott.core.parameters import Flag, is_url

METAVARS: Mapping[object, str] = {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}
COMPLETE = "_SHALOTT_COMPLETE"  # the variable by which shells ask
RECORDS_PANEL = "Of some workloads and systems"
GIVEN = "given"  # the field that takes the records' flags
Typed = Mapping[str, object]
LOAD_HELP = "A module whose systems, workloads, faults are offered too."
STORE_HELP = "Where runs are kept."
# As a field of a struct, and as a parameter of a command without one.
LoadField = Annotated[tuple[str, ...], Option(LOAD_HELP)]
StoreField = Annotated[Path, Option(STORE_HELP)]
LoadOption = Annotated[list[str] | None, typer.Option("--load", help=LOAD_HELP)]


def refuse_url(store: Path) -> Path:
    """Of all commands that take a store, those that search in the simulation alone write to a
    URL. Raises UsageError."""
    if is_url(store):
        raise UsageError(f"--store {store}: give a directory; search and mutants alone take a URL")
    return store


StoreOption = Annotated[Path, typer.Option("--store", help=STORE_HELP, callback=refuse_url)]


@dataclass(frozen=True, slots=True)
class SharedFlag:
    """A flag of records' parameters, and the records that have it."""

    flag: Flag
    owners: tuple[str, ...]

    @property
    def help(self) -> str:
        choices = f" {', '.join(self.flag.choices)}." if self.flag.choices else ""
        told = f"{', '.join(self.owners)}: {self.flag.help}".rstrip(": ")
        return told if all(each in told for each in self.flag.choices) else told + choices


def with_options(
    command: Callable[..., None],
    flags: Sequence[SharedFlag] = (),
    common: Sequence[str] = (),
) -> Callable[..., None]:
    """``command`` with an option for each field of the structs that it takes, and for each of
    ``flags``.

    ``--help`` shows those named in ``common``, all fields if none is; ``--help-all`` the others and
    ``flags`` too.
    """
    taken = inspect.signature(command, eval_str=True).parameters.values()
    structs = {each.name: _struct_of(each.annotation) for each in taken}
    own: list[inspect.Parameter] = []
    after: dict[str, str] = {}
    for each in taken:
        struct = structs[each.name]
        if struct is None:
            own.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        else:
            for option in _options_of(*struct):
                own.append(_parameter(option))
                if option.said_after:
                    after[option.name] = option.said_after
    names = dict.fromkeys(each.name for each in own)
    shared = {each.flag.name.replace("-", "_"): each for each in flags}
    shared = {name: each for name, each in shared.items() if name not in names}

    hidden = {each.name for each in own if common and each.name not in common} | {*shared}

    def run(**typed: object) -> None:
        given = {s.flag.name: typed[name] for name, s in shared.items() if typed[name] is not None}
        arguments = {
            name: typed[name] if struct is None else _built(*struct, typed, given)
            for name, struct in structs.items()
        }
        command(**arguments)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    parameters = [*_in_order(own, after), *(_shared(name, s) for name, s in shared.items())]
    if hidden:
        _hide(parameters, hidden)
        parameters.append(_help_all(hidden))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@dataclass(frozen=True, slots=True)
class _FieldOption:
    """One field of a struct, as an option. ``name``: of the parameter."""

    name: str
    said: Option | Argument
    kind: Any
    default: object

    @property
    def said_after(self) -> str:
        return self.said.after if isinstance(self.said, Option) else ""


def _struct_of(annotation: Any) -> tuple[type, str] | None:
    """(the dataclass, the prefix of its options); None for a parameter that is none."""
    prefix = ""
    if get_origin(annotation) is Annotated:
        annotation, *said = get_args(annotation)
        prefix = next((each.prefix for each in said if isinstance(each, Prefixed)), "")
    is_struct = isinstance(annotation, type) and dataclasses.is_dataclass(annotation)
    return (annotation, prefix) if is_struct else None


def _fields_of(struct: type) -> Iterator[tuple[dataclasses.Field[object], Any]]:
    hints = typing.get_type_hints(struct, include_extras=True)
    for each in dataclasses.fields(struct):
        yield each, hints[each.name]


def _options_of(struct: type, prefix: str) -> Iterator[_FieldOption]:
    for each, hint in _fields_of(struct):
        if get_origin(hint) is not Annotated:
            continue
        kind, *said = get_args(hint)
        if (inner := _struct_of(hint)) is not None:
            yield from _options_of(*inner)
        for word in said:
            if isinstance(word, Option | Argument):
                yield _FieldOption(prefix + each.name, word, kind, each.default)


def _parameter(option: _FieldOption) -> inspect.Parameter:
    kind, default, said = option.kind, option.default, option.said
    if get_origin(kind) is tuple:
        kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc]
    if default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    if isinstance(default, float) and default.is_integer():
        default = int(default)  # as it is typed
    if isinstance(said, Argument):
        info: object = typer.Argument(help=said.help)
    else:
        flag = f"--{option.name.replace('_', '-')}"
        info = typer.Option(
            *(said.names or (flag,)),
            help=said.help,
            rich_help_panel=said.panel,
            show_default=said.shows_default,
            metavar=_metavar(option.kind),
            callback=refuse_url if (option.name, kind) == ("store", Path) else None,
        )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )


def _metavar(kind: object) -> str | None:
    """What stands for the value; None: there is none."""
    for known in (*get_args(kind), kind):
        if known in METAVARS:
            return METAVARS[known]
    return None


def _hide(parameters: Sequence[inspect.Parameter], names: Collection[str]) -> None:
    for each in parameters:
        if each.name in names:
            (info,) = each.annotation.__metadata__
            info.hidden = not is_completing()


def is_completing() -> bool:
    """Whether a shell asks what could be typed, and not a user what there is."""
    return COMPLETE in os.environ


def _help_all(hidden: Collection[str]) -> inspect.Parameter:
    def show(context: typer.Context, asked: bool) -> None:
        if not asked:
            return
        for each in context.command.params:
            if each.name in hidden and isinstance(each, typer.core.TyperOption):
                each.hidden = False
        context.command.epilog = None
        typer.echo(context.get_help())
        raise typer.Exit

    option = typer.Option(
        "--help-all", help="Show every option.", is_eager=True, callback=show, expose_value=False
    )
    return inspect.Parameter(
        "help_all",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, option],
    )


def _in_order(
    parameters: Sequence[inspect.Parameter], after: Mapping[str, str]
) -> list[inspect.Parameter]:
    """With those that say so behind the one that they name."""
    ordered = [each for each in parameters if each.name not in after]
    for each in parameters:
        if each.name in after:
            place = [other.name for other in ordered].index(after[each.name])
            ordered.insert(place + 1, each)
    return ordered


def _built(struct: type, prefix: str, typed: Typed, given: Typed) -> object:
    """The struct with what was typed."""
    values: dict[str, object] = {}
    for each, hint in _fields_of(struct):
        name = prefix + each.name
        inner = _struct_of(hint)
        if each.name == GIVEN:
            values[GIVEN] = given
        elif inner is not None:
            values[each.name] = _built(*inner, typed, given)
        elif name in typed:
            value = typed[name]
            is_tuple = get_origin(get_args(hint)[0]) is tuple
            values[each.name] = tuple(typing.cast(list[object], value or ())) if is_tuple else value
    made: object = struct(**values)
    return made


def _shared(name: str, shared: SharedFlag) -> inspect.Parameter:
    flag = shared.flag
    is_switch = flag.kind == "flag"
    words = f"--{flag.name}/--no-{flag.name}" if is_switch else f"--{flag.name}"
    default = "" if is_switch else flag.typed(flag.default)
    option = typer.Option(
        words,
        help=f"{shared.help} \\[default: {default}]" if default else shared.help,
        show_default=False,
        metavar=flag.type_name or None,
        rich_help_panel=RECORDS_PANEL,
    )
    kind = bool | None if is_switch else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )
