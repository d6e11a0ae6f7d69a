"""Bringing what a container has written, while it goes on writing."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from shalott.cluster.docker.containers import READINGS_MAX, Machine, collect
from shalott.cluster.nodes import NodeSpec

pytestmark = pytest.mark.unit


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as whole:
        for name in ("conf/first", "conf/second"):
            entry = tarfile.TarInfo(name)
            entry.size = 2000
            whole.addfile(entry, io.BytesIO(bytes(2000)))
    return buffer.getvalue()


class Engine:
    """Its first archives end within the second file."""

    def __init__(self, broken: int) -> None:
        self.broken = broken
        self.reads = 0

    def logs(self, *_: Any, **__: Any) -> list[bytes]:
        return []

    def get_archive(self, name: str, path: str) -> tuple[list[bytes], object]:
        self.reads += 1
        data = archive()
        return [data[: 512 + 2048 + 512 + 700] if self.reads <= self.broken else data], None


def bring(engine: Engine, into: Path) -> list[str]:
    spec = NodeSpec(name="n1", image="i", command=("run",), ports={}, files={}, collect=("conf",))
    machine = Machine(
        spec=spec, name="c", image="i", network="n", address="10.1.1.1", hosts={}, labels={},
        tmpfs={},
    )  # fmt: skip
    collect(cast(docker.APIClient, engine), machine, into)
    return sorted(path.name for path in (into / "conf").iterdir() if path.stat().st_size == 2000)


@pytest.mark.parametrize("broken", [0, 2])
def test_an_archive_that_broke_off_is_read_again(broken: int, tmp_path: Path) -> None:
    engine = Engine(broken)
    assert bring(engine, tmp_path) == ["first", "second"]
    assert engine.reads == broken + 1


def test_what_never_comes_whole_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(broken=10**6)
    assert bring(engine, tmp_path) == ["first"]
    assert engine.reads == READINGS_MAX
    assert "conf of c changed whenever it was read" in caplog.text
