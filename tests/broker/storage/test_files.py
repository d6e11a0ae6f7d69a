"""Files of one number."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.disk import OsDisk
from broker.errors import StorageError
from broker.storage.files import read_number, write_number

pytestmark = pytest.mark.unit


def test_a_number_is_kept_and_an_absent_one_is_zero(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        assert await read_number(disk, "incarnation") == 0
        await write_number(disk, "incarnation", 100)
        await write_number(disk, "incarnation", 7)
        assert await read_number(disk, "incarnation") == 7
        (tmp_path / "incarnation").write_text("rubbish")
        with pytest.raises(StorageError):
            await read_number(disk, "incarnation")
        await disk.close()

    asyncio.run(body())
