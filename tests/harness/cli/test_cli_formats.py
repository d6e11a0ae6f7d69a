"""`shalott export --format` and `shalott report` of a test that Jepsen stored."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.jepsen_store import is_store, read_store
from shalott.harness.cli.main import run_command
from shalott.harness.report.results import read_results
from tests.checkers.reading.test_formats import GOLDEN, OPERATIONS

pytestmark = pytest.mark.unit


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Jepsen left of a test."""
    directory = tmp_path / "append etcd" / "20260101T000000.000Z"
    directory.mkdir(parents=True)
    shutil.copy(GOLDEN / "test.jepsen", directory)
    monkeypatch.chdir(tmp_path)
    return directory


def shalott(*arguments: str) -> int:
    return run_command(list(arguments))


def test_what_a_store_says(store: Path) -> None:
    found = read_store(store)
    assert is_store(store)
    assert (found.name, found.started) == ("append etcd", "20260101T000000.000Z")
    assert (found.nodes, found.concurrency, found.time_limit_s) == (("n1", "n2", "n3"), 3, 5.0)
    assert found.workload == "append" and found.results and found.results["valid?"] is False


def test_a_test_map_as_edn_and_names_of_directories(store: Path) -> None:
    (store / "test.jepsen").unlink()
    (store / "history.edn").write_text(OPERATIONS)
    found = read_store(store)
    assert (found.name, found.started, found.nodes) == ("append etcd", store.name, ())
    (store / "test.edn").write_text('{:name "x", :nodes ["a" "b"], :db #foo.Bar{:y 1}}\n')
    (store / "results.edn").write_text("{:valid? :unknown, :w {:valid? true}}")
    found = read_store(store)
    assert (found.name, found.nodes) == ("x", ("a", "b"))
    assert found.results and found.results["valid?"] == "unknown"


def test_the_report_draws_nodes_faults_and_what_its_checkers_said(store: Path) -> None:
    assert shalott("report", str(store)) == 0
    page = (store / "report.html").read_text()
    assert "served 3 clients of the workload append for 5 s through 1 fault." in page
    assert "n1" in page and "anomaly-types" in page


def test_a_run_of_ours_and_back_to_a_store(store: Path, tmp_path: Path) -> None:
    assert shalott("export", str(store), "--format", "shalott", "-o", "run") == 0
    results = read_results(tmp_path / "run" / "results.json")
    assert results.valid is False and results.name == "append etcd"
    assert shalott("export", "run", "--format", "jepsen", "-o", "again") == 0
    expected = list(EntrySource.of_path(store).maps())
    for name in ("run", "again", "again/test.jepsen"):
        assert list(EntrySource.of_path(tmp_path / name).maps()) == expected, name
    text = (tmp_path / "again" / "history.txt").read_text()
    assert text.startswith("0\t:invoke\t:txn\t[[:append 9 1] [:r 8 nil]]\n:nemesis\t:info\t:kill")


@pytest.mark.parametrize("format", ["edn", "porcupine-kv", "json", "log", "openchaos"])
def test_every_text_is_read_again(
    store: Path, tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shalott("export", str(store), "--format", format, "-o", "out") == 0
    said = "4 operations" if format == "porcupine-kv" else "10 entries"
    assert capsys.readouterr().out == f"out is written: {said}\n"
    count = len(list(EntrySource.of_path(tmp_path / "out").entries()))
    assert count == (8 if format == "porcupine-kv" else 10)  # columns have no nemesis
    assert shalott("export", str(store), "--format", format) == 0
    assert capsys.readouterr().out == (tmp_path / "out").read_text()


def test_a_damaged_store_is_one_sentence(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((store / "test.jepsen").read_bytes())
    content[len(content) // 2 :] = b"\0" * 40
    (store / "test.jepsen").write_bytes(content)
    for command in ("report", "export"):
        assert shalott(command, str(store)) == 254
        said = capsys.readouterr().err
        assert said.startswith("shalott: ") and said.count("\n") == 1, said
