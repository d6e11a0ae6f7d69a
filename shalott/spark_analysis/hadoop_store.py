"""Finding the runs of a store that only Hadoop's file systems can read: hdfs, s3a, and others.

Spark lists the store and reads the small files; a run's verdict is cut down to what a report
compares before it comes here. What a run is, and how it is named: spark_analysis/stored_runs.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from shalott.core.errors import UsageError
from shalott.spark_analysis.kernels.tables import Row
from shalott.spark_analysis.stored_runs import (
    CUT_SHORT,
    EVENTS,
    HISTORY,
    PLAN,
    RESULTS,
    Files,
    Found,
    Run,
    Stored,
    make_run,
    read_stored,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALL = "{plan.json,results.json}"
_LARGE = "{history.parquet,events.parquet}"
_TEXTS = "path string, content binary"


def find_runs_through(spark: SparkSession, store: str) -> Found:
    """All runs under a URI, by name. Raises UsageError: there are none, or it can't be read."""
    from pyspark.errors import PySparkException

    try:
        texts = _listed(spark, store, _SMALL).select("path", "content")
        small = texts.mapInArrow(cut_down, _TEXTS).toArrow().to_pylist()
        columns = ("path", "modificationTime", "length")
        large = _listed(spark, store, _LARGE).select(*columns).toArrow().to_pylist()
        # An empty file is in no partition, so it has no row; and its name comes as a URI's.
        cut_short = frozenset(map(unquote, _listed(spark, store, CUT_SHORT).inputFiles()))
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"cannot read the store {store}: {reason}") from error
    contents = {row["path"]: row["content"] for row in small}
    return make_found(store, contents, {row["path"]: row for row in large}, cut_short)


def _listed(spark: SparkSession, store: str, names: str) -> DataFrame:
    """``recursiveFileLookup`` follows any depth."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    return reader.option("pathGlobFilter", names).load(store)


def cut_down(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: of verdicts only what is compared."""
    schema = pa.schema([("path", pa.string()), ("content", pa.binary())])
    for batch in batches:
        rows = batch.to_pylist()
        for row in rows:
            if row["path"].endswith(f"/{RESULTS}"):
                row["content"] = msgspec.json.encode(read_stored(row["content"]))
        yield from pa.Table.from_pylist(rows, schema=schema).to_batches()


def make_found(
    store: str, small: Mapping[str, bytes], large: Mapping[str, Row], cut_short: frozenset[str]
) -> Found:
    """``small``: contents by path; ``large``: times and lengths by path; ``cut_short``: paths of
    the marks of recordings that were. Raises UsageError: there are no runs."""
    runs: list[Run] = []
    unreadable: list[str] = []
    plans = sorted(path for path in small if path.endswith(f"/{PLAN}"))
    for path in plans:
        directory = path.rpartition("/")[0]
        name = name_of(directory, store)
        hidden = any(part[:1] in ("_", ".") for part in name.split("/"))
        history = large.get(f"{directory}/{HISTORY}")
        if hidden or history is None:
            continue
        events = large.get(f"{directory}/{EVENTS}")
        told = [history, *([events] if events else [])]
        files = Files(
            history=history["path"],
            events=events["path"] if events else "",
            complete=f"{directory}/{CUT_SHORT}" not in cut_short,
            size=history["length"],
            stamp=repr([(each["length"], str(each["modificationTime"])) for each in told]),
        )
        text = small.get(f"{directory}/{RESULTS}")
        stored = msgspec.json.decode(text, type=Stored | None) if text else None
        try:
            runs.append(make_run(name, files, small[path], stored))
        except msgspec.MsgspecError as error:
            unreadable.append(f"{directory} was left out: {error}")
    if not runs:
        raise UsageError(f"there is no finished run in {store}")
    return Found(tuple(runs), tuple(unreadable))


def name_of(directory: str, store: str) -> str:
    """A run's name: its directory, relative to the store; the last part if the store is a run."""
    own, base = path_of(directory), path_of(store.rstrip("/"))
    return own.rpartition("/")[2] if own == base else own[len(base) :].strip("/")


def path_of(uri: str) -> str:
    """Without scheme and authority: "s3a://bucket/a" is "/a"."""
    path = uri.partition(":")[2]
    return "/" + path[2:].partition("/")[2] if path.startswith("//") else path
