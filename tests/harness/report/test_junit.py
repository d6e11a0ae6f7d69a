"""junit.xml and results.json: what a CI and a script read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.harness.report.junit import (
    NOT_ENDED,
    combine,
    render_junit,
    render_refusal,
    render_unended,
)
from shalott.harness.report.meta import ReportMeta, Tested
from shalott.harness.report.results import RunResults, read_results, render_results
from tests.harness.report.junit_schema import faults_of
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
    document = render_junit(example_plan(), results, META)
    assert faults_of(document) == []
    return ElementTree.fromstring(document)[0]


def test_one_case_a_checker_and_counts_that_add_up() -> None:
    found = suite(VALID, INVALID, UNKNOWN)
    run = "(queue, nemesis kill+partition-halves+partition-isolate-master+pause, seed 7"
    assert [case.get("name") for case in found.iter("testcase")] == [
        f"availability {run}, iteration 1)",
        f"total-queue {run}, iteration 1)",
        f"stats {run}, iteration 1)",
    ]
    assert {case.get("classname") for case in found.iter("testcase")} == {
        "shalott.mirrored.upstream.docker"
    }
    assert {case.get("time") for case in found.iter("testcase")} == {"65.000"}
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("3", "1", "1")
    assert found.get("time") == "65.000"
    assert found.get("timestamp") == "2023-11-14T22:13:20"


def test_no_two_cases_of_a_matrix_of_runs_have_one_name() -> None:
    plan, other = example_plan(), FaultAction(id=1, at_ms=1, duration_ms=1, kind="wipe")
    replace = msgspec.structs.replace
    plans = [
        plan,
        replace(plan, seed=8),
        replace(plan, faults=(other,)),
        replace(plan, faults=()),
        replace(plan, cluster=replace(plan.cluster, backend="sim")),
        replace(plan, system=replace(plan.system, profile="safe")),
        replace(plan, workload=replace(plan.workload, name="fifo")),
    ]
    documents = [render_junit(each, [VALID, UNKNOWN], META) for each in plans]
    documents.append(render_junit(plan, [VALID, UNKNOWN], replace(META, iteration=2)))
    assert faults_of(combine(documents)) == []
    assert faults_of(combine([*documents, documents[0]])), "equal ones are told"


def test_a_run_without_a_verdict_is_an_error_and_no_absence() -> None:
    document = render_unended(example_plan(), META)
    assert faults_of(document) == []
    (error,) = ElementTree.fromstring(document).iter("error")
    assert error.get("message") == NOT_ENDED
    judged = render_junit(example_plan(), [VALID], META)
    unjudged = [case.get("classname") for case in ElementTree.fromstring(document).iter("testcase")]
    assert unjudged == [
        case.get("classname") for case in ElementTree.fromstring(judged).iter("testcase")
    ]


def test_a_refused_command_is_an_error_with_its_sentence() -> None:
    document = render_refusal("shalott test --rate 0", 0, "The rate must be above 0")
    assert faults_of(document) == []
    root = ElementTree.fromstring(document)
    (error,) = root.iter("error")
    assert (error.get("message"), root.get("errors")) == ("The rate must be above 0", "1")


def test_what_the_harness_failed_at_is_an_error_even_if_every_checker_is_content() -> None:
    failed = msgspec.structs.replace(META, failures=("tearing down: timeout", "more"))
    document = render_junit(example_plan(), [VALID], failed)
    assert faults_of(document) == []
    root = ElementTree.fromstring(document)
    assert (root.get("errors"), root.get("failures"), root.get("tests")) == ("2", "0", "3")
    messages = [each.get("message") for each in root.iter("error")]
    assert messages[0] == "The harness failed: tearing down: timeout"


def test_the_time_of_several_runs_is_their_sum() -> None:
    document = render_junit(example_plan(), [VALID], META)
    assert ElementTree.fromstring(combine([document, document])).get("time") == "130.000"


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


def test_what_was_tested_is_kept_and_what_is_not_known_says_why(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    tested = Tested(commit="abc", packages={"rabbitmq-server": "3.10.8"}, engine="none: why")
    meta = msgspec.structs.replace(META, tested=tested)
    path.write_bytes(render_results(example_plan(), [VALID], meta))
    found = read_results(path)
    assert (found.tested, found.elapsed_ns) == (tested, 65 * S)
    assert all(msgspec.structs.asdict(Tested())[name] for name in ("commit", "image", "engine"))


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
