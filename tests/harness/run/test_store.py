"""The store: files appear whole, links point to the newest run, and mistakes are one sentence."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from shalott.core.errors import StoreError, UsageError
from shalott.core.op import Completion, Invocation
from shalott.core.recording import HistoryWriter, recover
from shalott.harness.run import store as store_module
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.run import RunContext
from shalott.harness.run.session import perform
from shalott.harness.run.store import RunDirectory, RunNameTaken, Store
from tests.world.harness.memory import memory_plan

pytestmark = pytest.mark.unit


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def recorded(directory: RunDirectory) -> None:
    writer = HistoryWriter(directory.recording)
    index = writer.invoke(0, "n1", Invocation(f="enqueue", key="q", value=1))
    writer.complete(index, Completion(type="ok"))
    writer.close()


def test_latest_points_to_the_newest_run(store: Store) -> None:
    first, second = store.create("a"), store.create("b")
    assert (store.root / "latest").resolve() == second.path.resolve()
    assert (store.root / "a" / "latest").resolve() == first.path.resolve()
    third = store.create("a")
    assert first.path != third.path
    assert (store.root / "a" / "latest").resolve() == third.path.resolve()
    assert (store.root / "latest").readlink() == Path("a", third.path.name)


def test_the_name_is_the_time(store: Store) -> None:
    directory = store.create("a")
    assert len(directory.path.name) == len("20261121T133657.036Z")
    assert directory.path.stat().st_mtime_ns == pytest.approx(directory.started_wall_ns, abs=5e9)
    assert RunDirectory(Path("renamed")).started_wall_ns == 0


def test_naming_a_run_makes_nothing(store: Store) -> None:
    store.name_run("a")
    assert not store.root.exists()


def test_a_name_is_of_one_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may name theirs before either has its directory."""
    first = store.create("a")
    with pytest.raises(RunNameTaken, match="there is a run .* already"):
        store.begin(first)
    named_alike(monkeypatch, first)
    assert store.create("a").path != first.path


def named_alike(monkeypatch: pytest.MonkeyPatch, taken: RunDirectory) -> None:
    """The next run gets a name that another got before it."""
    names, name_run = iter([taken]), Store.name_run
    monkeypatch.setattr(
        Store, "name_run", lambda self, name: next(names, None) or name_run(self, name)
    )


def test_a_run_whose_name_another_has_takes_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(Request(time_limit="1", nemesis="none"), backend="sim", seed=1)
    named_alike(monkeypatch, first := store.create(plan.name))
    outcome, _ = perform(plan, store.root, RunContext(command=""))
    assert outcome.directory.path != first.path
    assert (outcome.directory.path / "plan.json").is_file()


def test_runs_are_found_by_place_name_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = store.create("a")
    with pytest.raises(UsageError, match="no run yet"):
        store.find(None)  # no plan in it: it is not a run
    directory.save_plan(memory_plan())
    found = directory.path.resolve()
    for name in (None, str(directory.path), "a", f"a/{directory.path.name}"):
        assert store.find(name).path == found
    with pytest.raises(UsageError, match="there is no run b"):
        store.find("b")


def test_a_file_is_whole_or_not_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = store.create("a")
    directory.save_text("results.json", "old")

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store_module, "_write_bytes", full)
    with pytest.raises(StoreError, match=r"cannot write .*results.json: No space left on device"):
        directory.save_text("results.json", "new")
    assert (directory.path / "results.json").read_text() == "old"
    assert [path.name for path in directory.path.iterdir()] == ["results.json"]


def test_the_recording_is_kept_until_the_history_is_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = store.create("a")
    recorded(directory)
    history = recover(directory.recording)

    def full(table: object, path: Path, run: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "write_history", full)
        with pytest.raises(StoreError, match="No space left on device"):
            directory.save_history(history)
    assert directory.load_history().ops.equals(history.ops)
    directory.save_history(history)
    assert not directory.recording.exists()
    assert directory.load_history().ops.equals(history.ops)
    assert directory.load_history().complete


def test_a_cut_short_history_stays_known_as_such(store: Store) -> None:
    directory = store.create("a")
    recorded(directory)
    data = directory.recording.read_bytes()
    directory.recording.write_bytes(data[:-3])
    directory.save_history(directory.load_history())
    assert not directory.load_history().complete


def test_a_directory_without_history_says_so(store: Store) -> None:
    with pytest.raises(UsageError, match="holds no history"):
        store.create("a").load_history()


def test_everybody_logs_to_the_run(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    directory = store.create("a")
    with directory.logging():
        logging.getLogger("shalott.cluster.docker").warning("a link was slow")
    logging.getLogger("shalott.cluster.docker").info("after the run")
    text = (directory.path / "log.txt").read_text()
    assert "WARNING shalott.cluster.docker: a link was slow" in text and "after" not in text


def test_a_full_disk_does_not_break_the_log() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    handler = store_module._RunLog(full)
    record = logging.LogRecord("shalott", logging.ERROR, "", 0, "said in vain", (), None)
    handler.handle(record)
    handler.close()
