"""``shalott report``: its flags, as the report wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from shalott.checkers.reading.jepsen_store import is_store
from shalott.core.errors import UsageError
from shalott.harness.fleet.page_builder import page_writer
from shalott.harness.run.foreign_run import report_of_store
from shalott.spark_analysis.engine_choice import is_elsewhere
from shalott.spark_analysis.findings import Wanted, settings_of
from shalott.spark_analysis.report import run_report
from shalott.spark_analysis.store_stream import follow_store

_SPARK = "Spark"
EngineOption = Annotated[
    str,
    typer.Option(help="auto; local: worker processes; spark, or sql on Spark, which need Java 17."),
]
MasterOption = Annotated[
    str, typer.Option(help="Where Spark runs: spark://host:7077, yarn.", rich_help_panel=_SPARK)
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="KEY=VALUE of Spark or Hadoop.", rich_help_panel=_SPARK),
]
PackagesOption = Annotated[
    str, typer.Option(help="Maven coordinates, as spark-submit's.", rich_help_panel=_SPARK)
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on as runs come, until Ctrl-C.", rich_help_panel=_SPARK)
]


def add_commands(app: typer.Typer) -> None:
    app.command()(report)


def report(
    store: Annotated[
        str, typer.Argument(help="A store, a directory in it, or a URI: s3a://, hdfs://.")
    ] = "store",
    out: Annotated[Path | None, typer.Option(help="Where to; else STORE/_report.")] = None,
    engine: EngineOption = "auto",
    master: MasterOption = "",
    conf: ConfOption = None,
    packages: PackagesOption = "",
    follow: FollowOption = False,
    rows: Annotated[int, typer.Option(help="Of each list in index.html at most so many.")] = 25,
) -> None:
    """Read any number of stored runs: what was lost, doubled, out of order, away, and for how long.

    Writes tables, report.json, and a page: index.html. What was judged once is not judged again.
    By worker processes, which need no Java, or on Spark. A test of Jepsen's gets a report.html.
    """
    if not is_elsewhere(store) and not store.startswith("file:") and not Path(store).is_dir():
        raise UsageError(f"there is no store {store}: run `shalott test` first, or name its place")
    wanted = Wanted(
        engine=engine, master=master, conf=settings_of(conf or ()),
        packages=tuple(filter(None, packages.split(","))),
    )  # fmt: skip
    if is_store(Path(store)):
        page = (out or Path(store)) / "report.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(report_of_store(Path(store)), encoding="utf-8")
        typer.echo(f"{page} is written")
        return
    draw = page_writer(rows)
    if follow:
        follow_store(store, out, Console(), wanted, draw=draw)
        return
    run_report(store, out, Console(), wanted, draw)
