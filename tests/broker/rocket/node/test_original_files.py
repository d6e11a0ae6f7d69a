"""What RocketMQ itself wrote, under the hands of our brokers: nothing of it is cut or removed.

The files are made by the original while the tests run.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shalott.broker.base.disk import OsDisk
from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import StoreConfig, parse_address
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient, RocketError
from shalott.clients.rocketmq.stored_messages import decode_messages
from shalott.cluster.local.backend import HOST, port_of, reserve_port
from tests.world.clock.turns import answered
from tests.world.env import Events
from tests.world.rocket import original
from tests.world.rocket.original import JAVA, QUEUE_UNITS, SEGMENT_BYTES, Both
from tests.world.waiting import until

pytestmark = pytest.mark.local

COUNT = 7
STORE = StoreConfig(segment_bytes=SEGMENT_BYTES, queue_segment_units=QUEUE_UNITS)


def env_of(disk: OsDisk) -> Env:
    return Env("n1", 1, SystemClock(), seeded_rng(1, 1), disk, Events("n1", []))


async def fill(address: str, topic: str) -> None:
    """Make a topic at an original and send to it; a member that no quorum elected yet refuses."""
    client = RocketClient([], dial=parse_address, timeout_ms=10_000)
    try:

        async def is_taken() -> bool:
            try:
                await client.create_topic(address, topic, 1)
                await client.send(address, Queue(topic, JAVA, 0), b"0", unique_key="K0")
            except RocketError:
                return False
            return True

        await answered(is_taken, "a master is elected", step_s=0.2)
        for number in range(1, COUNT):
            queue, body = Queue(topic, JAVA, 0), b"%d" % number
            await client.send(address, queue, body, unique_key=f"K{number}")
    finally:
        await client.close()


@pytest.fixture(scope="module")
def ledger_of_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A DLedger member's directory, as kill -9 left it after its first checkpoint."""
    home = tmp_path_factory.mktemp("dledger")
    with contextlib.ExitStack() as stack:
        ha, raft = (
            port_of(stack.enter_context(contextlib.closing(reserve_port()))) for _ in range(2)
        )
        port = stack.enter_context(original.held_broker_ports())
        member = original.broker(
            home,
            port,
            ha,
            "",
            enableDLegerCommitLog="true",
            dLegerGroup=JAVA,
            dLegerPeers=f"n0-{HOST}:{raft}",
            dLegerSelfId="n0",
        )
        with original.originals(member):
            asyncio.run(fill(f"{HOST}:{port}", "t"))
            ledger = member.store / "dledger-n0"
            until((ledger / "checkpoint").exists, "the member wrote its checkpoint")
        yield ledger


def test_a_ledger_of_an_original_is_taken_over_whole(ledger_of_java: Path, tmp_path: Path) -> None:
    shutil.copytree(ledger_of_java / "data", tmp_path / "dledger" / "data")
    for name in ("currterm", "checkpoint"):
        shutil.copy(ledger_of_java / name, tmp_path / "dledger" / name)
    file = tmp_path / "dledger" / "data" / ("0" * 20)
    before = file.read_bytes()

    async def body() -> None:
        disk = OsDisk(tmp_path)
        ledger = await Ledger.open(env_of(disk), SEGMENT_BYTES, 0)
        assert ledger.hard_state.voted_for == "n0"  # the vote is not given again
        entries = await ledger.load(1, SEGMENT_BYTES)
        bodies = [one.body for entry in entries for one in decode_messages(entry.data)]
        assert bodies[-COUNT:] == [b"%d" % number for number in range(COUNT)]
        assert [entry.index for entry in entries] == list(range(1, ledger.last_index + 1))
        end = ledger.directory.end
        await ledger.close()
        await disk.close()
        assert file.read_bytes() == before[:end]
        assert before[end:].count(0) == SEGMENT_BYTES - end

    asyncio.run(body())


@pytest.mark.parametrize("damage", ["what follows", "the first entry", "its first file"])
def test_what_is_not_understood_of_it_is_left_alone(
    ledger_of_java: Path, tmp_path: Path, damage: str
) -> None:
    shutil.copytree(ledger_of_java / "data", tmp_path / "dledger" / "data")
    file = tmp_path / "dledger" / "data" / ("0" * 20)
    match damage:
        case "what follows":
            with file.open("r+b") as opened:
                opened.seek(SEGMENT_BYTES - 100)
                opened.write(b"later")
        case "the first entry":
            with file.open("r+b") as opened:
                opened.write(b"\0\0\0\2")
        case _:
            file = file.rename(file.with_name(f"{SEGMENT_BYTES:020d}"))
    before = file.read_bytes()

    async def body() -> None:
        disk = OsDisk(tmp_path)
        try:
            with pytest.raises(StorageError, match=r"left as it is|first entries"):
                await Ledger.open(env_of(disk), SEGMENT_BYTES, 0)
        finally:
            await disk.close()

    asyncio.run(body())
    assert file.read_bytes() == before


def test_an_originals_index_stays_when_our_broker_runs_on_its_store(
    both: Both, tmp_path: Path
) -> None:
    asyncio.run(fill(both.brokers[JAVA], "indexed"))
    store = both.master.store

    def index_files() -> list[Path]:
        return [path for path in (store / "index").iterdir() if path.stat().st_size]

    until(lambda: bool(index_files()), "the original has an index")
    for name in ("commitlog", "consumequeue", "config", "index"):
        shutil.copytree(store / name, tmp_path / name)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}

    async def body() -> None:
        disk = OsDisk(tmp_path)
        for _ in range(2):
            opened = await MessageStore.open(env_of(disk), STORE)
            await opened.dispatched(opened.log.max_offset)
            await opened.reader.indexed(opened.log.max_offset)
            found = await opened.reader.find_by_key(
                "indexed", "K3", begin_ms=0, end_ms=1 << 62, max_messages=9
            )
            assert [one.body for one in decode_messages(b"".join(found.messages))] == [b"3"]
            await opened.close()
        await disk.close()

    asyncio.run(body())
    there = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    assert there == kept
    assert [path for path in (tmp_path / "keyindex").iterdir() if path.stat().st_size]  # ours
