"""What a run's files say, read leniently: runs of older and newer versions stand side by side.

Only what the table needs is declared; what else a file holds is passed over, and what it lacks has
a default that means "not said".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

PLAN, RESULTS, TAGS = "plan.json", "results.json", "tags.json"
HISTORY, RECORDING = "history.parquet", "history.jsonl"
READ = (PLAN, RESULTS, TAGS, HISTORY)  # a row is made of these


class Fault(msgspec.Struct):
    kind: str = ""


class Cluster(msgspec.Struct):
    backend: str | None = None
    nodes: list[str] | None = None


class System(msgspec.Struct):
    name: str | None = None
    profile: str | None = None
    parameters: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    bugs: list[str] = []
    services: dict[str, Any] = {}


class Workload(msgspec.Struct):
    name: str | None = None
    rate_hz: float | None = None
    concurrency: int | None = None
    parameters: dict[str, Any] = {}


class Plan(msgspec.Struct):
    name: str | None = None
    seed: int | None = None
    time_limit_ms: int | None = None
    cluster: Cluster = msgspec.field(default_factory=Cluster)
    system: System = msgspec.field(default_factory=System)
    workload: Workload = msgspec.field(default_factory=Workload)
    gates: dict[str, Any] = {}
    faults: list[Fault] = []


class Anomaly(msgspec.Struct):
    kind: str = ""
    detail: Any = None


class Result(msgspec.Struct):
    checker: str
    valid: Any = None
    counts: dict[str, Any] = {}
    anomalies: list[Anomaly] = []
    notes: list[str] = []
    detail: Any = None

    def told(self, name: str) -> Any:
        """A part of the detail; None if there is none."""
        return self.detail.get(name) if isinstance(self.detail, dict) else None


class Results(msgspec.Struct):
    name: str | None = None
    seed: int | None = None
    system: str | None = None
    profile: str | None = None
    workload: str | None = None
    started_wall_ns: int | None = None
    virtual_started_ns: int | None = None
    complete: bool | None = None
    valid: Any = None
    headline: str | None = None
    command: str | None = None
    tested: dict[str, Any] | None = None
    elapsed_ns: int | None = None
    iteration: int | None = None
    failures: list[str] = []
    results: list[Result] = []


class Unreadable(Exception):
    """One sentence: which file, and why."""


def read_json(path: Path, kind: Any) -> Any:
    """The file as ``kind``; None if there is none. Raises Unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"{path.name} can't be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path.name} can't be read: {error}") from error


LATENCIES = ("process", "type", "invoke_ns", "complete_ns", "due_ns")


def read_latencies(path: Path) -> pa.Table | None:
    """The columns of a history that latencies are told from; None if there is no history.

    Raises Unreadable. Columns beside those that are known don't matter.
    """
    try:
        with path.open("rb") as raw, pq.ParquetFile(raw) as file:  # a name may be no UTF-8
            names = [name for name in LATENCIES if name in file.schema_arrow.names]
            return file.read(columns=names)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise Unreadable(f"{path.name} can't be read: {why}") from error
