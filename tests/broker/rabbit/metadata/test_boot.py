"""Who loads its tables first when a cluster starts."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.metadata.booting import BootState, choose_loader, must_wait_for

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


def states(**saw_down: str) -> dict[str, BootState]:
    return {node: BootState(tuple(names.split())) for node, names in saw_down.items()}


@pytest.mark.parametrize(
    ("present", "loader"),
    [
        (states(n1="", n2="", n3=""), "n1"),  # killed all at once: any copy will do
        (states(n1="", n2=""), None),  # n3 may have gone on after them
        (states(n1="", n2="n1", n3="n1"), "n2"),  # n1 stopped first: its tables are stale
        (states(n1="", n2="n1", n3="n1 n2"), "n3"),  # n3 stopped last
        (states(n3="n1 n2"), "n3"),  # the last to stop need not wait
        (states(n1="", n3="n1 n2"), "n3"),
        (states(n1="", n2="n1"), None),  # n3 may have been last
        (
            states(n1="n2 n3", n2="n1", n3="n1"),
            "n1",
        ),  # a partition, then all stopped: both sides may load
        (states(n1="n2 n3", n2="n1 n3", n3="n1 n2"), "n1"),
    ],
)
def test_the_loader_is_a_node_that_nobody_outlived(
    present: dict[str, BootState], loader: str | None
) -> None:
    assert choose_loader(NODES, present) == loader


def test_a_node_names_those_it_waits_for() -> None:
    assert must_wait_for("n1", NODES, states(n1="n2")) == ["n3"]
    assert must_wait_for("n1", NODES, states(n1="", n2="", n3="")) == []
