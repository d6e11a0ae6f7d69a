"""Whole runs in containers, one for each nemesis: ``pytest -m docker -k partition_halves``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.scenarios import NAMES, names_on, perform

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("name", names_on("docker"))
def test_nemesis(name: str, tmp_path: Path) -> None:
    run = perform(NAMES[name], "docker", tmp_path)
    assert docker_leftovers(run) == []
