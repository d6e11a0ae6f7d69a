"""What is typed at a node of ours looks and ends as rabbitmqctl's of RabbitMQ 3.10.8 did, line by
line (beside_rabbitmqctl.py); each night that is typed again at RabbitMQ itself."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shalott.broker.rabbit.ctl.verbs import VERBS
from tests.broker.rabbit.ctl.beside_rabbitmqctl import LINES, RECORDED, Said, record
from tests.broker.rabbit.ctl.beside_rabbitmqctl import VERBS as THEIRS
from tests.tidy.sources import ROOT
from tests.world.processes.rabbit import NodeProcess, running_nodes
from tests.world.rabbit.original_tools import running_original
from tests.world.rabbit.typing_ctl import typed

# Where the words differ, and why; the exit code is the same.
UNKNOWN = "before a node has answered, ours knows it by its host"
DIFFERS: Mapping[str, str] = {
    "wait --pid 99999999": UNKNOWN,
    "wait nofile --timeout 1": UNKNOWN,
}


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("beside"), ("n1",)) as (one,):
        yield one


@pytest.mark.local
def test_ours_says_what_rabbitmqctl_said(node: NodeProcess) -> None:
    def type_line(line: str) -> Said:
        done = typed(node, line)
        return done.exit_code, done.stdout, done.stderr

    recorded = json.loads(RECORDED.read_text())
    assert [line for line, *_ in recorded] == LINES
    for theirs, ours in zip(recorded, record(type_line, "n1"), strict=True):
        line = theirs[0]
        if line in DIFFERS:
            assert ours[1] == theirs[1], line
            assert ours != theirs, f"{line}: it is the same now"
        else:
            assert in_order(ours) == in_order(theirs)


def in_order(said: list[object]) -> list[object]:
    """A table's rows come in no order from RabbitMQ; of pairs in JSON the comma stands before."""
    line, exit_code, stdout, stderr = said
    lines = sorted(each.removeprefix(",") for each in str(stdout).splitlines())
    return [line, exit_code, lines, stderr]


@pytest.mark.unit
def test_a_verb_that_is_left_out_stands_in_the_documents() -> None:
    assert len(THEIRS) == 100
    page = (ROOT / "docs/how-to/operate.md").read_text()
    left_out = page[page.index("Left out: ") :]
    for name in THEIRS:
        assert (f"`{name}`" in left_out) == (name not in VERBS), name


@pytest.mark.local
@pytest.mark.nightly("types two hundred lines at a node of RabbitMQ's")
def test_rabbitmqctl_says_what_is_recorded(tmp_path: Path) -> None:
    with running_original(tmp_path) as original:

        def type_line(line: str) -> Said:
            done = original.ctl(*shlex.split(line))
            return done.returncode, done.stdout, done.stderr

        assert record(type_line, original.name) == json.loads(RECORDED.read_text())
