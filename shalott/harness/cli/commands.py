"""The commands: in which module each is, and how typer is told of it.

A command line loads the module of its own command, which has what the command needs at its top;
of the others it knows the name and the sentence in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from typing import NamedTuple, Protocol

import typer

from shalott.core.doors import load_module, loaded_modules
from shalott.core.errors import UsageError
from shalott.harness.cli.options import is_completing

# The class of every complaint about arguments; typer exports only its children.
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Command(NamedTuple):
    """``module``: its ``add_commands(app)`` registers its commands. ``text``: in
    the list of commands."""

    module: str
    text: str


COMPLETION = "shalott.harness.cli.completion"
COMPLETION_VALUES = "shalott.harness.cli.completion_values"
COMMANDS: Mapping[str, Command] = {
    "test": Command(
        "shalott.harness.cli.test",
        "Boot a cluster, load it, break it, heal it, drain it, and judge what was lost.",
    ),
    "analyze": Command(
        "shalott.harness.cli.test",
        "Judge a stored run again: the latest, or the one that is named.",
    ),
    "report": Command(
        "shalott.harness.cli.report",
        "Read any number of stored runs: what was lost, doubled, out of order, away, and for how"
        " long.",
    ),
    "pictures": Command(
        "shalott.harness.cli.pictures",
        "Draw a run (availability beside faults, what was lost) or a store (its newest night).",
    ),
    "bugs": Command(
        "shalott.harness.cli.bugs",
        "List the historical bugs that `--bug` switches on, or tell all about one.",
    ),
    "mutants": Command(
        "shalott.harness.cli.mutants",
        "Change the brokers' code on purpose, and measure whether the plain search finds it.",
    ),
    **{
        kind: Command("shalott.harness.cli.catalogue", text)
        for kind, text in {
            "systems": "List the systems that can be tested, or tell all about one.",
            "faults": "List the faults that `--nemesis` takes, or tell all about one.",
            "workloads": "List what clients can do, or tell all about one workload.",
            "checkers": "List what judges runs, or tell all about one checker.",
            "models": "List the models of `shalott check`, or tell all about one.",
        }.items()
    },
    "doctor": Command(
        "shalott.harness.cli.doctor",
        "Say what is missing on this machine, or on hosts, and the command that installs it.",
    ),
    "prepare": Command(
        "shalott.harness.cli.machines",
        "Build the images that docker runs need, ahead of them, and start nothing else.",
    ),
    "clean": Command(
        "shalott.harness.cli.machines",
        "Remove containers, networks and processes that killed runs left behind, on hosts too.",
    ),
    "search": Command(
        "shalott.harness.cli.search",
        "Run clusters drawn from seeds, simulated or real, and keep what fails.",
    ),
    "replay": Command(
        "shalott.harness.cli.search",
        "Run a stored plan again: in the simulation to the last byte, or elsewhere.",
    ),
    "shrink": Command(
        "shalott.harness.cli.search",
        "Make a failing plan minimal: fewer faults, fewer operations, weaker, shorter, calmer.",
    ),
    "try-plugin": Command(
        "shalott.harness.cli.plugins",
        "Try a plug-in point by point: 0 if all are kept, 1 if one failed, which says what to do.",
    ),
    "new": Command(
        "shalott.harness.cli.plugins",
        "Write a package that puts a system of your own under test, and that runs as it is.",
    ),
    "runs": Command(
        "shalott.harness.cli.runs",
        "List a store's runs out of runs.parquet, which takes in what it lacks.",
    ),
    "matrix": Command(
        "shalott.harness.cli.matrix",
        "Run a night of cells, and say what is new, known, fixed or flaky beside earlier nights.",
    ),
    "check": Command(
        "shalott.harness.cli.checking", "Is a history linearizable? Parquet, EDN, JSON lines, logs."
    ),
    "export": Command(
        "shalott.harness.cli.export",
        "Write a history in another format.",
    ),
    "node": Command(
        "shalott.harness.cli.up",
        "Start one node here and say where clients connect; Ctrl-C ends it in order.",
    ),
    "up": Command(
        "shalott.harness.cli.up",
        "Start a cluster and say where clients connect; Ctrl-C or `shalott clean` ends it.",
    ),
    "ctl": Command(
        "shalott.harness.cli.ctl",
        "Ask brokers of a running cluster, or tell them: promote, set_policy, list_queues.",
    ),
    "completion": Command(
        COMPLETION,
        "Have a shell complete commands, options and names: bash, zsh, fish, powershell.",
    ),
    "serve": Command(
        "shalott.harness.cli.serve",
        "Show a store of runs as web pages, read-only: nights, runs, findings, live runs.",
    ),
}
ELSEWHERE = ("check",)  # whose arguments are not typer's to read (harness/cli/checking.py)


class _TyperCommand(Protocol):
    """Of what typer makes of the commands, what is needed here."""

    def main(self, *, args: list[str], prog_name: str, standalone_mode: bool) -> object: ...


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """The commands. ``words`` is the command line, of which only the command's name is looked at;
    the others are registered by their names alone. Without words all commands are there."""
    app = typer.Typer(
        help="Breaks replicated message brokers on purpose and tells you what they lost.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    asked = COMMANDS[words[0]].module if words and words[0] in COMMANDS else ""
    loaded: dict[str, None] = {}
    for name, (module, text) in COMMANDS.items():
        if name in ELSEWHERE or (words and module != asked):
            app.command(name, help=text)(_elsewhere)
        elif module not in loaded:
            loaded[module] = None
            import_module(module).add_commands(app)
    if is_completing() and words and words[0] in COMMANDS:
        import_module(COMPLETION_VALUES).prepare(app)
    return app


def _elsewhere() -> None:
    """Stands for a command in the list of commands where another one is asked for."""


def load_modules_named(words: Sequence[str]) -> None:
    """What ``--load`` names, before anything is read from the doors. Raises UsageError."""
    for place, word in enumerate(words):
        name = word.removeprefix("--load=") if word.startswith("--load=") else ""
        if word == "--load" and place + 1 < len(words):
            name = words[place + 1]
        if name:
            load_module(name)


@cache
def _command(name: str, modules: tuple[str, ...]) -> _TyperCommand:
    """What typer makes of the commands, where ``name`` is asked for and ``modules`` are loaded.

    typer reads every annotation to make it: 50 ms, which tests of many commands pay once.
    """
    made: _TyperCommand = typer.main.get_command(make_app((name or "--help",)))
    return made


def make_command(arguments: Sequence[str]) -> Callable[[], int]:
    """One command, ready to run, with its modules loaded. Raises UsageError."""
    if is_completing():
        arguments = _typed_so_far()
    with suppress(UsageError) if is_completing() else nullcontext():
        load_modules_named(arguments)
    command = _command("".join(arguments[:1]), loaded_modules())
    return partial(run_typer, command, arguments)


def _typed_so_far() -> Sequence[str]:
    """What a shell asks how it goes on: it calls without arguments."""
    words: Sequence[str] = import_module(COMPLETION).words_typed()
    return words


def run_typer(command: _TyperCommand, arguments: Sequence[str]) -> int:
    """Have typer read the arguments and call the command. Raises UsageError."""
    try:
        code = command.main(args=list(arguments), prog_name="shalott", standalone_mode=False)
    except _TyperUsageError as error:
        sentence = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
        raise UsageError(f"{sentence}: see `shalott --help`") from error
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:  # of a completion; or there is no reader any more
        if end.code:
            raise BrokenPipeError from None
        return 0
    return code if isinstance(code, int) else 0
