"""junit.xml and results.json: what a CI and a script read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from shalott.checkers.base import Anomaly, Result
from shalott.harness.core.errors import UsageError
from shalott.harness.report.junit import render_junit
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import RunResults, read_results, render_results
from tests.world.harness.report_run import S, example_plan

pytestmark = pytest.mark.unit

META = ReportMeta(
    command='shalott test --name "a & b"', started_wall_ns=1_700_000_000 * S, elapsed_ns=65 * S
)
VALID = Result(checker="availability", valid=True, counts={"longest-gap-ms": 12.5})
INVALID = Result(
    checker="total-queue",
    valid=False,
    counts={"lost-count": 2},
    anomalies=(Anomaly(kind="lost", summary="2 messages <gone>\x00\x1b", operations=(4, 9)),),
)
UNKNOWN = Result(checker="stats", valid="unknown", notes=("Only 3 operations were acknowledged.",))


def suite(*results: Result) -> ElementTree.Element:
    root = ElementTree.fromstring(render_junit(example_plan(), results, META))
    assert root.tag == "testsuites"
    return root[0]


def test_one_case_a_checker_and_counts_that_add_up() -> None:
    found = suite(VALID, INVALID, UNKNOWN)
    assert [case.get("name") for case in found.iter("testcase")] == [
        "availability",
        "total-queue",
        "stats",
    ]
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("3", "1", "1")
    assert found.get("time") == "65.000"
    assert found.get("timestamp") == "2023-11-14T22:13:20+00:00"


def test_invalid_fails_with_the_reason_and_the_evidence() -> None:
    (case,) = suite(INVALID).iter("testcase")
    (failure,) = case
    assert failure.tag == "failure"
    assert failure.get("message") == "2 acknowledged messages were lost."
    assert "2 messages <gone>\ufffd\ufffd [4 9]" in (failure.text or "")
    assert "lost-count = 2" in (failure.text or "")


def test_unknown_is_an_error_so_that_no_ci_shows_it_as_green() -> None:
    (case,) = suite(UNKNOWN).iter("testcase")
    assert [child.tag for child in case] == ["error"]
    assert case[0].get("message") == "Only 3 operations were acknowledged."


def test_valid_passes_and_may_still_say_something() -> None:
    (case,) = suite(VALID).iter("testcase")
    assert not len(case)
    note = Anomaly(kind="dual-master-claimed", summary="n1 and n2")
    (case,) = suite(Result(checker="mastership", valid=True, anomalies=(note,))).iter("testcase")
    assert [child.tag for child in case] == ["system-out"]


def test_thousands_of_anomalies_are_cut() -> None:
    anomalies = tuple(Anomaly(kind="lost", summary=f"run {i}") for i in range(3000))
    (case,) = suite(Result(checker="x", valid=False, anomalies=anomalies)).iter("testcase")
    assert "and 2950 more anomalies" in (case[0].text or "")


def test_the_command_is_kept_as_a_property() -> None:
    values = {p.get("name"): p.get("value") for p in suite(VALID).iter("property")}
    assert values == {"seed": "7", "command": 'shalott test --name "a & b"'}


def test_results_survive_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(render_results(example_plan(), [VALID, INVALID], META, complete=False))
    found = read_results(path)
    assert found.valid is False
    assert found.complete is False
    assert found.headline == "Invalid: 2 acknowledged messages were lost."
    assert found.results == (VALID, INVALID)
    assert msgspec.json.decode(path.read_bytes())["results"][1]["anomalies"][0]["operations"] == [
        4,
        9,
    ]


def test_a_field_of_a_later_version_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    content = msgspec.json.decode(render_results(example_plan(), [VALID], META))
    path.write_bytes(msgspec.json.encode(content | {"novel": 1}))
    assert isinstance(read_results(path), RunResults)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": "x"}', b"[1]"])
def test_what_is_no_results_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="holds no results"):
        read_results(path)
    with pytest.raises(UsageError, match="cannot read the results"):
        read_results(tmp_path / "absent.json")
