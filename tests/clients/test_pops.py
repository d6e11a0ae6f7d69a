"""Our own client's pops at our own broker: what it says it was given, and what it acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.clients.rocketmq import pops
from shalott.clients.rocketmq.pops import Popper
from shalott.clients.rocketmq.rocket_client import RocketClient
from shalott.core.message_body import encode_body
from tests.world.clock.turns import passes
from tests.world.rocket.broker import World, in_world

pytestmark = pytest.mark.unit

RETRIES = "%RETRY%shalott-pops_t/0"


@pytest.mark.parametrize(
    ("share", "first", "later"),
    [
        ("none", [("t/0", 0), ("t/0", 1)], []),
        ("LEFT", [], [(RETRIES, 0), (RETRIES, 1)]),
        ("LONGER", [("t/0", 0), ("t/0", 1)], []),
    ],
)
def test_what_was_drawn_is_done_and_told(
    share: str, first: list[Any], later: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEFT", "LONGER"):
        monkeypatch.setattr(pops, name, float(name == share))

    async def body(world: World) -> None:
        for value in (7, 8):
            await world.send(encode_body(value, 12))
        await world.settle()
        client = RocketClient([], dial=parse_address)
        popper = Popper(client, 1)
        revives = asyncio.create_task(deliver_delayed(world.broker))

        async def popped(*, calm: bool) -> dict[str, Any]:
            until_s = asyncio.get_running_loop().time() + 2
            told = await popper.pop(world.address, "shalott", "t", calm=calm, deadline_s=until_s)
            return dict(told)

        told = await popped(calm=False)
        assert told["popped"] == [("t/0", 0, 7), ("t/0", 1, 8)]
        assert told["acked"] == first and told["unsure"] == []
        await passes(5)
        told = await popped(calm=True)
        assert told.get("acked", []) == later
        assert [value for *_, value in told["popped"]] == ([7, 8] if later else [])
        assert (await popped(calm=True))["popped"] == []
        revives.cancel()
        await asyncio.gather(revives, return_exceptions=True)
        await client.close()

    in_world(body)
