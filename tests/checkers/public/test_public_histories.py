"""`shalott check` on histories in the manner of public reports: verdict, exit code, words; and, by
all orders, that what histories.txt says of them is right."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.checkers.history.concurrent import Operation, Row
from shalott.checkers.models import BUILT_IN, Meanings, Model, make_model, meanings_of
from shalott.checkers.reading import read_history
from shalott.harness.cli.main import run_command
from tests.checkers.oracle import are_linearizable
from tests.checkers.public.written_histories import Written, written_histories
from tests.checkers.reading.written import seen

pytestmark = pytest.mark.unit

ALL = list(written_histories())
CODES = {"valid": 0, "invalid": 1, "unknown": 2, "refused": 254}
VALID = {"valid": True, "invalid": False, "unknown": "unknown"}
FAILED_IGNORED = "failed_cas=ignored"
EMPTIED = "exhausted"

each_history = pytest.mark.parametrize("written", ALL, ids=lambda each: each.name)


@each_history
def test_it_is_judged_right(
    written: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("history.edn").write_text(written.edn)
    code = run_command(["check", "history.edn", *written.arguments])
    told = capsys.readouterr()
    said = told.out + told.err
    assert code == CODES[written.verdict], said
    for words in written.words:
        assert words in said, said
    for inside in ("frozenset", "ValueError", "(None", "None)", "Keyword", "MapPairs"):
        assert inside not in said
    if written.verdict == "refused":
        return
    assert run_command(["check", "history.edn", *written.arguments, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] == VALID[written.verdict]
    name = written.model.partition(":")[0]
    assert found.get("model", found.get("judge")) == name
    if written.options:
        assert {each["option"] for each in found["readings"]} == set(written.options)


@each_history
def test_what_is_said_to_be_right_is_so_by_all_orders(written: Written, tmp_path: Path) -> None:
    name = written.model.partition(":")[0]
    if name not in BUILT_IN or written.verdict == "refused":
        return
    told = written.model.partition(":")[2].split(",") if ":" in written.model else []
    strict = [each for each in told if each]
    assert _is_linearizable(written, tmp_path, strict) == (written.verdict == "valid")
    if written.verdict == "unknown" and written.options:
        assert _is_linearizable(written, tmp_path, [*strict, *written.options])
    if written.verdict == "invalid" and name in ("register", "cas-register") and not told:
        weakest = ["nil=any", FAILED_IGNORED] if name == "cas-register" else ["nil=any"]
        assert not _is_linearizable(written, tmp_path, weakest)


def _is_linearizable(written: Written, tmp_path: Path, options: list[str]) -> bool:
    path = tmp_path / "history.edn"
    path.write_text(written.edn)
    keyed = written.is_keyed or any("[key value]" in words or '"k"' in words
                                    for words in written.words)  # fmt: skip
    dropped = {"!"} | ({"~"} if FAILED_IGNORED in options else set())
    rows = [
        Row(process, f, argument, result, call, ret, kind, key)
        for at, (process, f, argument, result, kind, call, ret, key) in enumerate(
            seen(read_history(path, keyed=keyed))
        )
        if written.failures.get(at) not in dropped and (f != "drain" or kind != "fail")
    ]
    own = [each for each in options if each != FAILED_IGNORED]
    name = written.model.partition(":")[0]
    model = make_model(f"{name}:{','.join(own)}" if own else name)
    if any(row.f == "drain" for row in rows):
        return are_linearizable(list(taken_apart(rows)), InOrder(model))
    return are_linearizable(rows, model)


# --- drains, by their definition ------------------------------------------------------------------


@dataclass(frozen=True)
class InOrder:
    """A queue whose drains take their messages one after the other; its state also says how far
    each drain has come."""

    queue: Model

    @property
    def meanings(self) -> Meanings | None:
        return meanings_of(self.queue)

    @property
    def init(self) -> Hashable:
        return self.queue.init, frozenset[Hashable]()

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, tuple)
        inner, done = state
        if isinstance(op.argument, tuple) and op.argument[:1] == (InOrder,):
            _, drain, place = op.argument
            if sum(each[0] == drain for each in done) != place:
                return None
            done |= {(drain, place)}
            op = op._replace(argument=None)
        after = self.queue.step(inner, op)
        return None if after is None else _each(after, done)


def _each(after: Hashable, done: Hashable) -> Hashable:
    states = getattr(after, "states", None)
    return type(after)(tuple((each, done) for each in states)) if states else (after, done)  # type: ignore[call-arg]


def taken_apart(rows: list[Row]) -> Iterator[Row]:
    """Each drain as its dequeues, all of them between its call and its return."""
    takes = "pop" if any(row.f == "push" for row in rows) else "dequeue"
    given = sum(row.argument is not None for row in rows)
    for number, row in enumerate(rows):
        if row.f != "drain":
            yield row
        elif isinstance(row.result, tuple):
            for place, value in enumerate(row.result):
                step = (InOrder, number, place)
                yield row._replace(f=takes, argument=step, result=value)
        else:
            crashed = row._replace(f=takes, argument=None, result=None, ret=None, type="info")
            yield from [crashed] * given
            if row.result == EMPTIED:
                yield row._replace(f=takes, argument=None, result=None)
