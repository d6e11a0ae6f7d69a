"""The arrows between the rooms hold and point one way, and the rules that say so can fail."""

from __future__ import annotations

import pytest

from tests.tidy.folder_graph import cycles, folder_graph
from tests.tidy.import_table import OUTSIDE, ROOMS, drawn, import_violations, room_of
from tests.tidy.sources import PACKAGES, ROOT, package_sources, parse

pytestmark = pytest.mark.lint


def known_modules() -> list[str]:
    return [source.module for source in package_sources()]


def judge(path: str, text: str) -> list[str]:
    return import_violations(parse(path, text), known_modules())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    known = known_modules()
    found = [
        line for source in package_sources(package) for line in import_violations(source, known)
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_module_has_a_room() -> None:
    homeless = [name for name in known_modules() if room_of(name) is OUTSIDE]
    assert homeless == ["shalott.harness", "shalott.harness.fleet"]  # empty


def test_no_arrow_of_the_table_points_upwards() -> None:
    places = {room.name: place for place, room in enumerate(ROOMS)}
    assert len(places) == len(ROOMS), "a room stands in the table twice"
    for place, room in enumerate(ROOMS):
        for other in (*room.ours, *room.lazily):
            named = room_of(other)
            assert named is OUTSIDE or places[named.name] <= place, f"{room.name} -> {other}"


def test_the_document_draws_the_table() -> None:
    """To redraw it: python -c 'from tests.tidy.import_table import drawn; print(drawn())'."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    shown = text.partition("<!-- rooms -->\n")[2].partition("\n<!-- /rooms -->")[0]
    assert shown == drawn()


def test_the_folders_form_a_graph_without_cycles() -> None:
    found = cycles(folder_graph([*package_sources()]))
    assert not found, "\n".join(" -> ".join(cycle) for cycle in found)


def test_a_cycle_of_folders_is_found() -> None:
    planted = [
        parse("nemesis/one.py", "import shalott.cluster.two\n"),
        parse("cluster/two.py", "def f():\n    from shalott.workloads import three\n"),
        parse("workloads/three.py", "from shalott.nemesis.one import Thing\n"),
        parse("checkers/four.py", "from shalott.nemesis.one import Thing\n"),
    ]
    graph = folder_graph(planted)
    assert graph["checkers"] == ("nemesis",)
    assert {cycle[0] for cycle in cycles(graph)} >= {"nemesis", "cluster", "workloads"}
    assert cycles(folder_graph(planted[:2])) == []


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        (
            "broker/rabbit/node/node.py",
            "import shalott.harness.core.op\n",
            "may not import shalott.harness.core.op",
        ),
        (
            "broker/rabbit/node/node.py",
            "from shalott.broker.rocket.config import RocketConfig\n",
            "may not import shalott.broker.rocket.config",
        ),
        (
            "broker/rocket/node/node.py",
            "from shalott.broker.rabbit.config import NodeConfig\n",
            "may not import shalott.broker.rabbit.config",
        ),
        (
            "broker/raft/core.py",
            "from shalott.broker.rocket.config import RaftConfig\n",
            "may not import shalott.broker.rocket.config",
        ),
        ("broker/rabbit/amqp/channel.py", "import docker\n", "may not use the library docker"),
        ("broker/rabbit/amqp/channel.py", "import broker\n", "may not use the library broker"),
        ("harness/core/op.py", "import typer\n", "may not use the library typer"),
        (
            "harness/core/plan.py",
            "from shalott.harness.run.run import run\n",
            "may not import shalott.harness.run.run",
        ),
        ("checkers/queue.py", "import asyncio\n", "never imports asyncio"),
        ("checkers/queue.py", "from asyncio import sleep\n", "never imports asyncio"),
        ("checkers/queue.py", "def f():\n    import cffi\n", "may not use the library cffi"),
        (
            "checkers/queue.py",
            "from shalott.workloads.queue import queue_workload\n",
            "may not import shalott.workloads.queue",
        ),
        (
            "workloads/queue.py",
            "from shalott.cluster.docker.engine import Engine\n",
            "may not import shalott.cluster.docker.engine",
        ),
        (
            "nemesis/partition.py",
            "from shalott.cluster.sim.backend import SimCluster\n",
            "may not import shalott.cluster.sim.backend",
        ),
        (
            "harness/run/run.py",
            "from shalott.cluster.docker.backend import DockerCluster\n",
            "only inside a function",
        ),
        ("harness/run/run.py", "import docker\n", "may not use the library docker"),
        (
            "harness/run/run.py",
            "import importlib\nimportlib.import_module('shalott.broker.rabbit.node.node')\n",
            "may not import shalott.broker",
        ),
        (
            "spark_analysis/jobs.py",
            "from shalott.harness.run.run import run\n",
            "may not import shalott.harness.run.run",
        ),
    ],
)
def test_an_arrow_the_wrong_way_is_found(path: str, text: str, complaint: str) -> None:
    found = judge(path, text)
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "broker/rabbit/node/node.py",
            "import asyncio\nimport pamqp.frame\nfrom shalott.broker.rabbit.amqp import queues\n",
        ),
        ("broker/rabbit/amqp/channel.py", "from . import queues\nfrom .. import config\n"),
        ("harness/core/history.py", "import pyarrow as pa\n"),
        ("checkers/engine/lib.py", "import cffi\n"),
        ("checkers/queue.py", "from shalott.checkers.engine import lib\n"),
        ("cluster/systems/world.py", "from shalott.broker.rabbit.node.node import Node\n"),
        ("nemesis/partition.py", "from shalott.cluster.base import Cluster\n"),
        ("harness/run/run.py", "def f():\n    from shalott.cluster.docker.backend import boot\n"),
        (
            "harness/run/run.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    import shalott.cluster.docker.backend\n",
        ),
        ("harness/cli/commands.py", "def report():\n    import shalott.spark_analysis.report\n"),
    ],
)
def test_an_arrow_the_right_way_is_not(path: str, text: str) -> None:
    assert judge(path, text) == []


def test_a_package_is_named_like_its_directory() -> None:
    source = parse("broker/rabbit/amqp/__init__.py", "")
    name = "shalott.broker.rabbit.amqp"
    assert (source.module, source.package) == (name, name)
