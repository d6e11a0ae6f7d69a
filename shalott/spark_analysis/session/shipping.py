"""The code that executors need, for a cluster on whose machines this project is not installed.

A compiled engine can't be loaded out of a zip file, so the code goes as an archive that Spark
unpacks beside each executor (``spark.archives``), with the executors' PYTHONPATH pointing there:
the rooms that kernels are made of, and the compiled libraries that they import. numpy, pyarrow and
pyspark must be there, as for any Spark job with Python in it; the Python must be of the driver's
version, and the machines of its kind.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path

import shalott

NAME = "shalott_code"
ROOMS = ("shalott/harness/core", "checkers", "spark_analysis")
LIBRARIES = ("msgspec", "cffi", "_cffi_backend")
_KEPT = (".py", ".so", ".pyd")


def shipped_code(scratch: Path) -> dict[str, str]:
    """Spark's settings for it; the archive is written into ``scratch``."""
    archive = write_archive(scratch / f"{NAME}.zip")
    return {
        "spark.archives": f"{archive}#{NAME}",
        "spark.executorEnv.PYTHONPATH": f"./{NAME}",
    }


def write_archive(path: Path) -> Path:
    """The archive: some two megabytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _files():
            archive.write(file, name)
        archive.writestr("shalott/__init__.py", "")
        archive.writestr("shalott/harness/__init__.py", "")
    return path


def _files() -> Iterator[tuple[str, Path]]:
    (package,) = map(Path, shalott.__path__)
    for room in ROOMS:
        for file in sorted((package / room).rglob("*")):
            if file.suffix in _KEPT:
                yield f"shalott/{file.relative_to(package)}", file
    for library in LIBRARIES:
        found = importlib.util.find_spec(library)
        if found is None or found.origin is None:
            continue  # whoever built the engine otherwise may do without it
        origin = Path(found.origin)
        if not found.submodule_search_locations:
            yield origin.name, origin
            continue
        for file in sorted(origin.parent.rglob("*")):
            if file.suffix in _KEPT:
                yield f"{library}/{file.relative_to(origin.parent)}", file
