"""The commands about histories as such: check, export.

``check`` reads its own arguments: typer would load pydantic to understand them, which takes as long
as checking a million operations. In typer's application it stands for the list of commands, and
hands its arguments on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from harness.errors import UsageError

STORE = Path("store")
StoreOption = Annotated[Path, typer.Option("--store", help="Where runs are kept.")]

_DESCRIPTION = (
    "Is a history linearizable? Exit code 0: yes, 1: no, 2: it could not be decided. A FILE is a"
    " Parquet history, Jepsen's EDN, our JSON lines, a log of Jepsen's or Violin's, a run's"
    " directory or name, or `latest`."
)
# names, type or None for a switch, default, help
_OPTIONS: tuple[tuple[tuple[str, ...], Any, Any, str], ...] = (
    (("--model", "-m"), str, "", "what it should be: NAME or NAME:OPTION=VALUE,..."),
    (("--models",), None, False, "list the models"),
    (("--time-limit",), str, "", "unknown after so long: 60s, 2m; for each file"),
    (("--memory-limit",), str, "", "unknown beyond: 2GB; else 3/4 of what is free"),
    (("--threads",), int, 0, "keys checked at once; 0: one for each CPU"),
    (("--lane",), str, "auto", "auto; general: only the search; or a lane's name"),
    (("--failed-cas",), str, "", "checked: its value must have differed; or ignored"),
    (("--keyed",), None, False, "values are [key value], as jepsen.independent has them"),
    (("--dialect",), str, "auto", "how to read it, where its content does not tell"),
    (("--report",), Path, None, "draw what is invalid into this HTML file"),
    (("--json",), None, False, "the verdicts as JSON, a line each"),
    (("--store",), Path, STORE, "where runs are kept"),
)


class _Parser(argparse.ArgumentParser):
    """Complains as every other command does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see `shalott check --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("shalott check", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("files", nargs="*", metavar="FILE", help="histories, or runs")
    for names, kind, default, text in _OPTIONS:
        if kind is None:
            parser.add_argument(*names, action="store_true", help=text)
        else:
            parser.add_argument(*names, type=kind, default=default, help=text, metavar="...")
    return parser


def run_check(arguments: Sequence[str], echo: Callable[[str], None]) -> int:
    """``shalott check ARGUMENTS``: the exit code. Raises UsageError."""
    try:
        asked = _parser().parse_args(list(arguments))
    except SystemExit:  # --help was answered
        return 0
    from harness.checking import CheckRequest, check_files, describe_models

    if asked.models:
        for line in describe_models():
            echo(line)
        return 0
    request = CheckRequest(
        files=tuple(asked.files), model=asked.model, time_limit=asked.time_limit,
        memory_limit=asked.memory_limit, threads=asked.threads, lane=asked.lane,
        failed_cas=asked.failed_cas, keyed=asked.keyed, dialect=asked.dialect,
        report=asked.report, as_json=asked.json, store=asked.store,
    )  # fmt: skip
    try:
        return check_files(request, echo)
    except KeyboardInterrupt:
        typer.echo("shalott: interrupted before there was a verdict", err=True)
        return 2


def add_check_commands(app: typer.Typer) -> None:
    """Register them."""
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(add_help_option=False, context_settings=passed_on)(check)
    app.command()(export)


def check(context: typer.Context) -> None:
    """Is a history linearizable? Parquet, EDN, JSON lines, logs."""
    raise typer.Exit(run_check(context.args, typer.echo))


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def export(
    file: Annotated[str, typer.Argument(help="A run, latest, or a history.")] = "latest",
    format: Annotated[str, _option("edn: what Jepsen and Knossos read.")] = "edn",
    out: Annotated[Path | None, _option("Where to; else standard output.", "--out", "-o")] = None,
    keyed: Annotated[
        bool | None,
        _option("Values are [key value]; else if there are several keys.", "--keyed/--plain"),
    ] = None,
    nemesis: Annotated[bool, _option("With a run's faults.", "--nemesis")] = False,
    store: StoreOption = STORE,
) -> None:
    """Write a history as EDN, for Jepsen's and Knossos's own tools."""
    from harness.exporting import export_history

    export_history(
        file, format=format, out=out, keyed=keyed, with_nemesis=nemesis, store=store,
        echo=typer.echo,
    )  # fmt: skip
