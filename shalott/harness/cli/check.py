"""The commands about histories as such: check, export.

``check`` stands here for the list of commands; check_fast.py reads its arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shalott.harness.cli.check_fast import STORE, run_check

StoreOption = Annotated[Path, typer.Option("--store", help="Where runs are kept.")]


def add_check_commands(app: typer.Typer) -> None:
    """Register them."""
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(add_help_option=False, context_settings=passed_on)(check)
    app.command()(export)


def check(context: typer.Context) -> None:
    """Is a history linearizable? Parquet, EDN, JSON lines, logs."""
    raise typer.Exit(run_check(context.args))


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def export(
    file: Annotated[str, typer.Argument(help="A run, latest, or a history.")] = "latest",
    format: Annotated[str, _option("edn: what Jepsen and Knossos read.")] = "edn",
    out: Annotated[Path | None, _option("Where to; else standard output.", "--out", "-o")] = None,
    keyed: Annotated[
        bool | None,
        _option("Values are \\[key value]; else if there are several keys.", "--keyed/--plain"),
    ] = None,
    nemesis: Annotated[bool, _option("With a run's faults.", "--nemesis")] = False,
    store: StoreOption = STORE,
) -> None:
    """Write a history as EDN, for Jepsen's and Knossos's own tools."""
    from shalott.harness.cli.export import export_history

    export_history(
        file, format=format, out=out, keyed=keyed, with_nemesis=nemesis, store=store,
        echo=typer.echo,
    )  # fmt: skip
