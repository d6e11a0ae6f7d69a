"""The arrows between the rooms hold and point one way, and the rules that say so can fail."""

from __future__ import annotations

import pytest

from tests.tidy.folder_graph import cycles, folder_graph
from tests.tidy.import_table import FOLDERS, OUTSIDE, ROOMS, drawn, import_violations, room_of
from tests.tidy.sources import MODULES, PACKAGES, ROOT, package_sources, parse

pytestmark = pytest.mark.lint


def known_modules() -> list[str]:
    return [source.module for source in package_sources()]


def judge(path: str, text: str) -> list[str]:
    return import_violations(parse(path, text), known_modules())


@pytest.mark.parametrize("package", (*PACKAGES, *MODULES))
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    known = known_modules()
    found = [
        line for source in package_sources(package) for line in import_violations(source, known)
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_module_has_a_room() -> None:
    homeless = [name for name in known_modules() if room_of(name) is OUTSIDE]
    assert homeless == ["shalott", "shalott.harness"]  # empty


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


def test_arrows_between_the_top_folders_point_down() -> None:
    """The table of rooms keeps to the order of the folders, and so does the code."""
    order = [*FOLDERS]
    assert sorted(order) == sorted((*PACKAGES, *MODULES))
    for folder, below in FOLDERS.items():
        assert all(order.index(other) < order.index(folder) for other in below), folder
    for room in ROOMS:
        for other in (*room.ours, *room.lazily):
            top, other_top = room.name.partition(".")[0], other.partition(".")[0]
            assert other_top == top or other_top in FOLDERS[top], f"{room.name} -> {other}"
    graph = folder_graph([*package_sources()], by_top=True)
    for folder in order:
        assert {*graph.get(folder, ())} <= {*FOLDERS[folder]}, folder


def test_the_folders_form_a_graph_without_cycles() -> None:
    found = cycles(folder_graph([*package_sources()]))
    assert not found, "\n".join(" -> ".join(cycle) for cycle in found)


def test_a_cycle_of_folders_is_found() -> None:
    planted = [
        parse("shalott/nemesis/one.py", "import shalott.cluster.two\n"),
        parse("shalott/cluster/two.py", "def f():\n    from shalott.workloads import three\n"),
        parse("shalott/workloads/three.py", "from shalott.nemesis.one import Thing\n"),
        parse("shalott/checkers/four.py", "from shalott.nemesis.one import Thing\n"),
    ]
    graph = folder_graph(planted)
    assert graph["shalott/checkers"] == ("shalott/nemesis",)
    assert {cycle[0] for cycle in cycles(graph)} >= {
        f"shalott/{name}" for name in ("nemesis", "cluster", "workloads")
    }
    assert cycles(folder_graph(planted[:2])) == []


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        (
            "shalott/broker/rabbit/node/node.py",
            "import shalott.core.op\n",
            "may not import shalott.core.op",
        ),
        (
            "shalott/broker/rabbit/node/node.py",
            "from shalott.broker.rocket.config import RocketConfig\n",
            "may not import shalott.broker.rocket.config",
        ),
        (
            "shalott/broker/rocket/node/node.py",
            "from shalott.broker.rabbit.config import NodeConfig\n",
            "may not import shalott.broker.rabbit.config",
        ),
        (
            "shalott/broker/raft/core.py",
            "from shalott.broker.rocket.config import RaftConfig\n",
            "may not import shalott.broker.rocket.config",
        ),
        (
            "shalott/broker/rabbit/amqp/channel.py",
            "import docker\n",
            "may not use the library docker",
        ),
        (
            "shalott/broker/rabbit/amqp/channel.py",
            "import broker\n",
            "may not use the library broker",
        ),
        ("shalott/core/op.py", "import typer\n", "may not use the library typer"),
        (
            "shalott/core/plan.py",
            "from shalott.harness.run.run import run\n",
            "may not import shalott.harness.run.run",
        ),
        ("shalott/checkers/queue.py", "import asyncio\n", "never imports asyncio"),
        ("shalott/checkers/queue.py", "from asyncio import sleep\n", "never imports asyncio"),
        (
            "shalott/checkers/queue.py",
            "def f():\n    import cffi\n",
            "may not use the library cffi",
        ),
        (
            "shalott/checkers/queue.py",
            "from shalott.workloads.queue import queue_workload\n",
            "may not import shalott.workloads.queue",
        ),
        (
            "shalott/workloads/queue.py",
            "from shalott.cluster.docker.engine import Engine\n",
            "may not import shalott.cluster.docker.engine",
        ),
        (
            "shalott/nemesis/partition.py",
            "from shalott.cluster.sim.backend import SimCluster\n",
            "may not import shalott.cluster.sim.backend",
        ),
        (
            "shalott/harness/run/run.py",
            "from shalott.cluster.docker.backend import DockerCluster\n",
            "only inside a function",
        ),
        ("shalott/harness/run/run.py", "import docker\n", "may not use the library docker"),
        (
            "shalott/harness/run/run.py",
            "import importlib\nimportlib.import_module('shalott.broker.rabbit.node.node')\n",
            "may not import shalott.broker",
        ),
        (
            "shalott/spark_analysis/jobs.py",
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
            "shalott/broker/rabbit/node/node.py",
            "import asyncio\nimport pamqp.frame\nfrom shalott.broker.rabbit.amqp import queues\n",
        ),
        ("shalott/broker/rabbit/amqp/channel.py", "from . import queues\nfrom .. import config\n"),
        ("shalott/core/history.py", "import pyarrow as pa\n"),
        ("shalott/checkers/engine/lib.py", "import cffi\n"),
        ("shalott/checkers/queue.py", "from shalott.checkers.engine import lib\n"),
        ("shalott/cluster/systems/world.py", "from shalott.broker.rabbit.node.node import Node\n"),
        ("shalott/nemesis/partition.py", "from shalott.cluster.base import Cluster\n"),
        (
            "shalott/harness/run/run.py",
            "def f():\n    from shalott.cluster.docker.backend import boot\n",
        ),
        (
            "shalott/harness/run/run.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    import shalott.cluster.docker.backend\n",
        ),
        (
            "shalott/harness/cli/commands.py",
            "def report():\n    import shalott.spark_analysis.report\n",
        ),
    ],
)
def test_an_arrow_the_right_way_is_not(path: str, text: str) -> None:
    assert judge(path, text) == []


def test_a_package_is_named_like_its_directory() -> None:
    source = parse("shalott/broker/rabbit/amqp/__init__.py", "")
    name = "shalott.broker.rabbit.amqp"
    assert (source.module, source.package) == (name, name)
