"""After any operations a kill loses nothing and a power loss leaves a legal disk.

The oracle, made of the operations alone, is tests/world/disk/legality.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from tests.world.clock.stock_loop import StockLoop
from tests.world.disk.legality import PATHS, Model, ModelFile, is_legal

pytestmark = pytest.mark.explore

PATH = st.sampled_from(PATHS)
Action = tuple[str, str, str, int, int]  # verb, path, other path, offset or size, length
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ("write", "write", "write", "truncate", "sync", "rename", "remove", "sync_dir")
        ),
        PATH,
        PATH,
        st.integers(0, 1600),
        st.integers(1, 1600),
    ),
    min_size=4,
    max_size=24,
)


async def act(disk: SimDisk, model: Model, actions: Sequence[Action]) -> None:
    """The actions that make sense, on both. A byte says which write it is from."""
    await (await disk.open("d/made", create=True)).close()
    for number, (verb, path, other, offset, length) in enumerate(actions):
        known = model.at(path)
        if verb == "sync_dir":
            directory = path.rpartition("/")[0]
            await disk.sync_dir(directory)
            model.sync_directory(directory)
        elif verb == "rename" and known is not None and path != other:
            await disk.rename(path, other)
            model.bind(path, None)
            model.bind(other, known)
        elif verb == "remove" and known is not None:
            await disk.remove(path)
            model.bind(path, None)
        elif verb in ("write", "truncate", "sync"):
            if known is None:
                known = ModelFile()
                model.bind(path, known)
            file = await disk.open(path, create=True)
            if verb == "write":
                data = bytes([number + 1]) * length
                assert await file.pwrite(data, offset) == length
                known.write(offset, data)
            elif verb == "truncate":
                await file.truncate(offset)
                known.truncate(offset)
            else:
                await file.sync()
                known.sync()
            await file.close()


def content(disk: SimDisk, path: str) -> bytes | None:
    return disk.read_all(path) if path in disk.files() else None


@given(ACTIONS, st.integers(0, 1 << 30), st.sampled_from(["torn", "torn", "drop", "keep"]))
def test_a_power_loss_leaves_a_legal_disk(actions: list[Action], seed: int, loss: str) -> None:
    disk = SimDisk(StockLoop(), seed, "n1", DiskKnobs(power_loss=loss))  # type: ignore[arg-type]

    async def body() -> None:
        model = Model()
        await act(disk, model, actions)
        cached = {path: content(disk, path) for path in PATHS}
        disk.power_loss()
        event(f"lost something: {cached != {path: content(disk, path) for path in PATHS}}")
        for path in PATHS:
            assert is_legal(model, path, content(disk, path)), path
            if loss == "keep":
                assert content(disk, path) == cached[path]
        # What is found once is durable: another power loss changes nothing.
        after = {path: content(disk, path) for path in PATHS}
        disk.power_loss()
        assert {path: content(disk, path) for path in PATHS} == after
        assert disk.used_bytes == sum(len(disk.read_all(path)) for path in disk.files())

    asyncio.run(body())


@given(ACTIONS, st.integers(0, 1 << 30))
def test_a_kill_loses_nothing(actions: list[Action], seed: int) -> None:
    disk = SimDisk(StockLoop(), seed, "n1")

    async def body() -> None:
        model = Model()
        await act(disk, model, actions)
        disk.kill()
        for path in PATHS:
            known = model.at(path)
            assert content(disk, path) == (None if known is None else known.content)
        assert disk.used_bytes == sum(len(disk.read_all(path)) for path in disk.files())

    asyncio.run(body())


@given(ACTIONS, st.integers(0, 1 << 30))
def test_a_disk_on_which_everything_was_synced_has_one_future(
    actions: list[Action], seed: int
) -> None:
    disk = SimDisk(StockLoop(), seed, "n1")

    async def body() -> None:
        await act(disk, Model(), actions)
        for path in disk.files():
            file = await disk.open(path, create=False)
            await file.sync()
            await file.close()
        for directory in ("d", ""):
            await disk.sync_dir(directory)
        before = {path: disk.read_all(path) for path in disk.files()}
        disk.power_loss()
        assert {path: disk.read_all(path) for path in disk.files()} == before

    asyncio.run(body())


def test_the_oracle_knows_an_illegal_disk() -> None:
    model = Model()
    file = ModelFile()
    file.write(0, b"s" * 1024)
    file.sync()
    model.bind("a", file)
    model.sync_directory("")
    assert is_legal(model, "a", b"s" * 1024)
    assert not is_legal(model, "a", None), "its name was synced"
    assert not is_legal(model, "a", b"s" * 1000), "its bytes were synced"
    file.write(0, b"w" * 1024)
    assert is_legal(model, "a", b"s" * 512 + b"w" * 512)
    assert not is_legal(model, "a", b"s" * 500 + b"w" * 524), "a torn sector"
    assert not is_legal(model, "a", b"x" * 1024), "never written"
    assert not is_legal(model, "b", b"s" * 1024), "never there"
