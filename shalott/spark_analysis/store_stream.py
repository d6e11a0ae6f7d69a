"""``shalott report --follow``: the report of a store to which runs are added, as they come.

Spark's Structured Streaming watches for verdicts, which the harness writes last and puts in place
by a rename, and judges the runs of each micro-batch by the same kernels as any report. The report
is written anew after each batch that brought a run. What was judged stays so when this begins
again: results are kept by run, and the stream's checkpoint is only of this call.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from shalott.core.errors import HarnessError, UsageError
from shalott.spark_analysis.engine_choice import is_elsewhere, local_path
from shalott.spark_analysis.findings import Wanted, judge_found, list_through, opened
from shalott.spark_analysis.hadoop_store import name_of, path_of
from shalott.spark_analysis.report import OUT, Draw, report_directory, write_report
from shalott.spark_analysis.report_rows import FleetReport, print_report, summary
from shalott.spark_analysis.stored_runs import RESULTS, Found, Run, find_runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "2 seconds"
_LISTED = "path string, modificationTime timestamp, length bigint, content binary"


def follow_store(
    store: str,
    out: Path | None,
    console: Console,
    wanted: Wanted,
    until: Callable[[FleetReport], bool] = lambda report: False,
    draw: Draw | None = None,
) -> FleetReport:
    """Go on until Ctrl-C, or until ``until`` says so of a report. The last report.

    Raises UsageError, HarnessError, OSError.
    """
    if wanted.engine not in ("auto", "spark"):
        raise UsageError(f"only Spark follows a store, not the engine {wanted.engine}")
    out = out or report_directory(store)
    wanted = replace(wanted, engine="spark", keep=out, log=out / "spark.log")
    with opened(wanted) as spark, tempfile.TemporaryDirectory(prefix="shalott-") as scratch:
        following = _Following(spark, local_path(store), out, console, wanted, until, draw)
        following.begin()
        query = following.stream(Path(scratch))
        try:
            following.wait(query)
        except KeyboardInterrupt:
            pass  # that is how it is ended
        finally:
            query.stop()
        return following.report


@dataclass
class _Following:
    """A report, and what it goes on with."""

    spark: SparkSession
    store: str
    out: Path
    console: Console
    wanted: Wanted
    until: Callable[[FleetReport], bool]
    draw: Draw | None
    runs: dict[str, Run] = field(default_factory=dict)
    is_over: bool = False
    report: FleetReport = field(init=False)

    def begin(self) -> None:
        try:
            found = list_through(self.spark, self.store)
        except UsageError:
            found = Found((), ())
        self.runs = {run.run: run for run in found.runs}
        self._write(found.unreadable)
        print_report(self.report, self.out, self.console)

    def stream(self, scratch: Path) -> StreamingQuery:
        """Of paths of verdicts, each told once."""
        reader = self.spark.readStream.format("binaryFile").schema(_LISTED)
        reader = reader.option("recursiveFileLookup", "true").option("pathGlobFilter", RESULTS)
        writer = reader.load(self.store).select("path").writeStream.foreachBatch(self.take)
        return (
            writer.option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def take(self, batch: DataFrame, number: int) -> None:
        """The runs of one micro-batch that are not in the report yet."""
        paths = batch.toArrow()["path"].to_pylist()
        directories = [path.rpartition("/")[0] for path in paths]
        base = self.store if is_elsewhere(self.store) else f"file:{Path(self.store).resolve()}"
        names = {name_of(directory, base): directory for directory in directories}
        visible = {
            name: directory
            for name, directory in names.items()
            if not any(part[:1] in ("_", ".") for part in name.split("/")) and OUT not in name
        }
        unreadable: list[str] = []
        came = 0
        for name, directory in visible.items():
            found = self._one(directory)
            unreadable += found.unreadable
            for run in found.runs:
                before = self.runs.get(name)
                came += before is None or before.valid != run.valid
                self.runs[name] = replace(run, run=name)
        if came:
            self._write(tuple(unreadable))
            self.console.print(Text(f"{came:,} more; {summary(self.report)}"))

    def _one(self, directory: str) -> Found:
        try:
            if is_elsewhere(self.store):
                return list_through(self.spark, directory)
            return find_runs(Path(path_of(directory)))
        except UsageError as error:
            return Found((), (str(error),))

    def _write(self, unreadable: tuple[str, ...]) -> None:
        runs = tuple(self.runs[name] for name in sorted(self.runs))
        found = judge_found(self.spark, self.store, Found(runs, unreadable), self.wanted)
        self.report = write_report(found, self.out, self.draw)
        self.is_over = self.until(self.report)

    def wait(self, query: StreamingQuery) -> None:
        """Raises HarnessError: the stream ended by itself."""
        while not self.is_over:
            if query.awaitTermination(1):
                why: object = query.exception()
                raise HarnessError(f"Spark stopped following {self.store}: {why}")
