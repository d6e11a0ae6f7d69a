"""What a run shows of a row's bug, by verdicts and logs that were made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.harness.originals.evidence import Look, look_at, most_lines
from shalott.harness.originals.row import Lines, Row, Setup, Shows
from shalott.harness.report.results import RunResults

pytestmark = pytest.mark.unit

ROW = Row(
    id="KB-RKT-17", setup=Setup(replication="controller"), shows=Shows(anomalies=("lost-write",)),
    run_on="5.3.3",
)  # fmt: skip
LOST = Result(
    checker="log", valid=False, counts={"lost-write-count": 7, "acked-count": 90},
    anomalies=(Anomaly(kind="lost-write", summary="7 lost", detail={"at_ns": 12_400_000_000}),),
)  # fmt: skip
STALLED = Result(checker="stalls", valid="unknown")


def verdict(*results: Result, complete: bool = True, failures: tuple[str, ...] = ()) -> RunResults:
    invalid = any(result.valid is False for result in results)
    return RunResults(
        name="a-run", seed=3, system="rocketmq", profile="upstream", workload="log",
        started_wall_ns=0, complete=complete, valid=not invalid, headline="", command="",
        elapsed_ns=61_000_000_000, failures=failures, results=results,
    )  # fmt: skip


def look(results: RunResults, row: Row = ROW, directory: Path | None = None) -> Look:
    return look_at(row, "with", "5.3.3", results, directory, load=1.239)


def test_an_anomaly_that_is_wanted_is_a_find_with_its_numbers() -> None:
    found = look(verdict(LOST))
    assert (found.found, found.void, found.classes) == (True, "", ("lost-write",))
    assert found.counts == {"lost-write-count": 7, "acked-count": 90}
    assert (found.first_s, found.elapsed_s, found.load) == (12.4, 61.0, 1.24)


def test_another_anomaly_is_none() -> None:
    other = Result(
        checker="log", valid=False, anomalies=(Anomaly(kind="reordered", summary="2 reordered"),)
    )
    found = look(verdict(other))
    assert (found.found, found.void, found.classes) == (False, "", ("reordered",))


def test_a_remark_of_a_valid_checker_is_no_find() -> None:
    assert not look(verdict(msgspec.structs.replace(LOST, valid=True))).found


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (verdict(LOST, failures=("boot failed",)), "the harness failed: boot failed"),
        (verdict(LOST, complete=False), "the recording was cut short"),
        (verdict(STALLED), "saw too little: stalls"),
    ],
)
def test_a_run_that_saw_too_little_is_void(results: RunResults, reason: str) -> None:
    assert look(results).void == reason


def test_what_was_found_in_spite_of_stalls_was_found() -> None:
    found = look(verdict(LOST, STALLED))
    assert (found.found, found.void) == (True, "")


@pytest.mark.parametrize(("wanted", "void"), [("lost-write", ""), ("stuck", "liveness")])
def test_who_sees_too_little_matters_to_what_is_looked_for(wanted: str, void: str) -> None:
    """A slave that never comes back is no reason to doubt that every message was read."""
    row = Row(
        id="KB-X", setup=Setup(replication="controller"), shows=Shows(anomalies=(wanted,)),
        run_on="5.3.3",
    )  # fmt: skip
    unsettled = Result(checker="liveness", valid="unknown")
    assert look(verdict(unsettled), row).void == (f"saw too little: {void}" if void else "")


@pytest.mark.parametrize(
    ("line", "is_found"), [("slave fall behind master -76bytes", True), ("all is well", False)]
)
def test_an_anomaly_may_need_a_line_of_a_log_as_well(
    tmp_path: Path, line: str, is_found: bool
) -> None:
    """Without the line it has another reason; the line alone is nothing."""
    logs = tmp_path / "nodes" / "n1" / "log"
    logs.mkdir(parents=True)
    (logs / "broker.log").write_text(f"2026-01-01 {line}\n")
    shows = Shows(anomalies=("lost-write",), with_line=Lines(pattern=r"behind master -\d+bytes"))
    row = replace(ROW, shows=shows)
    assert look(verdict(LOST), row, tmp_path).found is is_found
    assert not look(verdict(), row, tmp_path).found


def test_ours_may_call_it_otherwise() -> None:
    assert not look_at(ROW, "ours-on", "controller", verdict(), None, 0.0).found
    assert look_at(ROW, "ours-on", "controller", verdict(LOST), None, 0.0).found


def test_lines_of_the_wanted_services_log_are_counted_by_node(tmp_path: Path) -> None:
    for node, service, text in (
        ("n1", "broker", "a REPEATED_PUSH\nb\nc REPEATED_PUSH\n"),
        ("n2", "broker", "one REPEATED_PUSH\n"),
        ("n3", "nameserver", "REPEATED_PUSH\n" * 9),
    ):
        log = tmp_path / "nodes" / node / "log" / f"{service}.log"
        log.parent.mkdir(parents=True)
        log.write_text(text)
    lines = Lines(pattern="REPEATED_PUSH", least=2)
    assert most_lines(lines, tmp_path) == 2
    row = Row(id="KB-DL-15", setup=Setup(replication="dledger"), shows=Shows(lines=lines))
    assert look(verdict(), row, tmp_path).found
    lines = msgspec.json.decode(msgspec.json.encode({"pattern": "REPEATED_PUSH", "least": 3}))
    row = Row(id="KB-DL-15", setup=Setup(replication="dledger"), shows=Shows(lines=Lines(**lines)))
    assert not look(verdict(), row, tmp_path).found
