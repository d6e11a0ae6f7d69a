"""Which engine judges a store by default.

On one machine worker processes and Spark call the same kernels, and the workers do without a JVM
and its start; so on this machine's files Spark is only worth it where a cluster is named. Above
LOCAL_BYTES it is taken where it is installed all the same, for it survives a task that dies.
docs/how-to/report-on-many-runs.md has what was measured.
"""

from __future__ import annotations

import os
import re
from typing import Literal, get_args
from urllib.parse import unquote, urlsplit

from shalott.spark_analysis import jvm

Engine = Literal["local", "spark", "sql"]
ENGINES = ("auto", *get_args(Engine))

LOCAL_BYTES = 2 << 30  # of histories: some 200 million operations
_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/")


def scheme_of(store: str) -> str:
    """ "" of a plain path."""
    found = _URI.match(store)
    return found[1].lower() if found else ""


def local_path(store: str) -> str:
    """A ``file:`` URI as a path; any other text as it is."""
    return unquote(urlsplit(store).path) if scheme_of(store) == "file" else store


def is_elsewhere(store: str) -> bool:
    """Whether Hadoop's file systems are needed to read it."""
    return scheme_of(store) not in ("", "file")


def was_submitted() -> bool:
    """Whether this program was started by spark-submit, which has a JVM and its settings ready."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def choose(engine: str, master: str, size: int) -> Engine:
    """``size``: bytes of all histories on this machine."""
    if engine != "auto":
        return "local" if engine == "local" else "spark" if engine == "spark" else "sql"
    if master or was_submitted():
        return "spark"
    if size <= LOCAL_BYTES:
        return "local"
    return "local" if jvm.why_no_spark() else "spark"
