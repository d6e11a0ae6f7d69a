"""The whole check against every order of small random histories, good and mutated, with crashes.

A few thousand histories a model by default; SHALOTT_ORACLE_HISTORIES asks for more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.models import Model, make_model
from tests.checkers.oracle import are_linearizable, is_linearizable
from tests.checkers.random_histories import MODELS, mutated, random_history

pytestmark = [pytest.mark.explore, pytest.mark.timeout(24 * 3600)]

HISTORIES: Final = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "600"))
SEED: Final = int(os.environ.get("SHALOTT_ORACLE_SEED", "1"))

OPTIONS: Final = (
    *MODELS,
    "cas-register:failed_cas=ignored",
    "cas-register:nil=any",
    "cas-register:initial=1",
    "reentrant-lock:limit=1",
    "reentrant-fenced-lock",
    "owned-semaphore:permits=2",
    "priority-queue:first=lowest",
    "priority-queue:ties=fifo",
)


def histories(specification: str) -> Iterator[list[Row]]:
    """Half of them good, half mutated; some wide, some with many crashes, some long."""
    rng = random.Random(f"{specification} {SEED}")
    model = specification if specification in MODELS else specification.partition(":")[0]
    for number in range(HISTORIES):
        operations = rng.choice([4, 5, 6, 6, 7, 7, 7, 8, 9])
        processes = rng.choice([2, 3, 3, 4, 5])
        rows = random_history(model, rng, operations=operations, processes=processes)
        yield mutated(rows, rng) if number % 2 else rows


def prefix_of(rows: Sequence[Row], rank: int) -> list[Row]:
    """What was called by an event, as it was known then."""
    events = sorted([row.call for row in rows] + [r.ret for r in rows if r.ret is not None])
    until = events[rank]
    known = []
    for row in rows:
        is_done = row.ret is not None and row.ret <= until
        if row.call <= until and (is_done or row.type != "fail"):
            known.append(row if is_done else row._replace(ret=None, type="info"))
    return known


def shortest(rows: Sequence[Row], model: Model) -> int:
    """The rank of the first event whose prefix has no order."""
    events = 2 * len(rows) - sum(row.ret is None for row in rows)
    return next(rank for rank in range(events) if not is_linearizable(prefix_of(rows, rank), model))


@pytest.mark.parametrize("specification", OPTIONS)
def test_it_agrees_with_every_order(specification: str) -> None:
    model = make_model(specification)
    invalid = 0
    for number, rows in enumerate(histories(specification)):
        expected = is_linearizable(rows, model)
        history = from_rows(rows)
        invalid += not expected
        if number % 2 == 0 and specification in MODELS:
            assert expected, f"a good history is refused by the model: {rows}"
        general = check(history, model, by="general", find_prefix=True)
        assert general.valid == expected, (general, rows)
        chosen = check(history, model, find_prefix=True)
        assert chosen.valid == expected, (chosen, rows)
        if number % 16 < 2:  # under a small limit nothing is kept from one to the next
            limited = check(
                history,
                model,
                by="general",
                memory_limit_bytes=32 * 1024**2,
                find_prefix=True,
            )
            assert limited.valid == expected, (limited, rows)
            if not expected:
                first = shortest(rows, model)
                for verdict in (general, chosen, limited):
                    assert verdict.violation is not None
                    assert verdict.violation.prefix == first, (verdict, rows)
    assert invalid > HISTORIES // 40, "the mutations do not make enough of them invalid"


@pytest.mark.parametrize("specification", MODELS)
def test_keys_are_checked_one_by_one(specification: str) -> None:
    model = make_model(specification)
    rng = random.Random(f"keys {specification} {SEED}")
    for number in range(HISTORIES // 20):
        rows: list[Row] = []
        for object_ in range(rng.choice([2, 3, 5])):
            part = random_history(specification, rng, operations=5)
            part = mutated(part, rng) if rng.random() < 0.3 else part
            shift = rng.randrange(10) * 1000 + object_  # every event at a time of its own
            rows += [
                row._replace(
                    key=f"k{object_}",
                    call=row.call * 100 + shift,
                    ret=None if row.ret is None else row.ret * 100 + shift,
                )
                for row in part
            ]
        expected = are_linearizable(rows, model)
        history = from_rows(rows)
        memory = 32 * 1024**2 if number % 2 else None
        for by in ("auto", "general"):
            verdict = check(history, model, by=by, memory_limit_bytes=memory, find_prefix=True)
            assert verdict.valid == expected, (verdict, rows)
            if not expected:
                assert verdict.violation is not None
                # A key's registers may be told apart: it is named with those that are wrong then.
                bad = str(verdict.violation.key).partition(" ")[0]
                assert not is_linearizable([row for row in rows if row.key == bad], model)
                if verdict.violation.stuck is not None:
                    code = history.key.codes[verdict.violation.stuck]
                    assert history.key.names[code] == bad
