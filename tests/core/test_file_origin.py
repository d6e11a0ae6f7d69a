"""What a run's Parquet files say of themselves, and that files which say nothing are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shalott.core.errors import StoreError
from shalott.core.history import (
    EMPTY_EVENTS,
    SCHEMA_VERSION,
    FileOrigin,
    read_history,
    read_origin,
    write_events,
    write_history,
)
from shalott.harness.run.store import EVENTS, HISTORY, RunDirectory
from tests.world.harness.report_run import example_history

pytestmark = pytest.mark.unit


def test_a_stored_run_s_files_say_whose_they_are(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "queue-mirrored" / "20260101T000000.000Z")
    directory.path.mkdir(parents=True)
    history = example_history(rate_hz=5)
    directory.save_history(history)
    for name, kind in ((HISTORY, "history"), (EVENTS, "events")):
        assert read_origin(directory.path / name) == FileOrigin(
            kind, "queue-mirrored/20260101T000000.000Z", SCHEMA_VERSION
        )
    told = pq.read_schema(directory.path / HISTORY).metadata
    assert told[b"shalott.schema_version"] == b"1"
    assert directory.load_history().ops.equals(history.ops)


def test_files_of_before_are_read(tmp_path: Path) -> None:
    history = example_history(rate_hz=5)
    path = tmp_path / "history.parquet"
    pq.write_table(history.ops, path)
    assert read_origin(path) == FileOrigin("", "", 0)
    assert read_history(path).ops.equals(history.ops)


def test_what_the_metadata_says_changes_no_row(tmp_path: Path) -> None:
    ops = example_history(rate_hz=5).ops
    for run in ("a/b", "c/d"):
        write_history(ops, tmp_path / "history.parquet", run)
        assert read_history(tmp_path / "history.parquet").ops.equals(ops)


def test_a_later_version_s_number_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    later = example_history(rate_hz=5).ops.replace_schema_metadata({"shalott.schema_version": "7"})
    pq.write_table(later, path)
    assert read_origin(path).schema_version == 7


def test_what_is_no_parquet_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    write_events(EMPTY_EVENTS, path)
    assert read_origin(path).kind == "events"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(StoreError, match="cannot read"):
        read_origin(path)
