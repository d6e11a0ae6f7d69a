"""Judges beside their definitions: small histories of systems that are right, and changed ones.

Of a right system nothing may be found. Of a changed history a judge must find what its definition
does, no more and no less.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from tests.checkers.judges import oracles, systems
from tests.checkers.judges.systems import History
from tests.checkers.judges.written import judged, kinds_of

pytestmark = pytest.mark.unit

HISTORIES: Final = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "60"))
DIFFERS: Final = frozenset({"gap", "reordered", "diverged"})


def _replica_kinds(kinds: set[str]) -> set[str]:
    if not kinds & DIFFERS:
        return kinds
    return {"differs", *(kinds - DIFFERS - {"lost", "overtaken"})}


def _if(kind: str, is_there: bool) -> set[str]:
    return {kind} if is_there else set()


@dataclass(frozen=True)
class Subject:
    judge: str
    right: Callable[[random.Random], History]
    wrong: Callable[[History, random.Random], History]
    oracle: Callable[[History], set[str]]
    kinds: Callable[[set[str]], set[str]] = lambda kinds: kinds  # what of the judge's is compared


def _only(*wanted: str) -> Callable[[set[str]], set[str]]:
    return lambda kinds: kinds & set(wanted)


def _session(judge: str, kind: str, f: str) -> Subject:
    return Subject(
        judge,
        lambda rng: systems.collection_history(rng, f),
        lambda history, rng: (
            systems.wrong_collection(history, rng)
            if rng.random() < 0.5
            else systems.gone_for_good(history, rng)
        ),
        lambda history: oracles.sessions(_once(history), is_log=f == "append") & {kind},
    )


def _once(history: History) -> History:
    """Reads without what they show again."""
    return [
        step._replace(value=list(dict.fromkeys(step.value)))
        if step.f == "read" and step.type == "ok"
        else step
        for step in history
    ]


def _register(judge: str, kind: str) -> Subject:
    return Subject(
        judge,
        systems.register_history,
        systems.wrong_register,
        lambda history: oracles.register_sessions(history) & {kind},
    )


SESSIONS: Final = {
    "read-your-writes": "unread-write",
    "monotonic-reads": "read-went-back",
    "monotonic-writes": "write-overtaken",
    "writes-follow-reads": "cause-missing",
}
FULL: Final = ("lost", "stale", "duplicated", "unexpected")
SUBJECTS: Final = [
    Subject(
        "bank:total=30,accounts=3",
        systems.bank_history,
        systems.wrong_bank,
        lambda history: oracles.bank(history, 30, 3),
    ),
    *(
        Subject(
            "set-full:linearizable=true",
            lambda rng, kind=kind: systems.collection_history(rng, "add", kind),  # type: ignore[misc]
            wrong,
            lambda history: set(oracles.set_full(history)) & set(FULL),
        )
        for kind in (list, set)
        for wrong in (systems.wrong_collection, systems.gone_for_good)
    ),
    Subject(
        "counter-bounds",
        systems.counter_history,
        systems.wrong_number("read"),
        oracles.counter,
    ),
    Subject(
        "unique-ids",
        systems.ids_history,
        systems.wrong_number("generate", least=-3, most=0),
        oracles.unique_ids,
    ),
    Subject(
        "total-queue:duplicated=refused",
        systems.queue_history,
        systems.wrong_queue,
        oracles.total_queue,
        _only("lost", "unexpected", "duplicated"),
    ),
    Subject(
        "queue",
        systems.queue_history,
        systems.wrong_queue,
        lambda history: _if("wrong", not oracles.queue(history)),
        lambda kinds: _if("wrong", bool(kinds)),
    ),
    Subject(
        "causal-reverse",
        lambda rng: systems.collection_history(rng, "write", set),
        systems.wrong_collection,
        oracles.causal_reverse,
    ),
    Subject(
        "long-fork",
        systems.forks_history,
        systems.wrong_forks,
        lambda history: _if("long-fork", oracles.long_fork(history)),
    ),
    Subject(
        "monotonic",
        lambda rng: systems.register_history(rng, increments=True),
        systems.wrong_number("read", least=-3, most=3),
        lambda history: _if("went-back", not oracles.grows(history)),
    ),
    *(
        Subject(
            f"monotonic:order={order}",
            systems.maps_history,
            systems.wrong_maps,
            lambda history, realtime=realtime: _if(  # type: ignore[misc]
                "reordered", not oracles.monotonic_maps(history, realtime)
            ),
        )
        for order, realtime in (("realtime", True), ("none", False))
    ),
    Subject(
        "replica-logs",
        systems.replicas_history,
        systems.wrong_replicas,
        oracles.replica_logs,
        _replica_kinds,
    ),
    *(_session(judge, kind, f) for judge, kind in SESSIONS.items() for f in ("add", "append")),
    *(_register(judge, kind) for judge, kind in SESSIONS.items()),
]


@pytest.mark.parametrize("number", range(len(SUBJECTS)))
def test_judge_beside_its_definition(number: int) -> None:
    subject = SUBJECTS[number]
    found_any = 0
    for seed in range(HISTORIES):
        rng = random.Random(seed * 1000 + number)
        right = subject.right(rng)
        result = judged(subject.judge, *right)
        assert result.valid is not False, (seed, right, result)
        wrong = subject.wrong(right, rng)
        result = judged(subject.judge, *wrong)
        expected = subject.oracle(wrong)
        assert subject.kinds(kinds_of(result)) == expected, (seed, wrong, result)
        assert (result.valid is False) == bool(expected), (seed, wrong, result)
        found_any += bool(expected)
    assert found_any > HISTORIES / 50


def test_outcomes_of_elements_are_those_of_the_definition() -> None:
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        history = systems.gone_for_good(systems.collection_history(rng, "add"), rng)
        expected = oracles.set_full(history)
        counts = judged("set-full", *history).counts
        for outcome in ("stable", "lost", "never-read", "stale"):
            assert counts.get(f"{outcome}-count", 0) == expected[outcome], (seed, outcome, history)
