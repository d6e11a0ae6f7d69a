"""Transactions of the original's Java client at our broker."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.clients.rocketmq.rocket_client import Queue, Refused, RocketClient
from tests.world.clock.turns import answered
from tests.world.rocket import original
from tests.world.rocket.original import OURS, Both

pytestmark = [pytest.mark.local, pytest.mark.nightly("a Java program is compiled and asked back")]

PROGRAM = Path(__file__).with_name("Transactions.java")


def test_javas_producer_commits_rolls_back_and_is_asked(both: Both, tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("a Java compiler is not installed")
    address = both.brokers[OURS]

    async def bodies(count: int) -> list[bytes]:
        client = RocketClient([], dial=parse_address, timeout_ms=10_000)
        try:

            async def look() -> list[bytes] | None:
                got = await client.pull(address, Queue("tx", OURS, 0), 0, wait_ms=100)
                found = [one.body for one in got.messages]
                return found if len(found) >= count else None

            return list(await answered(look, "what was committed", step_s=0.2))
        finally:
            await client.close()

    async def make() -> None:
        client = RocketClient([both.name_server], dial=parse_address, timeout_ms=10_000)
        try:
            await client.create_topic(address, "tx", 1)

            async def is_known() -> bool:
                with contextlib.suppress(Refused):
                    return bool((await client.route("tx")).master(OURS))
                return False

            await answered(is_known, "the name server knows the topic", step_s=0.2)
        finally:
            await client.close()

    asyncio.run(make())
    classes = ["-cp", f"{original.jars()}/*", f"-Duser.home={tmp_path}"]  # its logs go there
    command = ["java", *classes, str(PROGRAM), both.name_server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(("SEND_OK", "asked"))]
    assert said == ["SEND_OK"] * 3 + ["asked [asked]"], done.stdout
    assert asyncio.run(bodies(2)) == [b"commit", b"asked"]
