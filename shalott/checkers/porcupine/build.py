"""Builds the bridge to Porcupine: the Go files of bridge/ and the module that go.mod names.

They become one C library, which is built once, when it is first wanted, into build/porcupine of a
checkout or else the user's cache. Its name is a digest of the sources, so a changed bridge is
another file. ``scripts/setup porcupine`` and ``python -m shalott.checkers.porcupine.build`` build
it ahead of time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shalott.core.errors import HarnessError, ShalottError, UsageError

BRIDGE: Final = Path(__file__).resolve().with_name("bridge")
ROOT: Final = BRIDGE.parents[3]
TIMEOUT_S: Final = 600.0

NEEDED: Final = (
    "Porcupine takes Go 1.19 or newer and a C compiler to be built, once:"
    " apt-get install golang-go gcc"
)


def porcupine_version() -> str:
    """The version of Porcupine that go.mod names, as "1.3.1"."""
    found = re.search(r"anishathalye/porcupine v(\S+)", (BRIDGE / "go.mod").read_text())
    assert found, "go.mod names Porcupine"
    return found[1]


def library_path(tell: Callable[[str], object] = lambda sentence: None) -> Path:
    """The library, which is built if it is not there; ``tell`` hears of that, as it takes a while.

    Raises UsageError: Go or a C compiler is missing, or Go can't fetch Porcupine. Raises
    HarnessError: it does not compile.
    """
    path = _directory() / f"{_digest()}.so"
    if path.exists():
        return path
    go = shutil.which("go")
    if go is None or not (shutil.which("gcc") or shutil.which("cc")):
        raise UsageError(NEEDED)
    tell("building Porcupine, which takes a minute and is done once")
    _build(go, path)
    return path


def _directory() -> Path:
    if (ROOT / "pyproject.toml").exists():
        return ROOT / "build" / "porcupine"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shalott" / "porcupine"


def _digest() -> str:
    said = hashlib.sha256(sysconfig.get_platform().encode())
    for path in (*sorted(BRIDGE.glob("*.go")), BRIDGE / "go.mod", BRIDGE / "go.sum"):
        said.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        said.update(path.read_bytes())
    return said.hexdigest()[:16]


def _build(go: str, path: Path) -> None:
    fetched = _run(go, "mod", "download")
    if fetched.returncode != 0:
        raise UsageError(f"Go can't fetch Porcupine: {_last_line(fetched)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:  # cgo writes a header beside it
        made = Path(directory) / path.name
        built = _run(
            go, "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", "-o", str(made), "."
        )
        if built.returncode != 0:
            raise HarnessError(f"Porcupine can't be built: {_last_line(built)}")
        made.replace(path)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CGO_ENABLED": "1", "GOWORK": "off"}
    try:
        return subprocess.run(
            command, cwd=BRIDGE, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{command[0]} {command[1]} took more than {TIMEOUT_S:.0f} s") from None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{library_path()}\n")
    except ShalottError as error:
        sys.exit(f"shalott: {error}")
