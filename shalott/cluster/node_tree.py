"""What a node of ours needs beside a Python: the broker's sources and its wire libraries, as files.

An image's build context and what is uploaded to a host are made of the same files.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import shalott

OWN_BROKER = "broker"  # the image that runs the sources of this package
# All that the broker imports besides the standard library.
WIRE_LIBRARIES = ("pamqp", "msgspec", "h11")
PAGE = ("*.html", "*.css", "*.js")  # its management page's files


def broker_files() -> dict[str, bytes]:
    """The package's part that a node runs, its page too, by path from the directory that
    PYTHONPATH names."""
    package = Path(shalott.__path__[0])
    broker = package / "broker"
    found = (path for kind in ("*.py", *PAGE) for path in broker.rglob(kind))
    sources = [package / "__init__.py", *sorted(found)]
    return {
        f"shalott/{path.relative_to(package).as_posix()}": path.read_bytes() for path in sources
    }


def library_pins() -> list[str]:
    """The wire libraries in the versions that are installed here."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in WIRE_LIBRARIES]


def pip_words(directory: str, python_version: str, platform: str) -> Sequence[str]:
    """What makes pip install the wire libraries for another Python and machine."""
    return (
        *("-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
        *("--target", directory, "--only-binary=:all:", "--implementation", "cp"),
        *("--python-version", python_version, "--platform", platform),
        *library_pins(),
    )


def installed_libraries() -> dict[str, bytes]:
    """The wire libraries as they are installed here: for a machine and a Python like this one."""
    found: dict[str, bytes] = {}
    for name in WIRE_LIBRARIES:
        for entry in importlib.metadata.files(name) or ():
            path = Path(str(entry.locate()))
            if ".." not in entry.parts and "__pycache__" not in entry.parts and path.is_file():
                found[entry.as_posix()] = path.read_bytes()
    return found


def read_tree(directory: Path, prefix: str = "", pattern: str = "*") -> dict[str, bytes]:
    """Every file under ``directory``, by its path there behind ``prefix``."""
    found = sorted(path for path in directory.rglob(pattern) if path.is_file())
    files = [path for path in found if "__pycache__" not in path.parts]
    return {prefix + path.relative_to(directory).as_posix(): path.read_bytes() for path in files}
