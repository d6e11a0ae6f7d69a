"""The pytest plug-in as a developer meets it: what fails says why, and in how many lines."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shalott.core.errors import MissingHere, UsageError
from shalott.core.plan import load_plan
from shalott.harness.run.request import Request
from shalott.harness.run.run import Outcome
from shalott.harness.testing import from_pytest
from shalott.harness.testing.from_pytest import OptionValue, nemeses_named, read_options
from shalott.harness.testing.pytest_plugin import Run
from tests.world.harness.memory import Trap
from tests.world.harness.memory_cli import install

pytest_plugins = "pytester"
pytestmark = pytest.mark.explore

# Whether the installed entry point is there or not, the plug-in is this tree's.
OURS = ("-p", "shalott.harness.testing.pytest_plugin", "-p", "no:shalott", "-q")
ROOT = Path(__file__).parents[3]
MEMORY = (
    "MEMORY = dict(system='memory', workload='memory', nemesis='none', seed=5, rate=1000,"
    " time_limit='500ms', min_acked=1)\n"
)
RUN = "shalott.run(**MEMORY)"
Project = Callable[..., pytest.RunResult]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """pytest over one test file of a project that makes errors of warnings, whose runs are in the
    world in memory."""

    def run(
        body: str, *arguments: str, trap: Trap | None = None, ini: str = ""
    ) -> pytest.RunResult:
        install(trap or Trap(), monkeypatch.setattr)
        pytester.makeini(f"[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n{ini}")
        pytester.makepyfile(test_it=f"import pytest\n{MEMORY}{body}")
        return pytester.runpytest_inprocess(*OURS, *arguments, no_reraise_ctrlc=True)

    return run


def test_a_valid_run_passes_and_its_properties_are_in_the_junit_file(
    project: Project, pytester: pytest.Pytester
) -> None:
    body = f"def test_x(shalott):\n    {RUN}.assert_valid()\n    {RUN}.assert_valid()\n"
    done = project(body, "--junit-xml=out.xml", "--shalott-store=kept")
    done.assert_outcomes(passed=1)
    assert "shalott" not in done.stdout.str()
    case = ET.parse(pytester.path / "out.xml").getroot().find(".//testcase")
    assert case is not None
    told = {each.get("name"): str(each.get("value")) for each in case.iter("property")}
    runs = [Path(told["shalott-run"]), Path(told["shalott-run-2"])]
    assert [run.parent for run in runs] == [pytester.path / "kept" / "test_x"] * 2
    assert load_plan(runs[0] / "plan.json").seed == 5
    assert (told["shalott-seed"], told["shalott-valid"]) == ("5", "True")
    assert told["shalott-repeat"].startswith("shalott test --workload memory")
    assert told["shalott-repeat"].endswith(f"--seed 5 --store {pytester.path / 'kept'}")


def test_a_wrong_verdict_shows_headline_anomalies_and_report_and_no_traceback(
    project: Project, pytester: pytest.Pytester
) -> None:
    body = f"def test_x(shalott):\n    {RUN}.assert_valid()\n"
    done = project(body, "--basetemp=temporary", trap=Trap(lose_every=10))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*_ test_x _*",
            "Invalid: * acknowledged messages were lost*",
            "*- shalott -*",
            "Invalid: * acknowledged messages were lost*",
            "  total-queue: * acknowledged messages were lost*",
            f"Report: {pytester.path}/temporary/shalott/test_x/*/report.html",
            "Repeat: shalott test *--seed 5*",
            "FAILED test_it.py::test_x - shalott.WrongVerdict: Invalid: *",
        ]
    )
    shown = done.stdout.str()
    assert not [word for word in ("Traceback", "def test_x", "Captured", "INFO") if word in shown]


def test_what_is_to_be_invalid_is_so_for_the_right_reason(project: Project) -> None:
    body = (
        f"def test_other(shalott):\n    run = {RUN}\n    run.assert_invalid()\n"
        "    run.assert_invalid('lost')\n"
        "    assert run.valid is False and run.anomalies['lost'] > 1\n"
        "    run.assert_invalid('lost', 'diverged')\n"
        f"def test_own_assertion(shalott):\n    run = {RUN}\n    assert run.valid\n"
    )
    done = project(body, trap=Trap(lose_every=10))
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["not invalid with lost and diverged (found: lost): Invalid: *"])
    done.stdout.fnmatch_lines(["*assert run.valid", "*- shalott -*", "Report: *"])
    valid = project(f"def test_x(shalott):\n    {RUN}.assert_invalid('lost')\n")
    valid.stdout.fnmatch_lines(["not invalid with lost: Valid: *"])


def test_unknown_is_neither_and_neither_is_a_failure_of_the_harness(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        f"def test_valid(shalott):\n    {RUN}.assert_valid()\n"
        f"def test_invalid(shalott):\n    run = {RUN}\n"
        "    assert run.valid == 'unknown'\n    run.assert_invalid()\n"
    )
    failed = project(body, trap=Trap(crash="heal", lose_every=10))
    failed.assert_outcomes(failed=2)
    failed.stdout.fnmatch_lines(["Unknown: the harness failed, which is no verdict: *planted*"])

    def doubt(results: object) -> str:
        return "Unknown: Too few operations prove nothing."

    def ended(outcome: Outcome, seed: int, command: str) -> Run:
        return judged(dataclasses.replace(outcome, valid="unknown"), seed, command)

    judged = from_pytest._ended
    monkeypatch.setattr(from_pytest, "headline", doubt)
    monkeypatch.setattr(from_pytest, "_ended", ended)
    done = project(body)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["Unknown: Too few operations prove nothing."])
    done.stdout.fnmatch_lines(["not invalid: Unknown: Too few operations prove nothing."])


def test_a_refusal_is_one_sentence(project: Project) -> None:
    body = (
        "def test_system(shalott):\n    shalott.run(system='nats', nemesis='none')\n"
        "def test_option(shalott):\n    shalott.run(fire=True)\n"
        "def test_value(shalott):\n    shalott.run(rate='fast')\n"
        "def test_junit(shalott):\n    shalott.run(junit='out.xml')\n"
        "def test_plan(shalott):\n    shalott.run(plan='no.json', seed=3)\n"
        "@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio'])\n"
        "async def test_loop(shalott):\n    shalott.run(**MEMORY)\n"
        "@pytest.mark.shalott_nemeses('fire')\ndef test_caught(shalott):\n    pass\n"
    )
    done = project(body.replace("@pytest.mark.shalott_nemeses('fire')\n", ""))
    done.assert_outcomes(failed=6, passed=1)
    shown = done.stdout.str()
    for sentence in (
        "unknown system nats: choose one of",
        "No such option: --fire",
        "Invalid value for '--rate'",
        "shalott.run takes no junit: pytest writes it with --junit-xml",
        "a plan says all of a run: leave out seed",
        "write the test as a plain function, without async",
    ):
        assert f"\n{sentence}" in shown or sentence in shown, shown
    assert "Traceback" not in shown and "def test_" not in shown
    marked = project(body)
    marked.assert_outcomes(errors=1)
    assert "shalott_nemeses: unknown nemesis fire: choose one of partition" in marked.stdout.str()


def test_nemeses_and_worlds_are_in_the_ids(project: Project) -> None:
    body = (
        "@pytest.mark.shalott_nemeses('partition-*', 'kill')\n"
        "def test_faults(shalott, shalott_nemesis): print(shalott_nemesis)\n"
        "@pytest.mark.shalott_world('sim', 'docker')\n"
        "def test_worlds(shalott): ...\n"
        "def test_plain(shalott): ...\n"
        "@pytest.mark.parametrize('shalott_cluster', ['local'])\n"
        "def test_own(shalott): ...\n"
    )
    listed = project(body, "--collect-only").stdout.str()
    for name in ("faults[partition-halves]", "faults[kill]", "worlds[sim]", "plain", "own[local]"):
        assert f"::test_{name}\n" in listed
    project(body, "-k", "partition-halves").assert_outcomes(passed=1, deselected=11)
    partitions = project(body, "-k", "partition").parseoutcomes()
    assert partitions["passed"] == 7
    only = project(body, "--shalott-cluster=docker", "-rs", "-k", "worlds")
    only.assert_outcomes(passed=1, skipped=1, deselected=10)
    only.stdout.fnmatch_lines(["SKIPPED*--shalott-cluster is docker"])
    both = project(body, "--shalott-cluster=sim,local", "--collect-only", "-k", "plain")
    both.stdout.fnmatch_lines(["*test_plain[[]sim[]]", "*test_plain[[]local[]]"])


def test_marks_reach_the_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    x = "test_x-sim-kill-partition"
    asked: list[Mapping[str, OptionValue]] = []

    def read(options: Mapping[str, OptionValue]) -> None:
        asked.append(options)
        raise UsageError("enough")

    monkeypatch.setattr(from_pytest, "read_options", read)
    project(
        "@pytest.mark.shalott_world('sim')\n@pytest.mark.shalott_nemeses('kill,partition')\n"
        "def test_x(shalott): shalott.run(seed=3)\n"
        "@pytest.mark.shalott_world('sim')\ndef test_y(shalott): shalott.run(cluster='local')\n"
    )
    assert asked == [
        {
            "name": x,
            "cluster": "sim",
            "nemesis": "kill,partition",
            "seed": 3,
        },
        {"name": "test_y-sim", "cluster": "local"},
    ]


@pytest.mark.parametrize(
    ("ini", "required", "outcome"),
    [("", "", "skipped"), ("shalott_missing = fail\n", "", "failed"), ("", "1", "failed")],
)
def test_a_world_that_is_missing_here_skips_or_fails(
    project: Project, monkeypatch: pytest.MonkeyPatch, ini: str, required: str, outcome: str
) -> None:
    def refuse(request: Request, test_count: int, seed: int) -> None:
        raise MissingHere(f"cluster {request.cluster} can't be used: no engine")

    body = f"def test_x(shalott):\n    {RUN}\n"
    monkeypatch.setenv("SHALOTT_REQUIRE_WORLDS", required)
    monkeypatch.setattr("shalott.harness.run.session._check_and_choose", refuse)
    done = project(body, "-rsf", ini=ini)
    done.assert_outcomes(**{outcome: 1})
    done.stdout.fnmatch_lines(["*luster * can't be used: no engine*"])


def test_a_plan_runs_as_a_file_and_as_data(project: Project, pytester: pytest.Pytester) -> None:
    body = (
        "from pathlib import Path\nfrom shalott.core.plan import load_plan\n"
        f"def test_x(shalott):\n    first = {RUN}\n    plan = first.directory / 'plan.json'\n"
        "    shalott.run(plan=plan).assert_valid()\n"
        "    again = shalott.run(plan=load_plan(plan), tag={'night': 7})\n"
        "    assert again.seed == 5 and '--plan' in again.command\n"
        "    stored = Path(again.command.split('--plan ')[1].split()[0])\n"
        "    assert load_plan(stored) == load_plan(plan)\n"
    )
    project(body).assert_outcomes(passed=1)


def test_an_interrupted_run_is_torn_down_and_ends_the_session(project: Project) -> None:
    body = (
        "import os, signal, threading, time\n"
        "def interrupt(runs):\n"
        "    while not any(b'\"load\"' in file.read_bytes().replace(b'\\\\', b'')\n"
        "                  for file in runs.rglob('history.jsonl')):\n"
        "        time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "def test_x(shalott, tmp_path_factory):\n"
        "    runs = tmp_path_factory.getbasetemp()\n"
        "    threading.Thread(target=interrupt, args=(runs,), daemon=True).start()\n"
        "    shalott.run(**MEMORY | {'time_limit': '60s'})\n"
        "def test_y(shalott): ...\n"
    )
    done = project(body, "-s")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert "Stopping: faults are healed, logs collected, nodes torn down." in done.stderr.str()


def test_options_are_those_of_the_command() -> None:
    options: dict[str, OptionValue] = {
        "system": "mirrored", "nodes": 5, "nemesis": ["kill", "pause"], "time_limit": 30,
        "rate": 50, "policy": {"ha-sync-mode": "automatic", "ha-params": 2}, "seed": None,
        "durable": False, "leave_db_running": False, "ssh_user": "me", "tag": {"a": 1},
        "bug": ("one", "two"), "body_bytes": 64,
    }  # fmt: skip
    request, series = read_options(options)
    assert request == Request(
        nodes="5",
        nemesis="kill,pause",
        time_limit="30",
        rate=50.0,
        policy=("ha-sync-mode=automatic", "ha-params=2"),
        bug=("one", "two"),
        ssh=request.ssh,
        given=request.given,
    )
    assert request.ssh.user == "me"
    assert dict(request.given) == {"durable": False, "body-bytes": "64"}
    assert series.tag == ("a=1",)
    assert read_options({})[0] == Request()


def test_patterns_name_nemeses() -> None:
    assert "partition-halves" in nemeses_named(["partition-*"])
    assert nemeses_named(["kill,pause", "kill"]) == ("kill,pause", "kill")
    assert "kill" in nemeses_named([])
    with pytest.raises(UsageError, match="unknown nemesis fire"):
        nemeses_named(["kill,fire"])


@pytest.mark.explore
def test_a_project_that_does_not_use_it_loads_nothing_heavy() -> None:
    told = (
        "import sys, pytest; before = {*sys.modules}; import shalott.harness.testing.pytest_plugin;"
        " print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", told],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    own = ("", ".core", ".core.errors", ".harness", ".harness.testing")
    ours = [f"shalott{name}" for name in (*own, ".harness.testing.pytest_plugin")]
    assert done.stdout.split() == ours
