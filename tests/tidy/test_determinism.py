"""The broker keeps to the ban list, and every ban finds what it bans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.tidy.determinism import BANS, EXEMPT, broker_findings, determinism_violations
from tests.tidy.sources import package_sources, parse

pytestmark = pytest.mark.lint

# For each ban, snippets that must be found, one finding each.
PLANTED: Mapping[str, Sequence[str]] = {
    "clock": (
        "import time\n",
        "from time import monotonic as now\n",
        "def f():\n    import time\n",
    ),
    "datetime": (
        "import datetime\nx = datetime.datetime.now()\n",
        "from datetime import datetime\nx = datetime.now()\n",
        "from datetime import datetime as D\nx = D.utcnow()\n",
        "from datetime import date\nx = date.today()\n",
    ),
    "random": ("import random\n", "from random import choice\n", "import secrets\n"),
    "uuid": ("import uuid\n", "from uuid import uuid4\n"),
    "open": ("def f(p):\n    return open(p)\n",),
    "files": (
        "import os\n",
        "from os import path\n",
        "import pathlib\n",
        "from shutil import rmtree\n",
    ),
    "threads": (
        "import threading\n",
        "from concurrent.futures import ThreadPoolExecutor\n",
        "import asyncio\nasync def f(g):\n    await asyncio.to_thread(g)\n",
        "from asyncio import to_thread\n",
        "async def f(loop, g):\n    await loop.run_in_executor(None, g)\n",
    ),
    "subprocess": (
        "import subprocess\n",
        "import asyncio\nasync def f():\n    await asyncio.create_subprocess_exec('ls')\n",
    ),
    "signals": ("import signal\n", "def f(loop, g):\n    loop.add_signal_handler(15, g)\n"),
    "sockets": ("import socket\n", "def f(loop, g):\n    loop.add_reader(0, g)\n"),
    "set": (
        "x = {1, 2}\n",
        "x = {n for n in range(3)}\n",
        "def f(a):\n    return set(a)\n",
        "def f(a):\n    return frozenset(a)\n",
        "def f(a: set[str]) -> None: ...\n",
        "def f(a, b):\n    return a.keys() & b.keys()\n",
        "def f(a, b):\n    return a.keys() - b\n",
    ),
    "hash": ("def f(a):\n    return hash(a) % 8\n",),
    "id": ("def f(a):\n    return id(a)\n", "def f(a):\n    return sorted(a, key=id)\n"),
    "weak sets": (
        "import weakref\nclass A:\n    def f(self):\n        self.a = weakref.WeakSet()\n",
        "from weakref import WeakSet\n",
    ),
    "as_completed": (
        "import asyncio\ndef f(a):\n    return asyncio.as_completed(a)\n",
        "from asyncio import as_completed\n",
    ),
    "all_tasks": ("import asyncio as aio\ndef f():\n    return aio.all_tasks()\n",),
    "eager tasks": (
        "import asyncio\ndef f(loop):\n    loop.set_task_factory(asyncio.eager_task_factory)\n",
    ),
    "contexts": (
        "import contextvars\n",
        "def f(loop, g, c):\n    loop.create_task(g(), context=c)\n",
    ),
    "garbage collector": ("import gc\n",),
    "module state": (
        "pending = []\n",
        "cache: dict[str, int] = {}\n",
        "import itertools\nnumbers = itertools.count()\n",
        "from collections import deque\nqueue = deque()\n",
        "class A:\n    members = []\n",
        "class A:\n    members: list[int] = []\n",
        "class A(B):\n    members = []\n",
        "total = 0\ndef f():\n    global total\n    total += 1\n",
        "import functools\n@functools.cache\ndef f(a):\n    return a\n",
        "from functools import lru_cache\n@lru_cache(maxsize=8)\ndef f(a):\n    return a\n",
    ),
}

CLEAN = """
import asyncio
import zlib
from collections.abc import Mapping
from datetime import timedelta

import msgspec

HANDLERS: Mapping[str, int] = {"a": 1}
NAMES = ("a", "b")
__all__ = ["A", "B"]


class A(msgspec.Struct):
    detail: dict[str, int] = {}
    id: int = 0

    def __hash__(self) -> int:
        return self.id


class B:
    def __init__(self) -> None:
        self.pending: list[int] = []

    async def run(self, env, disk, loop):
        file = await env.disk.open("journal", create=True)
        seen = dict.fromkeys(["a", "b"])
        async with asyncio.TaskGroup() as group, asyncio.timeout(1):
            group.create_task(file.sync())
        return zlib.crc32(b"a"), loop.time(), 3 - 1, 5 & 3, sorted(seen), timedelta(1)
"""


def test_the_broker_is_deterministic() -> None:
    found = [
        line for source in package_sources("broker") for line in determinism_violations(source)
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_ban_has_a_planted_snippet() -> None:
    assert [ban.name for ban in BANS] == list(PLANTED)


@pytest.mark.parametrize(
    ("ban", "snippet"),
    [(ban, snippet) for ban, snippets in PLANTED.items() for snippet in snippets],
)
def test_a_planted_snippet_is_found_with_its_replacement(ban: str, snippet: str) -> None:
    found = determinism_violations(parse("shalott/broker/planted.py", snippet))
    instead = next(each.instead for each in BANS if each.name == ban)
    assert len(found) == 1, found
    assert found[0].endswith(f"{ban}: {instead}")


def test_ordinary_asyncio_is_not_banned() -> None:
    assert determinism_violations(parse("shalott/broker/clean.py", CLEAN)) == []


def test_an_exemption_holds_for_its_file_alone() -> None:
    assert determinism_violations(parse("shalott/broker/base/env.py", "import time\n")) == []
    assert determinism_violations(parse("shalott/broker/base/env.py", "import uuid\n")) != []


def test_every_exemption_is_needed() -> None:
    used = {
        (source.path, ban.name)
        for source in package_sources("broker")
        for _, ban in broker_findings(source)
    }
    assert sorted(EXEMPT) == sorted(used & EXEMPT.keys())
