"""Our own broker as the program of a simulated machine: a coroutine that returns its exit code.

``broker_program`` does what ``python -m shalott.broker`` does on an operating system: open the node
on what the disk holds, run it until it is asked to stop or gives itself up.
"""

from __future__ import annotations

import asyncio
import tomllib
from functools import partial

from shalott.broker.base.env import Platform
from shalott.broker.base.errors import BrokerError
from shalott.broker.nodes import open_node, parse_config
from shalott.broker.rabbit.node import node as rabbit
from shalott.broker.rocket.node import node as rocket
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.sim.buggify import Buggify
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.machine import Machine, Program, SimEventLog
from shalott.core.rng import Stream

# A run loads nothing: what modules do when they are loaded would be part of the first one.
LOADED = rabbit, rocket
EXIT_ORDERLY = 0
EXIT_GAVE_UP = 70  # as broker.__main__ has them
EXIT_CONFIG = 78


def broker_program(spec: NodeSpec, seed: int, buggify: Buggify) -> Program:
    """The broker of ``spec``, with random sources keyed by ``seed``."""
    config = parse_config(tomllib.loads(spec.files["node.toml"]))

    async def program(machine: Machine, process: SimProcess, stop_asked: asyncio.Event) -> int:
        async def open_events(incarnation: int) -> SimEventLog:
            return SimEventLog(machine, incarnation, process)

        try:
            platform = Platform(
                clock=machine.clock,
                make_rng=lambda incarnation: Stream(seed, "node", config.name, incarnation),
                disk=machine.disk,
                open_events=open_events,
                buggify=buggify,
                witness=partial(machine.witness, machine.name, process.incarnation),
                starts=process.incarnation,
            )
            node = await open_node(config, platform)
            machine.node = node
            await node.start()
        except (BrokerError, OSError) as error:
            machine.output.append(f"broker: {config.name} can't start: {error}")
            return EXIT_CONFIG
        asked = asyncio.ensure_future(stop_asked.wait())
        await asyncio.wait((asked, node.fatal), return_when=asyncio.FIRST_COMPLETED)
        if node.fatal.done():
            machine.output.append(f"giving up: {node.fatal.result()}")
            return EXIT_GAVE_UP
        await node.stop()
        return EXIT_ORDERLY

    return program
