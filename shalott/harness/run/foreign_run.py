"""A test that another harness ran, as a run: what its report draws, and as a directory of ours.

The plan says what is known: names, nodes, clients. The system is ``unknown``, and nothing can be
run again. What the other's checkers said are the results, a result each.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from pathlib import Path

from shalott.checkers.checker import Result
from shalott.checkers.history.column_values import Keyword
from shalott.checkers.reading.edn import EdnMap, encode
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.history_files import file_of
from shalott.checkers.reading.jepsen_store import StoredTest, is_store, read_store
from shalott.checkers.reading.run_rows import rows_of_entries
from shalott.core.history import EMPTY_EVENTS, History
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.report_page import render_report
from shalott.harness.report.results import render_results
from shalott.harness.run.store import PLAN, RunDirectory

UNKNOWN = "unknown"
_FORMATS = ("%Y%m%dT%H%M%S.%fZ", "%Y%m%dT%H%M%S.%f%z", "%Y%m%dT%H%M%S%z", "%Y%m%dT%H%M%SZ")
_SHOWN = 2000  # characters of what a checker said


def report_of_store(directory: Path) -> str:
    """The page of a directory of Jepsen's or Maelstrom's store. Raises UnreadableHistory."""
    source = EntrySource.of_path(file_of(directory))
    plan, history, results, meta = _run_of(directory, source)
    return render_report(plan, history, results, meta)


def write_run(out: Path, directory: Path, source: EntrySource) -> None:
    """A run's directory with plan, history, results and page. Raises OSError, StoreError."""
    plan, history, results, meta = _run_of(directory, source)
    out.mkdir(parents=True, exist_ok=True)
    run = RunDirectory(out)
    run.save_plan(plan)
    run.save_history(history)
    complete = history.complete
    run.save_bytes("results.json", render_results(plan, results, meta, complete=complete))
    run.save_text("report.html", render_report(plan, history, results, meta))


def map_and_results(directory: Path) -> tuple[EdnMap, EdnMap | None]:
    """The map and the results of a test, for who writes a store of Jepsen's."""
    if is_store(directory):
        stored = read_store(directory)
        return stored.map, stored.results
    where = directory.resolve()
    told: dict[str, Hashable] = {"name": where.parent.name, "start-time": where.name}
    if (where / PLAN).is_file():
        plan = RunDirectory(where).load_plan()
        told |= {
            "name": plan.name,
            "nodes": plan.cluster.nodes,
            "workload": plan.workload.name,
            "concurrency": plan.workload.concurrency,
            "time-limit": plan.time_limit_ms / 1000,
        }
    return EdnMap({Keyword(name): value for name, value in told.items()}), None


def _run_of(
    directory: Path, source: EntrySource
) -> tuple[Plan, History, tuple[Result, ...], ReportMeta]:
    test = read_store(directory)
    rows = rows_of_entries(source.maps(), test.nodes)
    history = History(rows, EMPTY_EVENTS, complete=not source.cut)
    results = _results(test.results)
    meta = ReportMeta(
        command=f"none: {test.name} was not run by this harness",
        started_wall_ns=_wall_ns(test.started),
        notes=(f"read from {source.name}, which another harness left", *source.notes),
    )
    return _plan(test, history), history, results, meta


def _plan(test: StoredTest, history: History) -> Plan:
    last = history.ops["invoke_ns"].to_numpy()
    lasted_ms = int(last.max() / 1e6) if len(last) else 0
    return Plan(
        name=test.name or UNKNOWN,
        seed=0,
        time_limit_ms=int(test.time_limit_s * 1000) or lasted_ms,
        cluster=ClusterPlan(backend=UNKNOWN, nodes=test.nodes),
        system=SystemPlan(name=test.name or UNKNOWN, profile=UNKNOWN),
        workload=WorkloadPlan(name=test.workload, rate_hz=0.0, concurrency=test.concurrency),
        gates=GatePlan(),
        faults=(),
    )


def _results(told: EdnMap | None) -> tuple[Result, ...]:
    """Each checker that said whether the history is valid; the whole, if none did by itself."""
    if told is None:
        return (
            Result(
                checker="stored", valid=UNKNOWN, notes=("No checker of its own said anything.",)
            ),
        )
    found = tuple(
        Result(checker=str(name), valid=_valid(each), notes=(_shown(each),))
        for name, each in told.items()
        if isinstance(each, EdnMap) and "valid?" in each
    )
    return found or (Result(checker="stored", valid=_valid(told), notes=(_shown(told),)),)


def _valid(told: EdnMap) -> bool | str:
    valid = told.get("valid?")
    return valid if isinstance(valid, bool) else UNKNOWN


def _shown(told: EdnMap) -> str:
    text = encode(told)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _wall_ns(started: str) -> int:
    for form in _FORMATS:
        try:
            moment = datetime.strptime(started, form)  # noqa: DTZ007 -- where it says no zone: UTC
        except ValueError:
            continue
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)
    return 0
