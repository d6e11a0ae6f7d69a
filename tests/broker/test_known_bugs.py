"""The catalogue of known bugs, and nodes that are told to have one that is not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.broker.base.errors import ConfigError
from shalott.broker.known_bugs import CATALOGUE, known_bug
from shalott.broker.nodes import load_config

pytestmark = pytest.mark.unit


def test_every_entry_is_whole_and_its_own() -> None:
    for name in ("id", "switch", "title"):
        values = [getattr(bug, name) for bug in CATALOGUE]
        assert len(dict.fromkeys(values)) == len(values)
    for bug in CATALOGUE:
        assert all((bug.trigger, bug.symptom, bug.fix))
        assert bug.links or bug.id.startswith("OUR-")
        assert all(link.startswith("https://") for link in bug.links)
        assert known_bug(bug.id) is bug


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("KB-RMQ-2", "did you mean KB-RMQ-02?"),
        ("kb-rmq-24", "did you mean KB-RMQ-24?"),
        ("KB-RMQ-05", "did you mean KB-RMQ-"),
        ("", "`shalott bugs` lists them"),
    ],
)
def test_an_unknown_id_is_refused_with_advice(wrong: str, advice: str) -> None:
    with pytest.raises(ConfigError) as error:
        known_bug(wrong)
    assert f"there is no known bug {wrong}: " in str(error.value)
    assert advice in str(error.value)


def test_a_node_does_not_start_with_a_bug_that_nobody_knows(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('name = "n1"\ndata_dir = "/d"\nbugs = ["KB-RMQ-02", "KB-RMQ-999"]\n')
    with pytest.raises(ConfigError, match=r"node.toml: there is no known bug KB-RMQ-999"):
        load_config(path)
    path.write_text('name = "n1"\ndata_dir = "/d"\nbugs = ["KB-RMQ-02"]\n')
    assert load_config(path).bugs == ("KB-RMQ-02",)
