"""``shalott new system``: writes a package that puts a system under test, and runs as it is."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError

TEMPLATES = Path(__file__).parent / "new_system"
# Where each template goes; @module@ stands for the package's name.
FILES: Mapping[str, str] = {
    "README.md.j2": "README.md",
    "pyproject.toml.j2": "pyproject.toml",
    "ci.yml.j2": ".github/workflows/test.yml",
    "init.py.j2": "@module@/__init__.py",
    "system.py.j2": "@module@/system.py",
    "client.py.j2": "@module@/client.py",
    "workload.py.j2": "@module@/workload.py",
    "server.py.j2": "@module@/server.py",
    "Dockerfile.j2": "@module@/images/@name@/Dockerfile",
    "test_system.py.j2": "tests/test_system.py",
}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_system(name: str, into: Path) -> list[Path]:
    """The files, all new. Raises UsageError: a name that won't do, a directory that is in use."""
    module = name.replace("-", "_")
    if not NAME.fullmatch(name) or keyword.iskeyword(module):
        raise UsageError(f"{name} can't name a system: use lower-case letters, digits and dashes")
    if SYSTEMS.has(name) or SYSTEMS.has(f"{name}-queue"):
        raise UsageError(f"there is a system {name} already: choose another name")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} is in use: name a directory that is empty or not there")
    words = {
        "@name@": name,
        "@module@": module,
        "@Class@": "".join(part.capitalize() for part in name.split("-")),
    }
    written = []
    try:
        for template, place in FILES.items():
            path = into / _filled(place, words)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (TEMPLATES / template).read_text()
            path.write_text(_filled(text, words))
            written.append(path)
    except OSError as error:
        raise UsageError(f"{into} can't be written: {error.strerror}") from error
    return written


def _filled(text: str, words: Mapping[str, str]) -> str:
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text
