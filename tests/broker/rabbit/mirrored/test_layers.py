"""The queue's process: it imports the steps, they import the state, and nothing looks back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.tidy.folder_graph import Graph, cycles
from tests.tidy.import_table import imports, targets_of
from tests.tidy.sources import ROOT, Source, parse

pytestmark = pytest.mark.unit

ROOMS = ("gm", "mirrored", "queue_process", "replica", "supervision")
ROOM = "shalott/broker/rabbit/queue_process/"
PACKAGE = "shalott.broker.rabbit.queue_process"
# Lowest first: a module may import those before it.
STEPS = ("roles", "ending", "syncing", "mirroring", "starting", "ring_events")
SUPERVISION = ("maintenance", "children", "supervisor")
LAYERS = ("state", "inspection", "queue_shell", *STEPS, "process", *SUPERVISION)


def module_graph(sources: Sequence[Source]) -> Graph:
    """Module of the room -> the others that it imports, types and late imports included."""
    known = dict.fromkeys(source.module for source in sources)
    return {
        _name(source.module): tuple(
            _name(target)
            for imported in imports(source)
            for target in targets_of(imported, known)
            if target in known and target != source.module
        )
        for source in sources
    }


def _name(module: str) -> str:
    return module.rpartition(".")[2]


def upward(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Imports of a layer by one that stands below it, or beside the layers."""
    places = {name: place for place, name in enumerate(LAYERS)}
    return [
        f"{module} -> {other}"
        for module, others in graph.items()
        for other in others
        if other in places and places[other] >= places.get(module, 0)
    ]


def mirrored_sources() -> list[Source]:
    folders = [ROOT / "shalott/broker/rabbit" / room for room in ROOMS]
    files = [path for folder in folders for path in folder.glob("[!_]*.py")]
    return [parse(str(path.relative_to(ROOT)), path.read_text()) for path in files]


def test_every_layer_imports_those_below_it_only() -> None:
    graph = module_graph(mirrored_sources())
    assert graph.keys() >= set(LAYERS)
    assert upward(graph) == []


def test_the_rooms_have_no_cycle_of_modules() -> None:
    assert cycles(module_graph(mirrored_sources())) == []


def test_a_step_that_imports_the_process_is_found() -> None:
    late = f"def f():\n    from {PACKAGE}.process import QueueProcess\n"
    planted = [
        parse(f"{ROOM}process.py", f"from {PACKAGE} import ending\n"),
        parse(f"{ROOM}ending.py", late),
        parse(f"{ROOM}rows.py", f"from {PACKAGE} import state\n"),
        parse(f"{ROOM}state.py", ""),
    ]
    graph = module_graph(planted)
    assert upward(graph) == ["ending -> process", "rows -> state"]
    assert {cycle[0] for cycle in cycles(graph)} == {"process", "ending"}
