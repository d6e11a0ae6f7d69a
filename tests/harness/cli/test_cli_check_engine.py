"""`shalott check --engine`: what is printed and returned for one opinion and for two."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shalott.checkers.linearizability.explanation import (
    CheckInterrupted,
    Verdict,
    Violation,
)
from shalott.checkers.porcupine import porcupine as asked
from shalott.checkers.porcupine import porcupine as build
from shalott.harness.cli.main import run_command
from tests.checkers.porcupine.differential import require_porcupine
from tests.harness.cli.test_cli_check import STALE

GOOD = STALE.replace(":value 1}\n", ":value 2}\n").replace("write, :value 2", "write, :value 1", 2)

Check = Callable[[Sequence[str]], tuple[int, str, str]]


def opinion(valid: bool | str, cause: str = "") -> Verdict:
    violation = Violation("", "Porcupine 0", "no order is") if valid is False else None
    return Verdict(valid, "register", "Porcupine 0", cause=cause, violation=violation)


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Checks a valid and an invalid file of a directory."""
    monkeypatch.chdir(tmp_path)
    Path("good.edn").write_text(GOOD)
    Path("stale.edn").write_text(STALE)

    def run(arguments: Sequence[str]) -> tuple[int, str, str]:
        code = run_command(["check", *arguments, "--model", "register"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Verdict], None]:
    """Replaces Porcupine, which is not needed to see what is made of its verdicts."""

    def set_verdict(verdict: Verdict) -> None:
        def answer(*_: Any, **limits: Any) -> Verdict:
            if verdict.cause == "cancelled":
                raise CheckInterrupted(verdict)
            return verdict

        monkeypatch.setattr(asked, "check_with_porcupine", answer)

    monkeypatch.setattr(build, "library_path", lambda tell: Path("none.so"))
    return set_verdict


@pytest.mark.unit
def test_two_that_disagree_are_told_of_and_nothing_is_decided(
    check: Check, says: Callable[[Verdict], None]
) -> None:
    says(opinion(False))
    code, out, err = check(["good.edn", "--engine", "both"])
    assert code == 255
    assert "good.edn: valid" in out
    assert "second opinion: invalid by Porcupine 0, in" in out
    assert "good.edn: valid by register monitor, but invalid by Porcupine 0: one of them" in err
    assert "please report it" in err
    says(opinion(True))
    code, out, err = check(["stale.edn", "--engine", "both"])
    assert code == 255
    assert "stale.edn: INVALID" in out
    assert "invalid by register monitor, but valid by Porcupine 0" in err


@pytest.mark.unit
@pytest.mark.parametrize(
    ("file", "second", "code"),
    [
        ("good.edn", opinion(True), 0),
        ("good.edn", opinion("unknown", "time"), 0),
        ("stale.edn", opinion(False), 1),
        ("stale.edn", opinion("unknown", "memory"), 1),
    ],
)
def test_two_that_agree_have_one_exit_code(
    check: Check, says: Callable[[Verdict], None], file: str, second: Verdict, code: int
) -> None:
    says(second)
    assert check([file, "--engine", "both"])[0] == code
    assert "second opinion: " in check([file, "--engine", "both"])[1]
    said = json.loads(check([file, "--engine", "both", "--json"])[1])
    assert said["second_opinion"]["valid"] == second.valid
    assert said["valid"] is (code == 0)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("verdict", "code", "line"),
    [
        (opinion(True), 0, "good.edn: valid"),
        (opinion(False), 1, "good.edn: INVALID: no order is"),
        (opinion("unknown", "time"), 2, "good.edn: unknown (time)"),
        (opinion("unknown", "cancelled"), 2, "good.edn: unknown (cancelled)"),
    ],
)
def test_porcupine_alone_decides(
    check: Check, says: Callable[[Verdict], None], verdict: Verdict, code: int, line: str
) -> None:
    says(verdict)
    assert check(["good.edn", "--engine", "porcupine"])[0] == code
    out = check(["good.edn", "--engine", "porcupine"])[1]
    assert out.splitlines()[0] == line
    assert json.loads(check(["good.edn", "--engine", "porcupine", "--json"])[1])["valid"] == (
        verdict.valid
    )


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--engine", "knossos"], "no engine 'knossos': there are shalott, porcupine, both"),
        (["--engine", "porcupine", "--threads", "2"], "--threads is nothing that Porcupine"),
        (["--engine", "porcupine", "--monitor", "general"], "--monitor is nothing"),
        (["--engine", "porcupine", "--report", "x.html"], "--report is nothing"),
    ],
)
def test_what_porcupine_does_not_do_is_refused(
    check: Check, says: Callable[[Verdict], None], arguments: list[str], complaint: str
) -> None:
    says(opinion(True))
    code, out, err = check(["good.edn", *arguments])
    assert (code, out) == (254, "")
    assert complaint in err


@pytest.mark.unit
def test_without_go_it_is_one_sentence(
    check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = check(["good.edn", "--engine", "porcupine"])
    assert (code, out) == (254, "")
    assert err.splitlines() == [
        "shalott: Porcupine takes Go 1.19 or newer and a C compiler to be built, once:"
        " apt-get install golang-go gcc"
    ]


@pytest.mark.explore
@pytest.mark.parametrize("engine", ["porcupine", "both"])
def test_the_real_one_is_asked(check: Check, engine: str) -> None:
    require_porcupine()
    assert check(["good.edn", "--engine", engine])[0] == 0
    code, out, _ = check(["stale.edn", "--engine", engine])
    assert code == 1
    assert "Porcupine 1.3.1" in out
    assert check(["good.edn", "stale.edn", "--engine", engine])[0] == 1
