"""Programs of the original's Java client at our broker: transactions, requests, pops."""

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

pytestmark = [
    pytest.mark.local,
    pytest.mark.nightly("Java programs are compiled and asked back"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="a Java compiler is not installed"),
]

HERE = Path(__file__).parent


async def make(both: Both, topic: str) -> None:
    """At our broker, until the name server knows it."""
    client = RocketClient([both.name_server], dial=parse_address, timeout_ms=10_000)
    try:
        await client.create_topic(both.brokers[OURS], topic, 1)

        async def is_known() -> bool:
            with contextlib.suppress(Refused):
                return bool((await client.route(topic)).master(OURS))
            return False

        await answered(is_known, "the name server knows the topic", step_s=0.2)
    finally:
        await client.close()


def said_by(program: str, both: Both, home: Path) -> list[str]:
    classes = ["-cp", f"{original.jars()}/*", f"-Duser.home={home}"]  # its logs go there
    command = ["java", *classes, str(HERE / program), both.name_server, both.brokers[OURS]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    words = ("SEND_OK", "asked", "answered", "popped", "failed")
    return [line for line in done.stdout.splitlines() if line.startswith(words)]


def test_javas_producer_commits_rolls_back_and_is_asked(both: Both, tmp_path: Path) -> None:
    async def bodies(count: int) -> list[bytes]:
        client = RocketClient([], dial=parse_address, timeout_ms=10_000)
        try:

            async def look() -> list[bytes] | None:
                queue = Queue("tx", OURS, 0)
                got = await client.pull(both.brokers[OURS], queue, 0, wait_ms=100)
                found = [one.body for one in got.messages]
                return found if len(found) >= count else None

            return list(await answered(look, "what was committed", step_s=0.2))
        finally:
            await client.close()

    asyncio.run(make(both, "tx"))
    said = said_by("Transactions.java", both, tmp_path)
    assert said == ["SEND_OK"] * 3 + ["asked [asked]"]
    assert asyncio.run(bodies(2)) == [b"commit", b"asked"]


def test_javas_producer_is_answered_what_it_asks(both: Both, tmp_path: Path) -> None:
    asyncio.run(make(both, "rq"))
    assert said_by("Requests.java", both, tmp_path) == ["answered to one", "answered to two"]


def test_javas_consumer_pops_and_is_given_again_what_it_put_off(both: Both, tmp_path: Path) -> None:
    asyncio.run(make(both, "pp"))
    said = said_by("Pops.java", both, tmp_path)
    assert sorted(said) == ["popped later 0 true", "popped later 1 true", "popped once 0 true"]
