"""Histories of real systems: how many operations, crashed ones and processes are read.

They are looked for in $SHALOTT_HISTORIES, else beside the checkout.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from shalott.checkers.history.concurrent import NEVER
from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn_export import edn_lines
from tests.checkers.reading.written import as_jepsen_has_it, is_whole, seen

pytestmark = pytest.mark.unit

ROOT = Path(os.environ.get("SHALOTT_HISTORIES", Path(__file__).parents[4] / "shared" / "histories"))
DIALECTS = {"jepsen": "porcupine-etcd", "kv": "porcupine-kv", "generated": "violin"}


def golden() -> list[dict[str, str]]:
    index = ROOT / "index.csv"
    if not index.exists():
        pytest.skip(f"no golden histories in {ROOT}: set SHALOTT_HISTORIES")
    with index.open() as file:
        return list(csv.DictReader(file))


def test_every_operation_is_read(tmp_path: Path) -> None:
    for row in golden():
        history = read_history(ROOT / row["file"])
        assert is_whole(history)
        assert history.dialect == DIALECTS[row["file"].split("/")[1]]
        assert history.notes == ()
        # The index leaves out reads that failed: they tell nothing.
        failed_reads = history.f.equal("read") & (history.type == 1)
        assert len(history) - int(failed_reads.sum()) == int(row["ops"]), row
        assert int(np.count_nonzero(history.ret == NEVER)) == int(row["crashed"]), row
        if history.dialect != "violin":
            assert len(np.unique(history.process)) == int(row["processes"]), row


def test_they_survive_being_written_as_edn(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    for row in golden():
        history = read_history(ROOT / row["file"])
        path.write_text("".join(edn_lines(history, keyed=False)))
        written = [row[1:] for row in seen(as_jepsen_has_it(history))]
        assert [row[1:] for row in seen(read_history(path))] == written, row
