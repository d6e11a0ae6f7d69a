"""Ours and Porcupine on the same random histories: those on which they differ.

The histories are larger than those whose every order can be tried (tests/checkers/oracle.py), with
all kinds of values. A disagreement is a bug of an engine, of a model, or of the reading of an
operation; shrinking it by hand until tests/checkers/oracle.py can judge it says which.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory, Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.explanation import Verdict
from shalott.checkers.models import Model, make_model
from shalott.checkers.porcupine.porcupine import check_with_porcupine, library_path
from shalott.core.errors import UsageError
from tests.checkers.random_histories import MODELS, mutated, random_history

NOT_IN_THE_BRIDGE: Final = ("stack", "priority-queue")
SPECIFICATIONS: Final = (
    *(model for model in MODELS if model not in NOT_IN_THE_BRIDGE),
    "cas-register:failed_cas=ignored",
    "cas-register:nil=any",
    "cas-register:initial=1",
    "multi-register:nil=any",
    "multi-register:initial=1",
    "key-value:initial=nil",
    "reentrant-lock:limit=1",
    "counter:initial=-2",
)
TIME_LIMIT_S: Final = 1.0  # of each; Porcupine may take for ever
MEMORY_LIMIT_BYTES: Final = 512 * 1024**2
_FORMS: Final = {0: True, 1: 1, 2: 1.0, 3: (1, "a"), 4: "a"}  # Python takes three for one

Check = Callable[[ConcurrentHistory, Model], Verdict]


@dataclass(slots=True)
class Compared:
    """What came of it."""

    valid: int = 0
    invalid: int = 0
    undecided: int = 0  # by either
    differ: list[tuple[Verdict, Verdict, Sequence[Row]]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.valid + self.invalid + self.undecided + len(self.differ)


def require_porcupine() -> None:
    """Skips the test where Porcupine can't be built, with the reason."""
    try:
        library_path()
    except UsageError as missing:
        pytest.skip(str(missing))


def ours(history: ConcurrentHistory, model: Model) -> Verdict:
    return check(history, model, time_limit_s=TIME_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)


def porcupines(history: ConcurrentHistory, model: Model) -> Verdict:
    return check_with_porcupine(
        history, model, time_limit_s=TIME_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES
    )


def compare(
    specification: str, histories: int, seed: int, one: Check = ours, other: Check = porcupines
) -> Compared:
    """Asks both about so many histories of a model."""
    model = make_model(specification)
    found = Compared()
    for rows in drawn(specification, histories, seed):
        history = from_rows(rows)
        first, second = one(history, model), other(history, model)
        if "unknown" in (first.valid, second.valid):
            found.undecided += 1
        elif first.valid is not second.valid:
            found.differ.append((first, second, rows))
        elif first.valid is True:
            found.valid += 1
        else:
            found.invalid += 1
    return found


def drawn(specification: str, histories: int, seed: int) -> Iterator[list[Row]]:
    """Half of them good, half mutated; some with several keys, some with values of all kinds."""
    rng = random.Random(f"porcupine {specification} {seed}")
    model = specification if specification in MODELS else specification.partition(":")[0]
    for number in range(histories):
        operations = rng.choice([4, 6, 8, 10, 14, 20, 30])
        processes = rng.choice([2, 3, 4, 5, 6])
        crash = rng.choice([0.0, 0.0, 0.1, 0.3]) if operations > 10 else None
        several = rng.choice([1, 1, 1, 3])
        rows = []
        for key in range(several):
            own = random_history(
                model, rng, operations=operations // several, processes=processes, crash=crash
            )
            own = mutated(own, rng) if number % 2 and rng.random() < 0.8 else own
            rows += [row._replace(**_shifted(row, key, several)) for row in own]
        yield _with_forms(model, rows) if rng.random() < 0.2 else rows


def _shifted(row: Row, key: int, keys: int) -> dict[str, object]:
    """Every event of every key at a time of its own."""
    ret = None if row.ret is None else row.ret * keys + key
    return {"key": f"k{key}" if keys > 1 else "", "call": row.call * keys + key, "ret": ret}


def _with_forms(model: str, rows: list[Row]) -> list[Row]:
    """The same history about values that Python mistakes for each other, where values are free."""
    if model not in ("register", "cas-register", "fifo-queue", "unordered-queue", "set"):
        return rows
    return [row._replace(argument=_form(row.argument), result=_form(row.result)) for row in rows]


def _form(value: Hashable) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_form, value))
    return _FORMS.get(value, value) if type(value) is int else value
