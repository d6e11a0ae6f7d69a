"""The arrows between the rooms hold, and the rule that says so can fail."""

from __future__ import annotations

import pytest

from tests.tidy.import_table import ROOMS, import_violations, room_of
from tests.tidy.sources import PACKAGES, Source, package_sources, parse

pytestmark = pytest.mark.unit


def known_modules() -> list[str]:
    return [source.module for source in package_sources()]


def judge(path: str, text: str) -> list[str]:
    return import_violations(parse(path, text), [*known_modules(), "cluster.docker", "broker.node"])


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    known = known_modules()
    found = [
        line for source in package_sources(package) for line in import_violations(source, known)
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_package_has_a_row() -> None:
    assert {room_of(package).modules[0].partition(".")[0] for package in PACKAGES} == set(PACKAGES)


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("broker/node.py", "import harness.op\n", "may not import harness.op"),
        ("broker/amqp/channel.py", "import docker\n", "may not use the library docker"),
        ("harness/op.py", "import pyarrow\n", "may not use the library pyarrow"),
        ("harness/plan.py", "from harness import run\n", "may not import harness"),
        ("harness/plan.py", "from harness.run import run\n", "may not import harness.run"),
        ("checkers/queue.py", "import asyncio\n", "never imports asyncio"),
        ("checkers/queue.py", "from asyncio import sleep\n", "never imports asyncio"),
        ("checkers/queue.py", "def f():\n    import cffi\n", "may not use the library cffi"),
        ("checkers/queue.py", "from harness.plan import Plan\n", "may not import harness.plan"),
        ("workloads/queue.py", "import pika\n", "may not use the library pika"),
        (
            "workloads/clients/amqp.py",
            "from broker.amqp import queues\n",
            "may not import broker.amqp",
        ),
        (
            "cluster/docker/backend.py",
            "from broker.node import run\n",
            "may not import broker.node",
        ),
        ("cluster/docker/backend.py", "from nemesis import grudges\n", "may not import nemesis"),
        (
            "nemesis/partition.py",
            "from cluster.docker import backend\n",
            "may not import cluster.docker",
        ),
        ("nemesis/partition.py", "from ..cluster import docker\n", "may not import cluster.docker"),
        ("harness/run.py", "from cluster.docker import boot\n", "only inside a function"),
        ("harness/run.py", "import docker\n", "may not use the library docker"),
        (
            "harness/run.py",
            "def f():\n    import spark_analysis.jobs\n",
            "may not import spark_analysis",
        ),
        ("harness/commands.py", "import spark_analysis.jobs\n", "only inside a function"),
        (
            "harness/run.py",
            "import importlib\nimportlib.import_module('broker.node')\n",
            "may not import broker",
        ),
        ("spark_analysis/jobs.py", "from harness.run import run\n", "may not import harness.run"),
    ],
)
def test_an_arrow_the_wrong_way_is_found(path: str, text: str, complaint: str) -> None:
    found = judge(path, text)
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("broker/node.py", "import asyncio\nimport pamqp.frame\nfrom broker.amqp import queues\n"),
        ("broker/amqp/channel.py", "from . import queues\nfrom .. import env\n"),
        ("harness/history.py", "import pyarrow as pa\n"),
        ("checkers/engine/lib.py", "import cffi\nfrom checkers.base import Result\n"),
        ("cluster/sim/world.py", "from broker.node import run\nfrom cluster.base import Cluster\n"),
        (
            "nemesis/partition.py",
            "from cluster.base import Cluster\nfrom harness.plan import FaultAction\n",
        ),
        ("harness/run.py", "def f():\n    from cluster.docker import boot\n"),
        (
            "harness/run.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cluster.docker\n",
        ),
        ("harness/commands.py", "def report():\n    import spark_analysis.jobs\n"),
    ],
)
def test_an_arrow_the_right_way_is_not(path: str, text: str) -> None:
    assert judge(path, text) == []


def test_no_room_is_shadowed_by_another_of_the_same_name() -> None:
    rows = [prefix for room in ROOMS for prefix in room.modules]
    assert len(rows) == len(dict.fromkeys(rows))


def test_a_package_is_named_like_its_directory() -> None:
    source = Source("broker/amqp/__init__.py", "", parse("x.py", "").tree)
    assert (source.module, source.package) == ("broker.amqp", "broker.amqp")
