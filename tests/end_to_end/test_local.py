"""Whole runs on local nodes, one for each nemesis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.scenarios import NAMES, names_on, perform

pytestmark = pytest.mark.local


@pytest.mark.parametrize("name", names_on("local"))
def test_nemesis(name: str, tmp_path: Path) -> None:
    run = perform(NAMES[name], "local", tmp_path)
    assert leftovers(run) == []
