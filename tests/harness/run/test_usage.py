"""What nodes take is added up over their lives, and said only where it can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from shalott.cluster.cgroups import Groups
from shalott.cluster.docker.resources import usage_of
from shalott.cluster.nodes import MIB, NodeUsage
from shalott.harness.run.usage import UsageWatch

pytestmark = pytest.mark.unit


@dataclass
class Told:
    """What nodes tell, look by look."""

    by_node: dict[str, list[NodeUsage | None]]
    asked: dict[str, int] = field(default_factory=dict)

    def usage(self, node: str) -> NodeUsage | None:
        at = self.asked.get(node, 0)
        self.asked[node] = at + 1
        return self.by_node[node][at]


def took(life: int, cpu_s: float, mib: int = 10) -> NodeUsage:
    return NodeUsage(life=life, cpu_s=cpu_s, memory_bytes=mib * MIB)


def watched(**by_node: Sequence[NodeUsage | None]) -> UsageWatch:
    watch = UsageWatch(Told({node: list(told) for node, told in by_node.items()}), tuple(by_node))
    for _ in next(iter(by_node.values())):
        watch.look()
    return watch


def test_what_a_node_had_computed_before_its_end_is_not_forgotten() -> None:
    watch = watched(n1=[took(1, 1.0), took(1, 3.0), None, took(2, 0.5)], n2=[took(9, 1.0)] * 4)
    found = watch.told()
    assert found is not None
    assert found.cpu_s == 3.0 + 0.5 + 1.0


def test_memory_is_that_of_all_while_all_run() -> None:
    watch = watched(
        n1=[took(1, 0, 100), None, took(2, 0, 20), took(2, 0, 30)],
        n2=[took(9, 0, 10), took(9, 0, 10), took(9, 0, 10), took(9, 0, 10)],
    )
    found = watch.told()
    assert found is not None
    assert (found.nodes, found.memory_mib) == (2, 40.0)


def test_nodes_that_can_not_be_seen_took_nothing_that_is_known() -> None:
    assert watched(n1=[None, None]).told() is None
    assert usage_of(2**22 + 1) is None  # there is no such process


@pytest.mark.parametrize(
    ("is_unified", "name", "text"),
    [
        (True, "cpu.stat", "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n"),
        (False, "cpuacct.usage", "2500000000\n"),
    ],
)
def test_both_versions_of_control_groups_tell_cpu_seconds(
    is_unified: bool, name: str, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("group")
    (directory / name).write_text(text)
    names = ("cpu",) if is_unified else ("cpuacct",)
    assert Groups(dict.fromkeys(names, directory), is_unified).cpu_used_s() == 2.5
