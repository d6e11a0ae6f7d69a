"""The one place that makes a Spark session: a local one, silent, and quick to start.

Silence: the JVM inherits file descriptors, and its first lines (which logger, which native library)
come before any log level applies; so while it starts, descriptors 1 and 2 point to a log file.
Quickness: only the quick compiler (C1) and the serial collector, for a report runs for seconds; and
a class archive (AppCDS) in the user's cache directory, written when a session that had none ends,
named after the JVM and the jars that it fits. Everything Spark writes goes to a directory that is
removed afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shalott.harness.core.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_JAVA = (
    "the Spark report needs Java 17 or later; install it with: "
    "sudo apt-get install -y default-jre-headless"
)
NO_PYSPARK = (
    "the Spark report needs pyspark; install it with: "
    f"{sys.executable} -m pip install 'shalott[spark]'"
)
CORES_MAX = 8
EXIT_TIMEOUT_S = 120  # the JVM's, which may have to write its archive first


def require_spark() -> None:
    """Raises UsageError with the command that installs what is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError(NO_PYSPARK)
    _java()


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
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


def cache_directory() -> Path:
    """Where the user's caches go (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shalott"


@contextlib.contextmanager
def local_session(
    log: Path, *, cache: Path | None = None, cores: int | None = None
) -> Iterator[SparkSession]:
    """A session on this machine; what its JVM has to say goes to ``log``.

    With a ``cache`` directory, class archives are used and kept there.

    Raises UsageError if Java or pyspark is missing, HarnessError if the JVM does not come up.
    """
    require_spark()
    import pyspark
    from pyspark.sql import SparkSession

    cores = cores or min(CORES_MAX, os.cpu_count() or 1)
    home = Path(pyspark.__file__).parent
    archive = ClassArchive.of(_java(), home / "jars", cache) if cache else None
    with tempfile.TemporaryDirectory(prefix="shalott-spark-") as scratch:
        builder = SparkSession.builder.master(f"local[{cores}]").appName("shalott")
        for name, value in _settings(Path(scratch), cores, archive).items():
            builder = builder.config(name, value)
        session = _start(builder, log)
        try:
            yield session
        finally:
            _end(session, archive)


def _settings(scratch: Path, cores: int, archive: ClassArchive | None) -> dict[str, str]:
    java_options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Djava.io.tmpdir={scratch}",
        *(archive.options() if archive else ()),
    ]
    return {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.task.maxFailures": "1",  # our tasks are deterministic: what failed will fail
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }


def _start(builder: SparkSession.Builder, log: Path) -> SparkSession:
    # A hostname that does not resolve kills the start, and only the environment helps.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True  # kilobytes of JSON on stderr for any error
    from pyspark.errors import PySparkException

    try:
        with _descriptors_to(log):
            return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise HarnessError(f"Spark did not start ({reason}); its log is {log}") from error


@contextlib.contextmanager
def _descriptors_to(log: Path) -> Iterator[None]:
    """Meanwhile, what this process and its children write to 1 and 2 goes to ``log``."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        os.close(kept[0])
        os.close(kept[1])


def _end(session: SparkSession, archive: ClassArchive | None) -> None:
    """Stop the session and its JVM, and wait for it: it may write the class archive now."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
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
        SparkContext._gateway = None
        SparkContext._jvm = None
