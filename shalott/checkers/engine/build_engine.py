"""Builds the native engine: every C file of this directory, bound with cffi in API mode.

cffi is given the headers themselves, without their preprocessor lines, so there is one declaration
of everything. ``SHALOTT_ENGINE_CFLAGS`` adds compiler flags (the sanitized build of the tests uses
it).
"""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CFLAGS = ("-O3", "-std=gnu11", "-Wall", "-Wextra", "-pthread", "-fno-semantic-interposition")

# The model is asked through this one function; see search.h.
ANSWERED_IN_PYTHON = (
    'extern "Python" int32_t shl_ask(void *user, shl_table *table, int32_t state, int32_t kind);'
)


def declarations(header: Path) -> str:
    """A header as cffi reads it: comments and preprocessor lines left out."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def headers() -> list[Path]:
    """Each behind those that it includes. Headers named internal_*.h are C's own business."""
    public = [path for path in sorted(HERE.glob("*.h")) if not path.name.startswith("internal_")]
    return sorted(public, key=_depth)


def _depth(header: Path) -> int:
    included = re.findall(r'^#include "(.+)"', header.read_text(), flags=re.M)
    return max((1 + _depth(HERE / name) for name in included), default=0)


def make_builder() -> FFI:
    builder = FFI()
    # By its path: importing the package would import the engine.
    freshness = runpy.run_path(str(HERE / "freshness.py"))
    c_files = [path for path in freshness["sources"](HERE) if path.suffix == ".c"]
    for header in headers():
        builder.cdef(declarations(header))
    builder.cdef(ANSWERED_IN_PYTHON)
    builder.cdef("static const int64_t SHL_BUILT_FROM;")
    includes = [f'#include "{header.name}"' for header in headers()]
    built_from = f"static const int64_t SHL_BUILT_FROM = {freshness['digest'](HERE)};"
    builder.set_source(
        "shalott.checkers.engine._engine",
        "\n".join([*includes, built_from]),
        sources=[str(path.relative_to(ROOT)) for path in c_files],
        depends=[str(path.relative_to(ROOT)) for path in sorted(HERE.glob("*.h"))],
        include_dirs=[str(HERE.relative_to(ROOT))],
        extra_compile_args=[*CFLAGS, *os.environ.get("SHALOTT_ENGINE_CFLAGS", "").split()],
        extra_link_args=["-pthread", *os.environ.get("SHALOTT_ENGINE_CFLAGS", "").split()],
    )
    return builder


ffi = make_builder()
