"""A client that is a file of Go: it is built once, for each state of its source.

A program of any other language is started as it is, with whichever tools it needs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from shalott.core.errors import UsageError

GO = ".go"
BESIDE = ("go.mod", "go.sum")
BUILD_WITHIN_S = 300


@cache
def built(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words with what the source was built into in its place. Raises UsageError."""
    source = Path(words[0])
    if source.suffix != GO:
        return words
    go = shutil.which("go")
    if go is None:
        raise UsageError(f"--client {source}: to build it takes Go: apt-get install golang-go")
    try:
        files = [source, *(source.parent / name for name in BESIDE)]
        state = b"\0".join(each.read_bytes() for each in files if each.is_file())
    except OSError as error:
        raise UsageError(f"--client {source}: {error.strerror}") from error
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    digest = hashlib.sha256(str(source.resolve()).encode() + b"\0" + state).hexdigest()[:16]
    program = cache_home / "shalott" / "clients" / f"{source.stem}-{digest}"
    if not program.is_file():
        _build(go, source, program)
    return (str(program), *words[1:])


def _build(go: str, source: Path, program: Path) -> None:
    """Several harnesses may do it at once: the last one's is as good as the first one's."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        made = Path(directory) / program.name
        words = [go, "build", "-o", str(made), source.name]
        try:
            done = subprocess.run(
                words, cwd=source.parent, capture_output=True, text=True, timeout=BUILD_WITHIN_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"--client {source}: go build: {error}") from error
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())
            raise UsageError(f"--client {source} can't be built: {said[:1000]}")
        made.replace(program)
