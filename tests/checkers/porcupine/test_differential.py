"""Ours and Porcupine agree on every random history that both decide, and the comparison can fail.

A few hundred histories a model by default; SHALOTT_ORACLE_HISTORIES asks for more, as .ci/run does
at night.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.explanation import Verdict
from shalott.checkers.models import Model, make_model
from shalott.checkers.porcupine.porcupine import BRIDGE
from tests.checkers.porcupine.differential import (
    SPECIFICATIONS,
    compare,
    ours,
    require_porcupine,
)

pytestmark = [pytest.mark.explore, pytest.mark.timeout(24 * 3600)]

HISTORIES: Final = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "200"))
SEED: Final = int(os.environ.get("SHALOTT_ORACLE_SEED", "1"))
ROOT: Final = Path(__file__).resolve().parents[3]

# Compares with the bridge of another directory: a Go runtime is loaded once in a process.
COMPARE_WITH: Final = """
import sys
from pathlib import Path
from shalott.checkers.porcupine import porcupine as build
build.BRIDGE = build.ROOT = Path(sys.argv[1])
from tests.checkers.porcupine.differential import compare
found = compare(sys.argv[2], 200, seed=1)
print(found.valid, len(found.differ))
"""


@pytest.mark.parametrize("specification", SPECIFICATIONS)
def test_ours_and_porcupine_agree(specification: str) -> None:
    require_porcupine()
    found = compare(specification, HISTORIES, SEED)
    assert not found.differ, found.differ[0]
    assert found.total == HISTORIES
    assert found.undecided <= HISTORIES // 20, "most of them must be decided"
    assert min(found.valid, found.invalid) >= HISTORIES // 20, "there must be some of either kind"


def test_a_mistake_of_ours_is_found() -> None:
    require_porcupine()
    mistaken = make_model("cas-register:nil=any")

    def wrongly(history: ConcurrentHistory, model: Model) -> Verdict:
        return ours(history, mistaken)

    found = compare("cas-register", 200, seed=1, one=wrongly)
    assert found.differ
    assert all(first.valid is True for first, _, _ in found.differ)


@pytest.mark.parametrize(
    ("specification", "file", "right", "wrong"),
    [
        ("fifo-queue", "objects.go", "return true, held[1:]", "return true, held[:len(held)-1]"),
        ("cas-register", "model.go", "return true, state\n", "return false, state\n"),
    ],
    ids=["the queue is a stack", "what crashed must have happened"],
)
def test_a_mistake_of_the_bridge_is_found(
    tmp_path: Path, specification: str, file: str, right: str, wrong: str
) -> None:
    require_porcupine()
    bridge = tmp_path / "bridge"
    shutil.copytree(BRIDGE, bridge)
    (bridge / "pyproject.toml").touch()  # as in a checkout: it is built beside it
    text = (bridge / file).read_text()
    assert right in text
    (bridge / file).write_text(text.replace(right, wrong))
    done = subprocess.run(
        [sys.executable, "-c", COMPARE_WITH, str(bridge), specification],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    valid, differ = map(int, done.stdout.split())
    assert valid > 0, "some histories are too simple to tell"
    assert differ > 0
