"""docs/evidence/walkthrough.md is carried out: every command that it types says on three running
nodes what the page says, and every test that it names exists.

Blocks ``console`` are typed at the node whose name the prompt begins with; blocks ``python`` are a
client's. A command that only looks is typed until it says what it should, 30 s long: policies,
mirrors and synchronisations take their time. Pids are whatever they are.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.ctl.session import CtlError
from shalott.broker.rabbit.ctl.verbs import read, run
from shalott.cluster.local.backend import HOST
from tests.tidy.sources import ROOT
from tests.world.processes.rabbit import NodeProcess, running_nodes

pytestmark = pytest.mark.local

PAGE = ROOT / "docs" / "evidence" / "walkthrough.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"(?P<node>n[123])\$ (?P<line>.*)")
LOOKS = ("list_", "cluster_status", "gm_ring", "grep ")
PATIENCE_S = 30.0
AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Typed:
    """A command of the page, and what it printed."""

    node: str
    line: str
    said: tuple[str, ...]

    @property
    def only_looks(self) -> bool:
        return any(word in self.line for word in LOOKS)


def steps(text: str) -> Iterator[Typed | str]:
    """In the page's order: commands, and programs of a client."""
    for kind, body in BLOCK.findall(text):
        if kind == "python":
            yield body
            continue
        command: re.Match[str] | None = None
        said: list[str] = []
        for line in [*body.splitlines(), "n1$ "]:
            prompt = PROMPT.fullmatch(line)
            if prompt is None:
                said.append(line)
                continue
            if command is not None:
                yield Typed(command["node"], command["line"], tuple(said))
            command, said = prompt, []


def anonymous(lines: Iterable[str]) -> list[str]:
    """Without what is drawn or counted: pids, and so which node has the one mirror of two."""
    return [re.sub(r"<(n\d\.)?[\d.]+>", "<pid>", line.rstrip()) for line in lines]


def said_by(node: NodeProcess, line: str) -> list[str]:
    """What the line prints, stderr with it."""
    words = shlex.split(line)
    if words[0] == "rabbitmqctl":
        asked = Asked(HOST, node.management_port, timeout_s=60.0)
        try:
            outcome = asyncio.run(run(read(words[1:]), asked, node.name))
        except CtlError as error:
            return error.text.splitlines()
        return (outcome.stdout + outcome.stderr).splitlines()
    assert words[0] == "grep", line
    found = [re.search(words[-2], each) for each in node.output.splitlines()]
    return [match[0] for match in found if match is not None]


def carry_out(step: Typed, nodes: dict[str, NodeProcess]) -> None:
    node = nodes[step.node]
    if step.line in ("kill", "start"):
        if step.line == "kill":
            node.end(signal.SIGKILL)
        else:
            node.start()
            node.await_running(("n1", "n2", "n3"))
        return
    deadline = time.monotonic() + PATIENCE_S
    wanted = anonymous(step.said)
    while (told := anonymous(said_by(node, step.line))) != wanted:
        again = step.only_looks and time.monotonic() < deadline
        assert again, f"{step.node}$ {step.line}\nprinted {told}\ninstead of {wanted}"
        time.sleep(AGAIN_S)


def run_client(program: str, nodes: dict[str, NodeProcess]) -> None:
    for name, node in nodes.items():
        program = program.replace(
            f'ConnectionParameters("{name}")',
            f'ConnectionParameters("{HOST}", {node.address.port})',
        )
    exec(compile(program, str(PAGE), "exec"), {})


def test_the_page_says_what_happens(tmp_path: Path) -> None:
    with running_nodes(tmp_path, ("n1", "n2", "n3")) as made:
        nodes = {node.name: node for node in made}
        for step in steps(PAGE.read_text()):
            if isinstance(step, str):
                run_client(step, nodes)
            else:
                carry_out(step, nodes)


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(test_\w+)\.(test_\w+)`", PAGE.read_text())
    assert len(named) > 40
    sources: dict[str, str] = {}  # some rooms have files of one name
    for path in (ROOT / "tests").rglob("test_*.py"):
        sources[path.stem] = sources.get(path.stem, "") + path.read_text()
    absent = [
        f"{file}.{name}" for file, name in named if f"def {name}(" not in sources.get(file, "")
    ]
    assert absent == []
