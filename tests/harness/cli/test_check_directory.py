"""`shalott check` on directories: each history judged by what it wants, in a line, and the worst
verdict's exit code."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from shalott.harness.cli.main import run_command
from tests.checkers.public.written_histories import Written, written_histories
from tests.checkers.reading.test_logs import ETCD, VIOLIN, record

pytestmark = pytest.mark.unit

WORDS = {"valid": "valid", "invalid": "INVALID", "unknown": "unknown"}
GUESSED = [each for each in written_histories() if each.verdict != "refused" and not each.is_told]
Capture = pytest.CaptureFixture[str]


def fill(directory: Path, histories: Sequence[Written], copies: int = 1) -> dict[str, str]:
    """Files of many kinds, and the verdict of each."""
    right = {}
    for copy in range(copies):
        for number, each in enumerate(histories):
            place = directory / f"{copy}-{number:02}" if number % 5 == 0 else directory
            place.mkdir(parents=True, exist_ok=True)
            if number % 5 == 0:  # as a store of Jepsen's has it
                (place / "history.edn").write_text(each.edn)
                (place / "results.edn").write_text("{:valid? true}")
                right[str(place)] = each.verdict
                continue
            path = place / f"{copy}-{number:02}.edn"
            if number % 7 == 3:
                path = path.with_suffix(".edn.gz")
                path.write_bytes(gzip.compress(each.edn.encode()))
            else:
                path.write_text(each.edn)
            right[str(path)] = each.verdict
    return right


def check(capsys: Capture, *arguments: str) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = run_command(["check", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_a_hundred_files_are_judged_in_a_line_each(tmp_path: Path, capsys: Capture) -> None:
    right = fill(tmp_path, GUESSED, copies=2)
    (tmp_path / "etcd.log").write_text(ETCD)
    (tmp_path / "queue.log").write_text(VIOLIN)
    record(tmp_path / "recording.jsonl").close()
    (tmp_path / "README.md").write_text("# no history\n")
    (tmp_path / "index.csv").write_text("file,kind\n")
    (tmp_path / ".hidden.edn").write_text("nonsense")
    assert len(right) >= 100
    code, lines = check(capsys, str(tmp_path))
    assert code == 1
    said = dict(line.split(": ")[:2] for line in lines)
    assert {file: said[file] for file in right} == {
        file: WORDS[verdict] for file, verdict in right.items()
    }
    others = set(said) - set(right)
    assert {Path(file).name for file in others} == {"etcd.log", "queue.log", "recording.jsonl"}
    assert len(lines) == len(right) + 3
    code, again = check(capsys, str(tmp_path), "--json")
    assert code == 1 and len([json.loads(line) for line in again]) == len(lines)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(("valid",), 0), (("valid", "unknown"), 2), (("valid", "unknown", "invalid"), 1)],
)
def test_the_worst_verdict_is_the_exit_code(
    tmp_path: Path, capsys: Capture, verdicts: tuple[str, ...], code: int
) -> None:
    fill(tmp_path, [each for each in GUESSED if each.verdict in verdicts])
    assert check(capsys, str(tmp_path))[0] == code
    (tmp_path / "broken.edn").write_text("{:process 0, :type :invoke, :f :read, :value [1}}")
    found, lines = check(capsys, str(tmp_path))
    assert found == (1 if code == 1 else 254)
    (broken,) = [line for line in lines if "NOT CHECKED" in line]
    assert "a bracket is closed by one of another kind" in broken


@pytest.mark.explore
def test_files_may_be_judged_at_once(tmp_path: Path, capsys: Capture) -> None:
    fill(tmp_path, GUESSED[:12])
    assert check(capsys, str(tmp_path), "--jobs", "2") == check(capsys, str(tmp_path))


def test_what_holds_no_history_is_told(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# nothing\n")
    assert run_command(["check", str(tmp_path)]) == 254
