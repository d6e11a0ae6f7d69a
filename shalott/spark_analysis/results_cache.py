"""Results kept by run and by version of the kernels, so that no run is judged twice.

    <out>/kept/<kernels>/<segment>/runs.parquet      run, fingerprint
                                   <table>.parquet   the rows of these runs

A report adds one segment of all that it judged, put in place by one rename, so that a report that
is killed leaves nothing half. Many segments become one. What other kernels judged is removed when
these have judged anything. The version is a digest of all code that results come from: a change
that changes nothing costs one report of more time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.spark_analysis.kernels.tables import TABLES

RUNS_SCHEMA = pa.schema([pa.field("run", pa.string()), pa.field("fingerprint", pa.string())])
SEGMENTS_MAX = 16
Tables = Mapping[str, pa.Table]
_PACKAGE = Path(__file__).absolute().parents[1]
ROOMS = ("checkers", "core", "spark_analysis/kernels")


@dataclass(frozen=True, slots=True)
class ResultsCache:
    """Results of earlier reports, in a directory of this machine."""

    directory: Path

    @staticmethod
    def beside(out: Path) -> ResultsCache:
        return ResultsCache(out / "kept" / kernels_version())

    def read(self, wanted: Mapping[str, str]) -> tuple[Tables, frozenset[str]]:
        """Of the runs wanted (name -> fingerprint) what is known, and of which runs it is."""
        known: set[str] = set()
        pieces: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        for segment in reversed(self._segments()):  # the newest first
            try:
                runs = pq.read_table(
                    segment / "runs.parquet", schema=RUNS_SCHEMA, page_checksum_verification=True
                ).to_pylist()
                own = [r["run"] for r in runs if wanted.get(r["run"]) == r["fingerprint"]]
                own = [run for run in own if run not in known]
                found = _of_runs(segment, own) if own else {}
            except (OSError, pa.ArrowException):
                continue  # damaged: what it held is judged again
            known.update(own)
            for name, table in found.items():
                pieces[name].append(table)
        tables = {
            name: pa.concat_tables(own) if own else TABLES[name].empty_table()
            for name, own in pieces.items()
        }
        return tables, frozenset(known)

    def add(self, tables: Tables, judged: Mapping[str, str]) -> None:
        """Keep what was found of these runs. Raises OSError."""
        failed = set(tables["problems"]["run"].to_pylist())
        sound = {run: mark for run, mark in judged.items() if run not in failed}
        if not sound:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write(tables, sound)
        for other in self.directory.parent.iterdir():
            if other != self.directory:
                shutil.rmtree(other, ignore_errors=True)

    def compact(self, wanted: Mapping[str, str]) -> None:
        """Many segments become one, of the runs that there are."""
        segments = self._segments()
        if len(segments) <= SEGMENTS_MAX:
            return
        tables, known = self.read(wanted)
        self._write(tables, {run: wanted[run] for run in known})
        for segment in segments:
            shutil.rmtree(segment, ignore_errors=True)

    def _segments(self) -> list[Path]:
        """In the order in which they came."""
        if not self.directory.is_dir():
            return []
        return sorted(p for p in self.directory.iterdir() if p.name[0] not in "._")

    def _write(self, tables: Tables, runs: Mapping[str, str]) -> None:
        scratch = Path(tempfile.mkdtemp(prefix="_", dir=self.directory))
        try:
            for name, table in tables.items():
                mine = table.filter(pc.is_in(table["run"], pa.array(list(runs), pa.string())))
                if mine.num_rows:
                    pq.write_table(
                        mine,
                        scratch / f"{name}.parquet",
                        compression="zstd",
                        write_page_checksum=True,
                    )
            rows = [{"run": run, "fingerprint": mark} for run, mark in runs.items()]
            pq.write_table(
                pa.Table.from_pylist(rows, schema=RUNS_SCHEMA),
                scratch / "runs.parquet",
                write_page_checksum=True,
            )
            last = [int(p.name.partition("-")[0]) for p in self._segments()]
            number = max(last, default=0) + 1
            scratch.rename(self.directory / f"{number:08d}-{os.getpid()}")
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def _of_runs(segment: Path, runs: Sequence[str]) -> dict[str, pa.Table]:
    wanted = pa.array(runs, pa.string())
    found = {}
    for name, schema in TABLES.items():
        path = segment / f"{name}.parquet"
        if path.is_file():
            table = pq.read_table(path, schema=schema, page_checksum_verification=True)
            found[name] = table.filter(pc.is_in(table["run"], wanted))
    return found


def concatenated(some: Iterable[Tables]) -> dict[str, pa.Table]:
    """Tables of several sets of runs as one."""
    every = list(some)
    return {
        name: pa.concat_tables([schema.empty_table(), *(each[name] for each in every)])
        for name, schema in TABLES.items()
    }


@cache
def kernels_version() -> str:
    """Sixteen hexadecimal digits."""
    digest = hashlib.sha256()
    for room in (_PACKAGE / name for name in ROOMS):
        files = (*room.rglob("*.py"), *room.rglob("*.so"))
        for path in sorted(files, key=lambda path: path.relative_to(room).as_posix()):
            digest.update(path.relative_to(room).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
