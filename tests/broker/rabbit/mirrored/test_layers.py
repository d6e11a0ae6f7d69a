"""The queue's process: it imports the steps, they import the state, and nothing looks back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.tidy.folder_graph import Graph, cycles
from tests.tidy.import_table import imports, targets_of
from tests.tidy.sources import ROOT, Source, parse

pytestmark = pytest.mark.unit

ROOM = "shalott/broker/rabbit/mirrored/"
PACKAGE = "shalott.broker.rabbit.mirrored"
# Lowest first: a module may import those before it.
STEPS = ("roles", "ending", "syncing", "mirroring", "starting", "promotion", "ring_events")
LAYERS = ("state", "looks", "queue_shell", *STEPS, "process", "supervisor")


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
    files = [path for path in (ROOT / ROOM).rglob("*.py") if path.name != "__init__.py"]
    return [parse(str(path.relative_to(ROOT)), path.read_text()) for path in files]


def test_every_layer_imports_those_below_it_only() -> None:
    graph = module_graph(mirrored_sources())
    assert graph.keys() >= set(LAYERS)
    assert upward(graph) == []


def test_the_room_has_no_cycle_of_modules() -> None:
    assert cycles(module_graph(mirrored_sources())) == []


def test_a_step_that_imports_the_process_is_found() -> None:
    late = f"def f():\n    from {PACKAGE}.process.process import QueueProcess\n"
    planted = [
        parse(f"{ROOM}process/process.py", f"from {PACKAGE}.process import ending\n"),
        parse(f"{ROOM}process/ending.py", late),
        parse(f"{ROOM}rows.py", f"from {PACKAGE}.process import state\n"),
        parse(f"{ROOM}process/state.py", ""),
    ]
    graph = module_graph(planted)
    assert upward(graph) == ["ending -> process", "rows -> state"]
    assert {cycle[0] for cycle in cycles(graph)} == {"process", "ending"}
