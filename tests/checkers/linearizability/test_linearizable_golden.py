"""Histories of real systems, recorded by other projects, with the verdict that is right.

They are data beside the checkout, not part of it: SHALOTT_HISTORIES says where (a directory with an
index.csv), else ../shared/histories is looked for.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Final

import pytest

from shalott.checkers.linearizability.checking import check, read_history

pytestmark = pytest.mark.unit

BESIDE: Final = Path(__file__).parents[4] / "shared" / "histories"
PLACE: Final = Path(os.environ.get("SHALOTT_HISTORIES", BESIDE))
MODELS: Final = {"cas-register": "cas-register", "kv": "key-value", "atomic-queue": "fifo-queue"}


def index() -> list[dict[str, str]]:
    if not (PLACE / "index.csv").exists():
        return []
    with (PLACE / "index.csv").open() as lines:
        return list(csv.DictReader(lines))


INDEX: Final = index()
SEARCHED_MAX: Final = 60  # operations of a queue that the general search can do: it is exponential


@pytest.mark.skipif(not INDEX, reason=f"there are no golden histories in {PLACE}")
@pytest.mark.parametrize("by", ["auto", "general"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_verdict_is_the_published_one(kind: str, by: str) -> None:
    rows = [row for row in INDEX if row["model"].startswith(kind)]
    assert rows, f"the index has no {kind}"
    if by == "general" and kind == "atomic-queue":
        rows = [row for row in rows if int(row["ops"]) <= SEARCHED_MAX]
    for row in rows:
        history = read_history(PLACE / row["file"])
        verdict = check(
            history,
            MODELS[kind],
            by=by,  # type: ignore[arg-type]
            time_limit_s=60,
            memory_limit_bytes=1024**3,
            find_prefix=True,
        )
        assert str(verdict.valid).lower() == row["expected"], (row["file"], verdict)
        if verdict.valid is False:
            assert verdict.violation is not None
            assert verdict.violation.prefix is not None
