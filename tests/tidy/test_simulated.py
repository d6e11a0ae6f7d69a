"""What runs inside a simulation besides the broker keeps to its ban list, and every ban finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.tidy.simulated import (
    FILES,
    SIMULATED_BANS,
    SIMULATED_EXEMPT,
    is_simulated,
    simulated_findings,
    simulated_violations,
)
from tests.tidy.sources import Source, parse, python_sources

pytestmark = pytest.mark.lint

# For each ban, snippets that must be found, one finding each.
PLANTED: Mapping[str, Sequence[str]] = {
    "clock": ("import time\n", "from time import perf_counter\n"),
    "datetime": ("from datetime import datetime\nx = datetime.now()\n",),
    "random": ("import random\n", "import secrets\n"),
    "uuid": ("from uuid import uuid4\n",),
    "machine": ("import os\n", "from os import urandom\n", "def f():\n    import platform\n"),
    "directory order": ("def f(p):\n    return [x for x in p.iterdir()]\n",),
    "threads": (
        "import asyncio\nasync def f(g):\n    await asyncio.to_thread(g)\n",
        "async def f(loop, g):\n    await loop.run_in_executor(None, g)\n",
    ),
    "subprocess": ("import subprocess\n",),
    "signals": ("import signal\n",),
    "sockets": ("import socket\n",),
    "set": (
        "def f(a):\n    return list({x for x in a})\n",
        "def f(a):\n    return [x for x in set(a)]\n",
        "def f(a, b):\n    for x in set(a) - set(b):\n        b(x)\n",
        "def f(a, b):\n    return [*(a.keys() & b.keys())]\n",
        "def f(a):\n    return sorted(x for y in a for x in {y, 1})\n",
    ),
    "hash": ("def f(a):\n    return hash(a)\n",),
    "id": ("def f(a):\n    return sorted(a, key=id)\n",),
    "weak sets": ("from weakref import WeakSet\n",),
    "as_completed": ("from asyncio import as_completed\n",),
    "all_tasks": ("import asyncio\ndef f():\n    return asyncio.all_tasks()\n",),
    "eager tasks": ("import asyncio\nx = asyncio.eager_task_factory\n",),
    "contexts": ("import contextvars\n",),
    "garbage collector": ("import gc\n",),
    "module state": ("total = 0\ndef f():\n    global total\n    total += 1\n",),
}

CLEAN = """
import asyncio
from pathlib import Path

NAMES = {"a": 1}


class Cluster:
    capabilities: frozenset[str]


async def run(nodes: set[str], names: list[str], path: Path) -> frozenset[str]:
    deadline_s = asyncio.get_running_loop().time() + 1
    masters = sorted({name for name in names})
    behind = sorted(set(nodes) - set(names))
    count = len({name for name in names} - {"a"})
    subset = set(names) <= {"a", "b"} and names[0] in {"a", "b"}
    files = sorted(path.glob("*"))
    await asyncio.sleep(deadline_s)
    return masters, behind, count, subset, files
"""


def simulated_sources() -> list[Source]:
    return [source for source in python_sources() if is_simulated(source.path)]


def test_what_runs_in_a_simulation_is_deterministic() -> None:
    found = [line for source in simulated_sources() for line in simulated_violations(source)]
    assert not found, "\n" + "\n".join(found)


def test_the_rule_reaches_what_it_is_about() -> None:
    paths = [source.path for source in simulated_sources()]
    assert all(path in paths for path in FILES), "a file was renamed: the rule no longer finds it"
    assert {
        "shalott/cluster/sim/loop/loop.py",
        "shalott/nemesis/runner.py",
        "shalott/clients/amqp/queue_client.py",
    } <= {*paths}


def test_every_ban_has_a_planted_snippet() -> None:
    assert [ban.name for ban in SIMULATED_BANS] == list(PLANTED)


@pytest.mark.parametrize(
    ("ban", "snippet"),
    [(ban, snippet) for ban, snippets in PLANTED.items() for snippet in snippets],
)
def test_a_planted_snippet_is_found_with_its_replacement(ban: str, snippet: str) -> None:
    found = simulated_violations(parse("shalott/workloads/planted.py", snippet))
    instead = next(each.instead for each in SIMULATED_BANS if each.name == ban)
    assert len(found) == 1, found
    assert found[0].endswith(f"{ban}: {instead}")


def test_sets_whose_order_cannot_show_are_welcome() -> None:
    assert simulated_violations(parse("shalott/nemesis/clean.py", CLEAN)) == []


def test_every_exemption_is_needed() -> None:
    used = {
        (source.path, ban.name)
        for source in simulated_sources()
        for _, ban in simulated_findings(source)
    }
    present = {source.path for source in simulated_sources()}
    wanted = sorted(key for key in SIMULATED_EXEMPT if key[0] in present)
    assert wanted == sorted(used & SIMULATED_EXEMPT.keys())
