"""Local nodes as files: where each has its own, and what it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.nodes import NodeSpec
from shalott.core.errors import HarnessError

LAUNCHER = Path(__file__).with_name("launch.py")
PROJECT = Path(__file__).parents[3]  # so that nodes find the broker also when it isn't installed


@dataclass(frozen=True, slots=True)
class Program:
    """What to run for a node."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    output: Path


class LocalNodes:
    """The nodes of one run as files: where each has its own, and what runs there."""

    def __init__(self, nodes: Sequence[str], directory: Path) -> None:
        self.nodes = tuple(nodes)
        self.directory = directory
        self.specs: dict[str, NodeSpec] = {}

    def config_dir(self, node: str) -> Path:
        return self.directory / node / "config"

    def data_dir(self, node: str) -> Path:
        return self.directory / node / "data"

    def output(self, node: str) -> Path:
        return self.directory / node / "output.log"

    def make_directories(self) -> None:
        for node in self.nodes:
            for path in (self.config_dir(node), self.data_dir(node)):
                path.mkdir(parents=True, exist_ok=True)

    def spec(self, node: str) -> NodeSpec:
        if node not in self.specs:
            raise HarnessError(f"{node} is not booted")
        return self.specs[node]

    def write(self, spec: NodeSpec) -> None:
        """Put a node's files in its place."""
        self.specs[spec.name] = spec
        for name, text in spec.files.items():
            path = self.config_dir(spec.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def program(self, node: str, command: Sequence[str]) -> Program:
        """What runs a command in the node's world."""
        return Program(
            command=[self._filled(node, word) for word in command],
            environment=self._environment(node),
            directory=self.data_dir(node),
            output=self.output(node),
        )

    def _filled(self, node: str, text: str) -> str:
        filled = text.replace("{config}", str(self.config_dir(node)))
        return filled.replace("{data}", str(self.data_dir(node))).replace(
            "{python}", sys.executable
        )

    def _environment(self, node: str) -> Mapping[str, str]:
        own = {k: self._filled(node, v) for k, v in self.spec(node).environment.items()}
        path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **own}
