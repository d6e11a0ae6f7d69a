"""The queue monitors on histories of real concurrent queues, recorded with Violin and SCAL."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.monitors.queue_monitor import FIFO

pytestmark = pytest.mark.unit

HERE = Path(os.environ.get("SHALOTT_HISTORIES", Path(__file__).parents[4] / "shared/histories"))
LINE = re.compile(r"\[(\d+)\] (?:call (add|remove)(?:\((-?\d+)\))?|return ?(empty|-?\d+)?)$")


def golden() -> list[tuple[str, bool]]:
    if not (HERE / "index.csv").exists():
        return []
    with (HERE / "index.csv").open() as index:
        return [
            (row["file"], row["expected"] == "true")
            for row in csv.DictReader(index)
            if row["model"] == "atomic-queue"
        ]


def violin(text: str) -> list[Row]:
    """Violin's lines; a call without a return crashed."""
    rows: dict[str, Row] = {}
    for at, line in enumerate(text.splitlines()):
        if not (found := LINE.match(line)):
            assert line.startswith("#") or not line.strip(), line
            continue
        number, f, argument, result = found.groups()
        if f:
            value = None if argument is None else int(argument)
            rows[number] = Row(int(number), f, value, None, at, None, "info")
        else:
            value = None if result in (None, "empty") else int(result)
            rows[number] = rows[number]._replace(result=value, ret=at, type="ok")
    return list(rows.values())


@pytest.mark.skipif(not golden(), reason="no golden histories: set SHALOTT_HISTORIES")
@pytest.mark.parametrize(("file", "expected"), golden())
def test_real_queues(file: str, expected: bool) -> None:
    history = from_rows(violin((HERE / file).read_text()))
    answer = FIFO(history, new_budget())
    assert answer.valid is expected, answer
    if not expected:
        rank = FIFO.shortest_prefix(history, answer, new_budget())
        assert 0 <= rank <= history.ret[history.ret != 2**31 - 1].max()
