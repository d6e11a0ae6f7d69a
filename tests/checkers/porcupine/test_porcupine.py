"""Porcupine behind our interface: published verdicts, limits, Ctrl-C, and what it refuses."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import CheckInterrupted, read_history
from shalott.checkers.models import Register
from shalott.checkers.porcupine import porcupine as build
from shalott.checkers.porcupine.porcupine import check_with_porcupine
from shalott.checkers.porcupine.porcupine_columns import SPELLINGS
from shalott.core.errors import HarnessError, UsageError
from tests.checkers.linearizability.test_linearizable_golden import INDEX, PLACE
from tests.checkers.porcupine.differential import require_porcupine

pytestmark = pytest.mark.explore


def hard(key: str = "") -> list[Row]:
    """Enqueues that are all concurrent, and dequeues of which only the last is impossible."""
    rows = [Row(n, "enqueue", n, None, n, 1000 + n, key=key) for n in range(24)]
    for n in range(24):
        value = 99 if n == 23 else n
        rows.append(Row(n, "dequeue", None, value, 2000 + 2 * n, 2001 + 2 * n, key=key))
    return rows


@pytest.mark.skipif(not INDEX, reason=f"there are no golden histories in {PLACE}")
@pytest.mark.parametrize("kind", ["cas-register", "kv", "atomic-queue"])
def test_the_verdict_is_the_published_one(kind: str) -> None:
    require_porcupine()
    models = {"cas-register": "cas-register", "kv": "key-value", "atomic-queue": "fifo-queue"}
    rows = [row for row in INDEX if row["model"].startswith(kind) and int(row["ops"]) <= 3000]
    decided = 0
    for row in rows:
        history = read_history(PLACE / row["file"])
        verdict = check_with_porcupine(
            history, models[kind], time_limit_s=5, memory_limit_bytes=1024**3
        )
        decided += verdict.valid != "unknown"
        assert str(verdict.valid).lower() in (row["expected"], "unknown"), (row["file"], verdict)
    assert decided >= 0.8 * len(rows), "Porcupine decides most of them"


def test_names_that_only_the_nemesis_has_do_not_matter() -> None:
    """As in every stored run: its rows are left out, the names of what they did are still there."""
    require_porcupine()
    rows = [Row(0, "write", 1, None, 0, 1), Row(1, "read", None, 1, 2, 3)]
    history = from_rows(rows)
    named = replace(history, f=replace(history.f, names=(*history.f.names, "phase", "observe")))
    assert check_with_porcupine(named, "register").valid is True


def test_it_names_the_key_that_is_not_linearizable() -> None:
    require_porcupine()
    rows = [
        Row(0, "write", 1, None, 0, 1, key="good"),
        Row(1, "read", None, 1, 2, 3, key="good"),
        Row(0, "write", 1, None, 4, 5, key="bad"),
        Row(1, "read", None, 2, 6, 7, key="bad"),
    ]
    verdict = check_with_porcupine(from_rows(rows), "register")
    assert verdict.violation is not None
    assert (verdict.valid, verdict.violation.key) == (False, "bad")
    assert verdict.violation.by == f"Porcupine {build.porcupine_version()}"
    assert verdict.violation.reason == "no order of the operations is one that a register allows"
    right = check_with_porcupine(from_rows(rows[:2]), "register")
    assert (right.valid, right.how, right.keys_decided) == (True, "Porcupine 1.3.1", 1)


def test_an_empty_history_is_valid() -> None:
    require_porcupine()
    assert check_with_porcupine(from_rows([]), "register").valid is True


@pytest.mark.parametrize("model", SPELLINGS)
def test_the_bridge_has_every_model_that_it_is_said_to_have(model: str) -> None:
    require_porcupine()
    assert check_with_porcupine(from_rows([]), model).valid is True


def test_values_that_python_mistakes_for_each_other_differ() -> None:
    require_porcupine()
    for written, read in ((True, 1), (1, 1.0), (1.0, True), ((True,), (1,))):
        rows = [Row(0, "write", written, None, 0, 1), Row(0, "read", None, read, 2, 3)]
        assert check_with_porcupine(from_rows(rows), "register").valid is False
    nan = float("nan")
    rows = [Row(0, "write", nan, None, 0, 1), Row(0, "read", None, float("nan"), 2, 3)]
    assert check_with_porcupine(from_rows(rows), "register").valid is True


def test_after_the_time_limit_it_is_unknown() -> None:
    require_porcupine()
    verdict = check_with_porcupine(from_rows(hard()), "fifo-queue", time_limit_s=0.3)
    assert (verdict.valid, verdict.cause, verdict.violation) == ("unknown", "time", None)
    assert verdict.elapsed_s < 3


@pytest.mark.nightly("fills a checker's memory: more than a minute")
def test_beyond_the_memory_limit_it_is_unknown() -> None:
    require_porcupine()
    verdict = check_with_porcupine(
        from_rows(hard()), "fifo-queue", time_limit_s=60, memory_limit_bytes=64 * 1024**2
    )
    assert (verdict.valid, verdict.cause) == ("unknown", "memory")
    assert verdict.memory_peak_bytes < 512 * 1024**2


def test_one_hard_key_does_not_hide_that_another_is_invalid() -> None:
    require_porcupine()
    rows = [*hard(key="hard"), Row(0, "dequeue", None, 9, 10_000, 10_001, key="easy")]
    verdict = check_with_porcupine(from_rows(rows), "fifo-queue", time_limit_s=60)
    assert verdict.violation is not None
    assert verdict.violation.key == "easy"
    assert verdict.elapsed_s < 30


def test_ctrl_c_stops_it() -> None:
    require_porcupine()
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began_s = time.monotonic()
    with pytest.raises(CheckInterrupted) as raised:
        check_with_porcupine(
            from_rows(hard()), "fifo-queue", time_limit_s=60, memory_limit_bytes=2 * 1024**3
        )
    verdict = raised.value.verdict
    assert (verdict.valid, verdict.cause) == ("unknown", "cancelled")
    assert time.monotonic() - began_s < 10


def valid_in_another_process() -> bool:
    return check_with_porcupine(from_rows([]), "register").valid is True


def test_a_spawned_process_has_a_porcupine_of_its_own() -> None:
    require_porcupine()
    assert valid_in_another_process()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(valid_in_another_process) is True


def test_a_forked_process_is_told_to_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    require_porcupine()
    assert valid_in_another_process()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(HarnessError, match="forked"):
        valid_in_another_process()


def test_what_the_object_does_not_do_is_refused_with_its_place() -> None:
    require_porcupine()
    rows = [Row(0, "put", 5, None, 0, 1), Row(0, "append", "x", None, 2, 3)]
    with pytest.raises(UsageError, match="key-value can't take index 1: what it appends"):
        check_with_porcupine(from_rows(rows), "key-value")


class Another(Register):
    """Somebody else's."""


def test_a_model_that_the_bridge_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="has no model register: it has register, cas-register"):
        check_with_porcupine(from_rows([]), Another())


@pytest.mark.parametrize(
    ("model", "f", "argument", "result", "complaint"),
    [
        ("cas-register", "cas", 5, None, "a cas needs a pair"),
        ("multi-register", "write", 5, None, "pairs"),
        ("multi-register", "write", (5,), None, ""),
        ("multi-register", "txn", (("x", "a", 1),), None, "'x' is neither"),
        ("set", "contains", 5, 5, "contains returns true or false"),
        ("set", "read", None, 5, "returns its elements"),
        ("fenced-lock", "acquire", None, "x", "a token is an integer"),
        ("semaphore", "acquire", 0, None, "a number of permits"),
        ("counter", "inc", "x", None, "needs an integer"),
        ("log", "read", -1, None, "needs an offset"),
    ],
)
def test_an_operation_that_is_not_understood_is_refused(
    model: str, f: str, argument: object, result: object, complaint: str
) -> None:
    rows = [Row(0, f, argument, result, 0, 1)]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"can't take index 0: .*{complaint}"):
        check_with_porcupine(from_rows(rows), model)


def test_without_go_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install golang-go gcc$"):
        build.library_path()


def test_what_go_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\n[ "$1" = build ] || exit 0\necho "it is no Go" >&2\nexit 1\n')
    go.chmod(0o755)
    told: list[str] = []
    with pytest.raises(HarnessError, match="Porcupine can't be built: it is no Go"):
        build.library_path(told.append)
    assert told == ["building Porcupine, which takes a minute and is done once"]
    go.write_text('#!/bin/sh\necho "no network" >&2\nexit 1\n')
    with pytest.raises(UsageError, match="Go can't fetch Porcupine: no network"):
        build.library_path()
    assert not list(tmp_path.glob("shalott/porcupine/*.so"))
