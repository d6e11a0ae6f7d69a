"""Three running nodes for all that is typed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.world.processes.rabbit import NodeProcess, running_nodes


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    with running_nodes(tmp_path_factory.mktemp("ctl"), ("n1", "n2", "n3")) as nodes:
        yield nodes
