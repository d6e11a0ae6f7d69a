"""The command line: exit codes, one clear sentence for every mistake, and an orderly end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.core.errors import HarnessError
from shalott.core.plan import load_plan
from shalott.core.recording import recover
from shalott.harness.cli.main import run_command
from shalott.harness.report.results import read_results
from shalott.harness.run.backends import Choice
from tests.world.harness.memory import Trap
from tests.world.harness.memory_cli import install

pytestmark = pytest.mark.unit

MEMORY = (
    "test", "--workload", "memory", "--system", "memory", "--nemesis", "none", "--seed", "5",
    "--rate", "1000",
)  # fmt: skip
SHORT = ("--time-limit", "500ms", "--min-acked", "1")
"""Long enough for an operation, whatever else the machine does."""
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Done:
    """A command that has ended, and what the world in memory saw of it."""

    returncode: int
    stdout: str
    stderr: str
    calls: list[str]


class Shalott:
    """Runs commands in this process, in an empty directory, in the world in memory."""

    def __init__(
        self, cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(cwd)
        self._patch = monkeypatch.setattr
        self._capsys = capsys

    def __call__(self, arguments: Sequence[str], trap: Trap | None = None) -> Done:
        memory = install(trap or Trap(), self._patch)
        self._capsys.readouterr()
        code = run_command(arguments)
        out, err = self._capsys.readouterr()
        return Done(code, out, err, memory.cluster.calls)


@pytest.fixture
def shalott(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shalott:
    return Shalott(tmp_path, monkeypatch, capsys)


def start(cwd: Path) -> subprocess.Popen[str]:
    """A long run as a process of its own; returns when its load has begun."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.world.harness.memory_cli", *MEMORY, "--time-limit", "60"],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("load"):
            break
    return child


def latest(cwd: Path) -> Path:
    return (cwd / "store" / "latest").resolve()


MISTAKES = [
    (
        ["test", "--workload", "stack"],
        "unknown workload stack: choose one of consume, elections,",
    ),
    (
        ["test", "--workload", "lock", "--ack-mode", "auto"],
        "--ack-mode is a parameter of fifo and queue, not of the workload lock",
    ),
    (["test", "--workload", "lock", "--hold", "never"], "--hold never: give a time above 0"),
    (
        ["test", "-w", "fifo", "--order", "some"],
        "unknown --order some: choose one of",
    ),
    (["test", "-w", "fifo", "--consumers", "2"], "unknown --consumers 2: choose one of competing"),
    (["test", "-w", "metadata", "--reads", "dirty"], "unknown --reads dirty: choose one of leader"),
    (
        ["test", "-w", "metadata", "--objects", "user"],
        "unknown --objects user: choose one of",
    ),
    (["test", "-w", "metadata", "--system", "rabbitmq"], "rabbitmq has no reads that the leader"),
    (
        ["test", "--system", "kafka"],
        "unknown system kafka: choose one of compose, controller, dledger",
    ),
    (["test", "--nemesis", "partition,meteor"], "unknown nemesis meteor: choose one of partition"),
    (["test", "--profile", "brave"], "unknown profile brave: choose one of upstream, safe"),
    (["test", "--cluster", "cloud"], "unknown cluster cloud: choose one of auto, docker, local"),
    (["test", "--partition-mode", "x"], "unknown --partition-mode x: choose one of ignore"),
    (["test", "--delivery", "maybe"], "unknown delivery maybe: choose one of at-least-once"),
    (["test", "--operator", "bob"], "unknown --operator bob: choose one of restart-minority, none"),
    (["test", "--targets", "n9"], "unknown target n9"),
    (["test", "--nodes", "n1,n1"], "nodes with different names"),
    (["test", "--nodes", "N 1"], "can't name a node"),
    (["test", "--nodes", "0"], "at least one node"),
    (["test", "--concurrency", "2x"], "give a number of clients, such as 6 or 2n"),
    (["test", "--concurrency", "2"], "use at least 3, or 1n"),
    (["test", "--rate", "0"], "the rate must be above 0"),
    (["test", "--rate", "fast"], "--rate"),
    (["test", "--time-limit", "soon"], "--time-limit soon: give a time above 0"),
    (["test", "--time-limit", "3"], "leaves no room for a fault"),
    (["test", "--policy", "ha-mode"], "give KEY=VALUE"),
    (["test", "--body-bytes", "4"], "--body-bytes 4: expected `int` >= 12"),
    (["test", "--max-rto", "never"], "--max-rto never"),
    (["test", "--test-count", "0"], "give 1 or more"),
    (["test", "--name", "../x", "--nemesis", "none"], "can't name a run"),
    (["test", "--frobnicate"], "No such option: --frobnicate"),
    (["test", "--plan", "missing.json"], "cannot read the plan missing.json"),
    (["frobnicate"], "No such command 'frobnicate'"),
    (["analyze"], "there is no run yet in store"),
    (["analyze", "x"], "there is no run x in store"),
    (["report", "nowhere"], "there is no store nowhere"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_one_sentence_and_254(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "shalott.harness.run.backends.choose_backend", lambda *_: Choice("local", "a test")
    )
    # Whether an engine listens here is no matter of what was typed.
    monkeypatch.setattr("shalott.harness.run.request._check_engine", lambda request: None)
    assert run_command(arguments) == 254
    told = capsys.readouterr().err.splitlines()
    assert sentence in told[-1]
    assert told[-1].startswith("shalott: ")
    assert len([line for line in told if line.startswith("shalott: ")]) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "is not a plan: Input data was truncated"),
        (b"[]", "is not a plan: Expected `object`, got `array`"),
        (b'{"name": "x"}', "is not a plan: Object missing required field"),
        (b'{"name": "x", "colour": 1}', "is not a plan"),
    ],
)
def test_a_malformed_plan_is_refused_with_the_reason(
    content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    assert run_command(["test", "--plan", str(path)]) == 254
    assert sentence in capsys.readouterr().err


def test_help_and_no_arguments_are_no_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    assert run_command([]) == 0
    assert run_command(["test", "--help"]) == 0
    assert "--nemesis-interval" in capsys.readouterr().out


def test_a_valid_run_says_so_where_the_report_is_and_how_to_repeat_it(
    shalott: Shalott, tmp_path: Path
) -> None:
    done = shalott([*MEMORY, *SHORT])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("Valid: nothing was lost of ") for line in lines)
    assert f"Report: store/memory-upstream-memory/{latest(tmp_path).name}/report.html" in lines
    assert lines[-1] == (
        "Repeat: shalott test --workload memory --system memory --cluster memory --rate 1000"
        " --time-limit 500ms --nemesis none --min-acked 1 --seed 5"
    )
    assert "this is a test" in done.stderr
    assert "load" in done.stderr  # the plain progress


def test_lost_messages_are_exit_1_and_named(shalott: Shalott) -> None:
    done = shalott([*MEMORY, *SHORT], Trap(lose_every=2))
    assert done.returncode == 1, done.stderr
    assert "Invalid: " in done.stdout and "lost" in done.stdout


def test_a_harness_failure_is_255_and_no_verdict(shalott: Shalott) -> None:
    trap = Trap(crash="await_settled", error=lambda: HarnessError("planted"))
    done = shalott([*MEMORY, *SHORT], trap)
    assert done.returncode == 255
    assert "no verdict on the broker: the phase settle: planted" in done.stderr
    assert done.calls[-2:] == ["collect", "teardown"]


@pytest.mark.explore
def test_count_stops_at_the_first_run_that_is_not_valid(shalott: Shalott, tmp_path: Path) -> None:
    many = [*MEMORY, *SHORT, "--test-count", "2"]
    assert shalott(many).returncode == 0
    runs = sorted((tmp_path / "store" / "memory-upstream-memory").glob("2*"))
    assert [load_plan(run / "plan.json").seed for run in runs] == [5, 6]
    assert shalott(many, Trap(lose_every=2)).returncode == 1
    assert len(list((tmp_path / "store" / "memory-upstream-memory").glob("2*"))) == 3


@pytest.mark.explore
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(
            pytest.param(each, marks=pytest.mark.nightly("Ctrl-C comes by day"))
            for each in (signal.SIGTERM, signal.SIGHUP)
        ),
    ],
)
def test_a_signal_ends_the_run_in_order(tmp_path: Path, number: int) -> None:
    child = start(tmp_path)
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 2, err
    assert "Stopping: faults are healed" in err
    assert "The run was interrupted in the phase load." in out
    assert out.splitlines()[-1].endswith("collect teardown")
    results = read_results(latest(tmp_path) / "results.json")
    assert results.valid == "unknown" and results.complete


@pytest.mark.explore
def test_kill_9_of_the_harness_leaves_a_history_that_can_be_analyzed(
    shalott: Shalott, tmp_path: Path
) -> None:
    child = start(tmp_path)
    recording = latest(tmp_path) / "history.jsonl"
    while recording.read_bytes().count(b'"ok"') < 50:
        time.sleep(0.01)
    child.kill()
    child.communicate()
    history = recover(recording)
    assert not history.complete and history.ops.num_rows > 50
    done = shalott(["analyze"])
    assert done.returncode == 2, done.stderr
    assert (latest(tmp_path) / "report.html").exists()
    assert "Unknown" in done.stdout


def test_analyze_gives_the_same_verdict_again(shalott: Shalott, tmp_path: Path) -> None:
    shalott([*MEMORY, *SHORT], Trap(lose_every=2))
    first = read_results(latest(tmp_path) / "results.json")
    (latest(tmp_path) / "results.json").unlink()
    done = shalott(["analyze", "memory-upstream-memory"])
    assert done.returncode == 1, done.stderr
    again = read_results(latest(tmp_path) / "results.json")
    assert again.results == first.results and again.headline == first.headline


def test_a_stored_plan_runs_again(shalott: Shalott, tmp_path: Path) -> None:
    shalott([*MEMORY, *SHORT])
    plan = latest(tmp_path) / "plan.json"
    done = shalott(["test", "--plan", str(plan)])
    assert done.returncode == 0, done.stderr
    assert latest(tmp_path) != plan.parent
    assert load_plan(latest(tmp_path) / "plan.json") == load_plan(plan)
    assert f"Repeat: shalott test --plan {plan}" in done.stdout


def test_an_unwritable_store_is_one_sentence(shalott: Shalott, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    done = shalott([*MEMORY, *SHORT])
    assert done.returncode == 255
    assert "cannot store runs in store" in done.stderr


@pytest.mark.explore
def test_commands_pay_only_for_what_they_use() -> None:
    """Reading a history of a million operations takes less time than importing pandas."""
    script = (
        "import sys, shalott.harness.cli.main;"
        "early = [m for m in ('typer', 'numpy') if m in sys.modules];"
        "import shalott.harness.cli.commands;"
        "early += [m for m in ('asyncio', 'numpy', 'pyarrow', 'docker') if m in sys.modules];"
        "import shalott.core.history, shalott.harness.run.planning;"
        "print(early, 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] False"


@pytest.mark.explore
def test_a_check_starts_no_thread_for_linear_algebra() -> None:
    """A core's worth of them spins for as long as a check of a million operations takes."""
    script = (
        "import os, sys, shalott.harness.cli.main\n"
        "try: shalott.harness.cli.main.main(['check', '--help'])\n"
        "except SystemExit: print(len(os.listdir('/proc/self/task')), 'numpy' in sys.modules)"
    )
    unset = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=unset
    )
    assert done.stdout.splitlines()[-1] == "1 True"
