"""Stored runs whose files are damaged: bits flip, ends are missing, pipes stand in their place.
What reads them says so in one sentence, and none tells another verdict without a word."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from shalott.core.op import Completion, Invocation
from shalott.core.recording import HistoryWriter
from shalott.harness.cli.main import run_command
from shalott.harness.report.results import read_results
from tests.world.harness.memory import Trap
from tests.world.harness.memory_cli import install

pytestmark = pytest.mark.unit

RUN = (
    "test", "--workload", "memory", "--system", "memory", "--nemesis", "none", "--seed", "5",
    "--rate", "1000", "--time-limit", "500ms", "--min-acked", "1", "--tag", "a=b",
)  # fmt: skip
FILES = ("plan.json", "history.parquet", "events.parquet", "results.json", "SHA256SUMS")
TAKES_S = 30


class Stored:
    """A run that is Invalid, since messages were lost, and copies of it."""

    def __init__(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.place, self._patch, self._capsys = place, monkeypatch, capsys
        install(Trap(lose_every=4), monkeypatch.setattr)
        monkeypatch.chdir(place)
        assert run_command(RUN) == 1
        (self.first,) = (place / "store" / "memory-upstream-memory").glob("2*")
        self.results = read_results(self.first / "results.json")
        self.words = self.results.headline
        stored = {result.checker: result.counts for result in self.results.results}
        self.lost = stored["total-queue"]["lost-count"]
        self.checked = self.run("check", str(self.first), "--model", "unordered-queue")[0]

    def copy(self) -> Path:
        store = self.place / "copied"
        shutil.rmtree(store, ignore_errors=True)
        made = store / "memory" / self.first.name
        shutil.copytree(self.first, made)
        return made

    def run(self, *words: str) -> tuple[int, str, str]:
        install(Trap(), self._patch.setattr)
        self._capsys.readouterr()
        code = run_command(words)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in out + err, (words, out, err)
        return code, out, err

    def judge_again(self, made: Path) -> None:
        """The same verdict, or a sentence and no verdict."""
        code, out, err = self.run("analyze", str(made), "--store", str(made.parents[1]))
        assert code in (1, 2, 254, 255), (code, out, err)
        if code == 1:
            assert out.splitlines()[0] == self.words, (out, err)
        else:
            assert "Invalid" not in out and "Valid" not in out.split("Report")[0], out
            assert out or err
        code, out, err = self.run("runs", str(made.parents[1]))
        assert code == 0, (out, err)
        assert " valid" not in out.replace("invalid", ""), out
        code, out, err = self.run("check", str(made), "--model", "unordered-queue")
        assert code in (self.checked, 254), (out, err)

    def report_again(self, made: Path) -> None:
        """The counts of before, or none."""
        code, out, err = self.run("report", str(made.parents[1]), "--engine", "local")
        assert code in (0, 254), (out, err)
        if code == 0:
            said = json.loads((made.parents[1] / "_report" / "report.json").read_bytes())
            assert said["runs"] or said["unreadable"], said
            for run in said["runs"]:
                assert run["valid"] in (False, "unknown"), said
                assert not run["complete"] or run["counts"]["lost"] == self.lost, said


@pytest.fixture
def stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stored:
    return Stored(tmp_path, monkeypatch, capsys)


def damage(
    stored: Stored, names: Sequence[str], times: int, seed: int, *, reports: bool = False
) -> None:
    draw = random.Random(seed)
    for name in names:
        whole = (stored.first / name).read_bytes()
        for number in range(times):
            made = stored.copy()
            if number % 4 == 3:
                changed = bytearray(whole[: draw.randrange(len(whole))])
            else:
                changed = bytearray(whole)
                changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            (made / name).write_bytes(changed)
            if reports:
                stored.report_again(made)
            stored.judge_again(made)


def test_an_untouched_run_is_judged_as_it_was(stored: Stored) -> None:
    made = stored.copy()
    stored.report_again(made)
    stored.judge_again(made)
    stored.judge_again(made)  # what analyze wrote is summed up, too


def test_damaged_files_of_a_run_tell_no_other_verdict(stored: Stored) -> None:
    damage(stored, FILES, 4, seed=1)


@pytest.mark.nightly("hundreds of runs are judged again")
@pytest.mark.parametrize("name", FILES)
def test_many_damaged_files_of_a_run_tell_no_other_verdict(stored: Stored, name: str) -> None:
    damage(stored, (name,), 150, seed=2, reports=True)


def as_killed(stored: Stored) -> tuple[Path, bytes]:
    """As if the harness had been killed near the end: a recording and a plan."""
    made = stored.copy()
    for name in ("history.parquet", "events.parquet", "results.json", "SHA256SUMS", "junit.xml"):
        (made / name).unlink()
    writer = HistoryWriter(made / "history.jsonl")
    for number in range(300):
        index = writer.invoke(0, "n1", Invocation(f="enqueue", key="q.1", value=number))
        writer.complete(index, Completion(type="ok"))
        if number % 40 == 0:
            writer.flush()
    writer.flush()
    return made, (made / "history.jsonl").read_bytes()


@pytest.mark.parametrize("number", [b"1180591620717411303424", b"-1", b'"x"', b"1e999", b"null"])
def test_a_strange_number_in_a_killed_run_is_no_traceback(stored: Stored, number: bytes) -> None:
    made, whole = as_killed(stored)
    at = whole.index(b'"value":150') + len(b'"value":')
    (made / "history.jsonl").write_bytes(whole[:at] + number + whole[at + 3 :])
    code, out, err = stored.run("analyze", str(made), "--store", str(made.parents[1]))
    assert code == 2 and out.startswith("Unknown: The history is damaged"), (out, err)


def test_a_damaged_line_of_a_killed_run_is_told_and_the_others_are_read(stored: Stored) -> None:
    made, whole = as_killed(stored)
    lines = whole.splitlines(keepends=True)
    lines[100] = b"\x00\xff{garbage\n"
    (made / "history.jsonl").write_bytes(b"".join(lines))
    code, out, _ = stored.run("analyze", str(made), "--store", str(made.parents[1]))
    assert code == 2 and "line 101 of history.jsonl can't be read" in out
    (result,) = [r for r in read_results(made / "results.json").results if r.checker == "stats"]
    assert sum(v for name, v in result.counts.items() if name == "ok-count") in (0, 299, 300)


def test_a_run_whose_results_are_garbled_is_judged_by_its_history(stored: Stored) -> None:
    made = stored.copy()
    (made / "results.json").write_bytes(b"\xff\x00 garbled")
    code, out, err = stored.run("analyze", str(made), "--store", str(made.parents[1]))
    assert code == 1 and out.splitlines()[0] == stored.words
    assert "results.json is damaged, or was changed" in err
    assert read_results(made / "results.json").headline == stored.words


@pytest.mark.timeout(TAKES_S)
@pytest.mark.parametrize("name", [*FILES, "tags.json", "history.jsonl"])
def test_a_pipe_in_a_store_is_not_waited_for(stored: Stored, name: str) -> None:
    made = stored.copy()
    (made / name).unlink(missing_ok=True)
    os.mkfifo(made / name)
    code, out, err = stored.run("runs", str(made.parents[1]))
    assert code in (0, 254, 255), (out, err)
    stored.run("analyze", str(made), "--store", str(made.parents[1]))
    table = stored.place / "copied" / "runs.parquet"
    table.unlink(missing_ok=True)
    os.mkfifo(table)
    code, out, err = stored.run("runs", str(made.parents[1]))
    assert code in (0, 254, 255), (out, err)
