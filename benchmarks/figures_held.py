"""Figure by figure: a report's files against the results.json of each run, both as they are stored.

Nothing of the report's own code reads them, but for what adds up the consumers' outcomes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.harness.fleet.page_data import PageData
from shalott.spark_analysis.consumer_counts import judged
from shalott.spark_analysis.report_rows import COMPARED
from shalott.spark_analysis.stored_runs import LOG_COUNTS

# (checker, its count) -> the key of `found` in report.json, which is absent for 0
FOUND = {
    ("elections", "election-count"): "elections",
    ("linearizability", "object-count"): "objects",
    ("linearizability", "not-linearizable-count"): "not_linearizable",
    ("linearizability", "undecided-count"): "undecided",
    ("consumer-liveness", "stuck-count"): "stuck",
    ("group-liveness", "stuck-count"): "stuck",
}
TIMES = {"longest-gap-ms": "longest_gap_ns", "recovery-ms-max": "longest_recovery_ns"}
Figure = tuple[str, Any, Any]  # what, in the report, in results.json


def figures(line: Mapping[str, Any], results: Mapping[str, Any], never: int) -> Iterator[Figure]:
    """All figures of a run that both tell. ``never``: faults in its table without recovery."""
    checkers = {one["checker"]: one for one in results["results"]}
    yield "valid", line["valid"], results["valid"]
    failed = sorted(name for name, one in checkers.items() if one["valid"] is False)
    yield "failed", sorted(line["failed"]), failed
    told: dict[str, Any] = {}
    for name in ("total-queue", "mastership"):
        told |= checkers.get(name, {}).get("counts", {})
    logs = checkers.get("log", {}).get("counts", {})
    told |= {LOG_COUNTS[name]: count for name, count in logs.items() if name in LOG_COUNTS}
    for name, count in COMPARED.items():
        if count in told:
            yield name, line["counts"][name], told[count]
    consumed = judged((one["counts"], one["detail"]) for one in results["results"])
    for name, number in consumed.items():
        yield f"consumed {name}", line["consumed"][name], number
    for (checker, count), name in FOUND.items():
        if checker in checkers:
            yield name, line["found"].get(name, 0), checkers[checker]["counts"][count]
    served = checkers["availability"]["counts"]
    for count, name in TIMES.items():
        yield name, line["found"].get(name, 0), round(served[count] * 1e6)
    yield "never recovered", never, served["never-recovered-count"]


def hold(out: Path, store: Path) -> tuple[int, list[str]]:
    """How many figures of all runs were compared, and sentences on those that differ."""
    report = json.loads((out / "report.json").read_bytes())
    faults = pq.read_table(out / "unavailability.parquet")
    faults = faults.filter(pc.equal(faults["kind"], "fault"))
    never = faults.filter(pc.is_null(faults["recovery_ns"]))["run"].to_pylist()
    compared, differing = 0, []
    for line in report["runs"]:
        results = json.loads((store / line["run"] / "results.json").read_bytes())
        for what, here, there in figures(line, results, never.count(line["run"])):
            compared += 1
            if here != there:
                differing.append(f"{line['run']}: {what} is {here} here and {there} there")
    return compared, differing


def hold_page(page: PageData, store: Path) -> tuple[int, list[str]]:
    """The same of the page's sums over all runs."""
    verdicts = {"valid": 0, "invalid": 0, "unknown": 0}
    claimed = effective = runs = 0
    for path in store.glob("*/2*/results.json"):
        results = json.loads(path.read_bytes())
        runs += 1
        word = {True: "valid", False: "invalid"}.get(results["valid"], "unknown")
        verdicts[word] += 1
        for one in results["results"]:
            if one["checker"] == "mastership":
                claimed += one["counts"]["dual-master-claimed-count"]
                effective += one["counts"]["dual-master-effective-count"]
    cells = [row.verdicts for row in page.cells.rows]
    days = [row.verdicts for row in page.days.rows.rows]
    told = [
        *((f"{word} runs", getattr(page.verdicts, word), n) for word, n in verdicts.items()),
        *((f"{word} by cell", sum(getattr(each, word) for each in cells), count)
          for word, count in verdicts.items()),
        *((f"{word} by day", sum(getattr(each, word) for each in days), count)
          for word, count in verdicts.items()),
        ("runs", page.verdicts.total, runs),
        ("claimed", sum(row.claimed for row in page.duals.rows.rows), claimed),
        ("effective", sum(row.effective for row in page.duals.rows.rows), effective),
    ]  # fmt: skip
    wrong = [f"the page: {what} is {here}, not {there}" for what, here, there in told
             if here != there]  # fmt: skip
    return len(told), wrong
