"""Which engine judges a store by default.

On one machine worker processes and Spark call the same kernels, and the workers do without a JVM
and its start; so on this machine's files Spark is only worth it where a cluster is named. Above
LOCAL_BYTES it is taken where it is installed all the same, for it survives a task that dies.
docs/how-to/report-on-many-runs.md has what was measured.

The Java machine that Spark runs in: where it is, how it starts quickly, and how it ends.

Quickness: a class archive (AppCDS) in the user's cache directory, written when a session that had
none ends, named after the JVM and the jars that it fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import unquote, urlsplit

from shalott.core.errors import UsageError

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
    return "local" if why_no_spark() else "spark"


NO_JAVA = (
    "the Spark report needs Java 17 or later; install it with: "
    "sudo apt-get install -y default-jre-headless"
)
NO_PYSPARK = (
    "the Spark report needs pyspark; install it with: "
    f"{sys.executable} -m pip install 'shalott[spark]'"
)
EXIT_TIMEOUT_S = 120  # the JVM's, which may have to write its archive first


def why_no_spark() -> str:
    """The command that installs what is missing; "" if nothing is."""
    if importlib.util.find_spec("pyspark") is None:
        return NO_PYSPARK
    return "" if _java_at() else NO_JAVA


def require_spark() -> None:
    """Raises UsageError with the command that installs what is missing."""
    if why := why_no_spark():
        raise UsageError(why)


def _java_at() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")


def java() -> Path:
    """Raises UsageError: there is none."""
    found = _java_at()
    if found is None:
        raise UsageError(NO_JAVA)
    return Path(found).resolve()


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Classes as the JVM wants them in memory. It fits one JVM and one set of jars, no other."""

    path: Path

    @staticmethod
    def of(java: Path, jars: Path, cache: Path) -> ClassArchive:
        """Named after everything that would make it worthless."""
        found = sorted((jar.name, jar.stat().st_size) for jar in jars.glob("*.jar"))
        runtime = java.stat()
        key = repr((str(java), runtime.st_size, runtime.st_mtime_ns, str(jars), found))
        return ClassArchive(cache / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa")

    @property
    def is_new(self) -> bool:
        return not self.path.is_file()

    @property
    def unfinished(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{os.getpid()}")

    def options(self) -> list[str]:
        """Use it, or else write it at the JVM's exit; or neither, if it can be neither."""
        if self.path.is_file():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:cds=off"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []
        return [f"-XX:ArchiveClassesAtExit={self.unfinished}", "-Xlog:cds=off"]

    def keep(self) -> None:
        """Put in place what the JVM has written, if it did."""
        with contextlib.suppress(OSError):
            self.unfinished.replace(self.path)

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            self.unfinished.unlink(missing_ok=True)


def end(process: subprocess.Popen[bytes], archive: ClassArchive | None) -> None:
    """Wait for a JVM that was told to end: it may write the class archive now."""
    if process.stdin is not None:
        process.stdin.close()  # what the JVM waits for
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=EXIT_TIMEOUT_S)
        if archive and process.returncode == 0:
            archive.keep()
    finally:
        # Also after Ctrl-C: no JVM outlives us, and half an archive is none.
        if process.poll() is None:
            process.kill()
            process.wait()
        if archive:
            archive.drop()
