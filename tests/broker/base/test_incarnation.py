"""The number of a life grows with every start, on an empty disk too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.broker.__main__ import count_start
from shalott.broker.base.disk import OsDisk
from shalott.broker.base.files import begin_life

pytestmark = pytest.mark.unit


def lives(directory: Path, *starts: int) -> list[int]:
    async def scenario() -> list[int]:
        disk = OsDisk(directory)
        numbers = [await begin_life(disk, each) for each in starts]
        await disk.close()
        return numbers

    return asyncio.run(scenario())


def test_each_start_has_the_next_number(tmp_path: Path) -> None:
    assert lives(tmp_path, 1, 2, 3) == [1, 2, 3]
    assert lives(tmp_path, 0) == [4]  # the machine does not count: the disk says it


def test_after_the_disk_was_replaced_the_machine_knows_it(tmp_path: Path) -> None:
    assert lives(tmp_path / "old", 1, 2) == [1, 2]
    assert lives(tmp_path / "new", 3) == [3]


def test_starts_are_counted_beside_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert [count_start(data), count_start(data)] == [1, 2]
    assert not data.exists() and (tmp_path / "data.starts").read_text() == "2"
    (tmp_path / "data.starts").write_text("")  # torn by a loss of power
    assert count_start(data) == 1
    assert count_start(tmp_path / "missing" / "data") == 0
