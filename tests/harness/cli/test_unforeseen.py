"""An exception that nobody foresaw is 255 and one sentence, and 1 is a verdict only."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from shalott.harness.cli import main as main_module
from shalott.harness.cli.main import run_command

pytestmark = pytest.mark.unit

PLUG_IN = """
import json

def fail(words):
    return {body}
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "shalott" / "errors.log"


def fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(main_module, "_run_app", fail)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("phase"), "KeyError: 'phase'"),
        (SystemExit(1), "SystemExit: 1"),
        (RecursionError(), "RecursionError"),
        (asyncio.CancelledError(), "CancelledError"),
        (ValueError("a\nb" + "c" * 500), "ValueError: a b" + "c" * 185 + "…"),
    ],
)
def test_it_is_one_sentence_and_255(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: Path,
    error: BaseException,
    says: str,
) -> None:
    fails_with(monkeypatch, error)
    assert run_command(["runs", "--store", "x"]) == 255
    (line,) = capsys.readouterr().err.splitlines()
    assert f" failed: {says} (" in line and line.endswith(f"its traceback is in {state}")
    kept = state.read_text()
    assert "shalott runs --store x" in kept and "Traceback (most recent call last)" in kept


@pytest.mark.parametrize(
    ("body", "owner", "line"),
    [("{}['x']", "the plug-in stranger", 5), ("json.loads('{')", "the plug-in stranger", 5)],
)
def test_it_names_the_line_of_whose_code_failed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    body: str,
    owner: str,
    line: int,
) -> None:
    file = tmp_path / "stranger.py"
    file.write_text(PLUG_IN.format(body=body))
    monkeypatch.syspath_prepend(tmp_path)
    import stranger

    monkeypatch.setattr(main_module, "_run_app", stranger.fail)
    assert run_command(["runs"]) == 255
    assert f"shalott: {owner} failed: " in (said := capsys.readouterr().err)
    assert f"({file}, line {line})" in said
    del sys.modules["stranger"]


def test_of_our_own_code_it_says_the_harness(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shalott.harness.cli.commands.COMMANDS", None)
    assert run_command(["runs"]) == 255
    said = capsys.readouterr().err
    assert said.startswith("shalott: the harness failed: ") and "cli/commands.py, line " in said


@pytest.mark.parametrize("word", ["a/store", "--store=a/store", "a"])
def test_a_file_that_was_named_is_bad_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    fails_with(monkeypatch, FileExistsError(17, "File exists", "a/store"))
    assert run_command(["runs", word]) == 254
    assert capsys.readouterr().err == "shalott: a/store: File exists\n"
    assert run_command(["runs", "elsewhere"]) == 255


def test_a_place_that_can_not_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    fails_with(monkeypatch, KeyError("x"))
    assert run_command(["runs"]) == 255
    assert "could not be written to /proc/nowhere/shalott/errors.log" in capsys.readouterr().err
