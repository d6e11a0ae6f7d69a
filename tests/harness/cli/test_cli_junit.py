"""``--junit FILE``: every end of a command is in it, and none is an absence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shalott.core.errors import HarnessError
from shalott.harness.cli.main import run_command
from shalott.harness.report.junit import NOT_ENDED
from tests.harness.report.junit_schema import faults_of
from tests.world.harness.memory import Trap
from tests.world.harness.memory_cli import install

MEMORY = (
    "test", "--workload", "memory", "--system", "memory", "--nemesis", "none", "--seed", "5",
    "--rate", "1000", "--junit", "out.xml",
)  # fmt: skip
ROOT = Path(__file__).parents[3]
SHORT = ("--time-limit", "500ms", "--min-acked", "1")
"""Long enough for an operation, whatever else the machine does."""


def read(path: Path) -> ElementTree.Element:
    document = path.read_bytes()
    assert faults_of(document) == []
    return ElementTree.fromstring(document)


def messages(root: ElementTree.Element, tag: str) -> list[str | None]:
    return [each.get("message") for each in root.iter(tag)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_here(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, trap: Trap | None = None
) -> int:
    install(trap or Trap(), monkeypatch.setattr)
    return run_command(arguments)


@pytest.mark.unit
def test_several_runs_are_one_document_with_cases_of_each(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_here([*MEMORY, *SHORT, "--test-count", "2"], monkeypatch) == 0
    root = read(here / "out.xml")
    assert [suite.get("errors") for suite in root] == ["0", "0"]
    names = [case.get("name") or "" for case in root.iter("testcase")]
    assert [name for name in names if name.startswith("run (")] == [
        "run (memory, nemesis none, seed 5, iteration 1)",
        "run (memory, nemesis none, seed 6, iteration 2)",
    ]
    assert all(float(case.get("time") or 0) > 0.1 for case in root.iter("testcase"))


@pytest.mark.unit
def test_an_invalid_run_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_here([*MEMORY, *SHORT], monkeypatch, Trap(lose_every=2)) == 1
    root = read(here / "out.xml")
    assert any("lost" in (message or "") for message in messages(root, "failure"))


@pytest.mark.unit
def test_a_failure_of_the_harness_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = Trap(crash="await_settled", error=lambda: HarnessError("planted"))
    assert run_here([*MEMORY, *SHORT], monkeypatch, trap) == 255
    assert "The harness failed: the phase settle: planted" in messages(
        read(here / "out.xml"), "error"
    )


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rate", "0"), "the rate must be above 0"),
        (("--nemesis", "meteor"), "unknown nemesis meteor: choose one of"),
        (("--frobnicate",), "No such option: --frobnicate"),
        (("--plan", "missing.json"), "cannot read the plan missing.json"),
    ],
)
def test_a_refusal_is_an_error_with_its_sentence(
    arguments: tuple[str, ...], sentence: str, here: Path
) -> None:
    assert run_command(["test", "--cluster", "sim", "--junit=out.xml", *arguments]) == 254
    (message,) = messages(read(here / "out.xml"), "error")
    assert sentence.lower() in (message or "").lower()
    assert not (here / "store").exists()


@pytest.mark.unit
def test_a_store_that_can_not_be_written_is_an_error(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "store").write_text("a file")
    assert run_here([*MEMORY, *SHORT], monkeypatch) == 255
    (message,) = messages(read(here / "out.xml"), "error")
    assert "Cannot store runs in store" in (message or "")


@pytest.mark.unit
def test_a_place_that_can_not_be_written_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["test", "--junit", "no/such/place.xml"]) == 254
    assert "--junit no/such/place.xml: cannot write" in capsys.readouterr().err


@pytest.mark.explore
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.nightly("that it is killed is the harder")),
    ],
)
def test_a_harness_that_is_ended_leaves_an_error(number: int, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.world.harness.memory_cli", *MEMORY, "--time-limit", "60"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("load"):
            break
    child.send_signal(number)
    child.communicate(timeout=30)
    own = (tmp_path / "store" / "latest" / "junit.xml").resolve()
    for path in (tmp_path / "out.xml", own):
        errors = messages(read(path), "error")
        if number == signal.SIGKILL:
            assert errors == [NOT_ENDED]
        else:
            assert any("cut short in the phase load" in (each or "") for each in errors)


SLOW_MODULE = "import sys, time\nprint('loading', flush=True)\nwhile True: time.sleep(0.01)\n"


@pytest.mark.explore
def test_ctrl_c_while_modules_load_is_one_line_and_130(tmp_path: Path) -> None:
    """Also where the module that loads would make something else of the KeyboardInterrupt."""
    swallowing = SLOW_MODULE.replace("while True: time.sleep(0.01)", "").rstrip() + (
        "\nfor _ in range(3000):\n    try: time.sleep(0.01)\n    except BaseException: pass\n"
    )
    for number, text in enumerate((SLOW_MODULE, swallowing)):
        (tmp_path / f"slow{number}.py").write_text(text)
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "shalott.harness.cli.main", "test"),
                *("--load", f"slow{number}", "--junit", "out.xml"),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None and child.stdout.readline() == "loading\n"
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (130, "shalott: interrupted before the run began\n")
        assert time.monotonic() - began < 10
        (message,) = messages(read(tmp_path / "out.xml"), "error")
        assert message == "Interrupted before the run began"
