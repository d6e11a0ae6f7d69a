"""Our stored histories: the same as their recording, and what is said of Parquet that is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.reading import read_history
from shalott.core.errors import UnreadableHistory
from shalott.core.history import HISTORY_SCHEMA, write_history
from shalott.core.recording import recover
from tests.checkers.reading.test_logs import RECORDED, record
from tests.checkers.reading.written import is_whole, seen

pytestmark = pytest.mark.unit


def read(path: Path) -> ConcurrentHistory:
    history = read_history(path)
    assert is_whole(history)
    return history


def complaint(path: Path) -> str:
    with pytest.raises(UnreadableHistory) as caught:
        read(path)
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A run's directory."""
    record(tmp_path / "recording").close()
    write_history(recover(tmp_path / "recording").ops, tmp_path / "history.parquet")
    return tmp_path


def changed(stored: Path, column: str, values: list[object]) -> Path:
    table = pq.read_table(stored / "history.parquet")
    at = table.column_names.index(column)
    path = stored / "changed.parquet"
    pq.write_table(
        table.set_column(at, table.field(at), pa.array(values, table.field(at).type)), path
    )
    return path


def test_a_stored_history_is_its_recording(stored: Path) -> None:
    for path in (stored, stored / "history.parquet"):
        history = read(path)
        assert seen(history) == RECORDED
        assert (history.dialect, history.place_name, history.notes) == ("shalott", "index", ())
        assert history.place.tolist() == [1, 2, 3, 4, 5]
    assert history.call_ns is not None and history.ret_ns is not None
    assert history.call_ns.tolist() == [20, 30, 50, 90, 110]
    assert history.ret_ns.tolist() == [40, 60, 70, 100, -1]


def test_a_run_that_was_cut_short_says_so(stored: Path) -> None:
    (stored / "history.incomplete").write_text("x")
    assert read(stored).notes == (
        "the recording was cut short: what came after its last flush is missing",
    )


def test_equal_times_put_invocations_first(stored: Path) -> None:
    history = read(changed(stored, "invoke_ns", [1, 20, 20, 60, 60, 100]))
    assert [(row[5], row[6]) for row in seen(history)] == [
        (0, 2), (1, 5), (3, 6), (4, None), (7, None)
    ]  # fmt: skip


def test_rows_in_any_order(stored: Path) -> None:
    table = pq.read_table(stored / "history.parquet")
    pq.write_table(table.take(pa.array([5, 1, 0, 4, 2, 3])), stored / "history.parquet")
    assert seen(read(stored)) == RECORDED


def test_several_row_groups_and_chunks(stored: Path) -> None:
    table = pq.read_table(stored / "history.parquet")
    pq.write_table(table, stored / "history.parquet", row_group_size=2)
    assert seen(read(stored)) == RECORDED


def test_no_rows(tmp_path: Path) -> None:
    write_history(HISTORY_SCHEMA.empty_table(), tmp_path / "history.parquet")
    assert len(read(tmp_path)) == 0


def test_columns_that_are_not_needed_may_be_missing(stored: Path) -> None:
    table = pq.read_table(stored / "history.parquet")
    pq.write_table(table.drop_columns(["key", "error", "extra"]), stored / "history.parquet")
    assert [row[:2] for row in seen(read(stored))] == [row[:2] for row in RECORDED]


def test_what_is_wrong_is_named(stored: Path) -> None:
    assert complaint(changed(stored, "type", ["ok"] * 3 + ["okay"] * 3)) == (
        "changed.parquet, operation 3: a type is ok, fail or info, not 'okay'"
    )
    assert complaint(changed(stored, "complete_ns", [200, 40, 5, 70, 100, None])) == (
        "changed.parquet, operation 2: it completes before it is invoked"
    )
    table = pq.read_table(stored / "history.parquet")
    pq.write_table(table.drop_columns(["f", "value"]), stored / "other.parquet")
    assert complaint(stored / "other.parquet") == (
        "other.parquet is Parquet, but no history: it has no column f, value"
    )
    text = table.set_column(5, "value", pa.array(["x"] * 6))
    pq.write_table(text, stored / "text.parquet")
    assert complaint(stored / "text.parquet") == (
        "text.parquet: the column value holds string, not integers"
    )
    whole = (stored / "history.parquet").read_bytes()
    (stored / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    assert complaint(stored / "torn.parquet").startswith("cannot read torn.parquet: ")


@pytest.mark.explore
def test_reading_loads_no_pandas(stored: Path) -> None:
    code = (
        "import sys; from shalott.checkers.reading import read_history;"
        f"read_history({str(stored)!r});"
        "print([name for name in ('pandas', 'pyarrow.compute', 'pyarrow.dataset', 'asyncio')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.explore
def test_a_history_of_text_loads_no_arrow(tmp_path: Path) -> None:
    (tmp_path / "h.edn").write_text("{:process 0, :type :invoke, :f :read}\n")
    code = (
        "import sys; from shalott.checkers.reading import read_history;"
        f"read_history({str(tmp_path / 'h.edn')!r});"
        "print([name for name in ('pandas', 'pyarrow', 'msgspec', 'json') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_large_history_of_both_kinds(tmp_path: Path) -> None:
    """Several row groups, all columns, against EDN of the same operations."""
    n, clients = 5_000, 7
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.integers(1, 50, size=2 * n))
    process = np.arange(n) % clients
    invoke, complete = times[::2], times[1::2]
    kind = np.array(["ok", "fail", "info"])[rng.choice(3, n, p=[0.8, 0.1, 0.1])]
    value = rng.integers(-5, 5, n)
    table = pa.table(
        [
            np.arange(n), process, ["n1"] * n, ["write"] * n, ["k"] * n, value,
            [None] * n, kind, invoke, complete, [None] * n, [None] * n, [None] * n, invoke,
        ],
        names=HISTORY_SCHEMA.names,
    )  # fmt: skip
    write_history(table, tmp_path / "history.parquet")
    stored = read(tmp_path)
    lines = []
    for row in range(n):
        common = f":process {process[row]}, :f :write, :value {value[row]}, :key k"
        lines.append(f"{{:type :invoke, {common}, :time {invoke[row]}}}\n")
        lines.append(f"{{:type :{kind[row]}, {common}, :time {complete[row]}}}\n")
    (tmp_path / "h.edn").write_text("".join(lines))
    assert seen(read(tmp_path / "h.edn")) == seen(stored)
