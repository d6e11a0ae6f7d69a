"""The one place that makes a Spark session: silent, quick to start, on any master.

Silence: the JVM inherits file descriptors, and its first lines (which logger, which native library)
come before any log level applies; so while it starts, descriptors 1 and 2 point to a log file.

Where rows stay out of the JVM, as with the kernels, it needs little: the quick compiler (C1), the
serial collector and a small heap, however large the histories. Where SQL reads the rows, it is
given the usual compiler, the parallel collector and a heap by the size of what it reads.

On this machine everything that Spark writes goes to a directory that is removed afterwards. A
program that spark-submit started has a JVM and settings already: what was set there stays.

On a cluster whose machines lack this project, executors get its code. A compiled engine can't be
loaded out of a zip file, so the code is an archive that Spark unpacks beside each executor
(``spark.archives``), with the executors' PYTHONPATH pointing there: the rooms of the kernels, and
the compiled libraries that they import. numpy, pyarrow and pyspark must be there, as for any Spark
job with Python in it; Python must be of the driver's version, and the machines of its kind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shalott.core.errors import HarnessError
from shalott.spark_analysis.engine_choice import (
    ClassArchive,
    end,
    java,
    require_spark,
    was_submitted,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

import importlib.util
import zipfile

import shalott

CORES_MAX = 8
SMALL_BYTES = 24 << 20  # of histories whose rows Spark reads: some two million operations
FULL_BYTES = 192 << 20
SHUFFLED_BYTES = 8 << 20  # of histories, to a partition of a shuffle
# A list of files and one step: to compile that takes longer than to run it.
PLAIN_PLANS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
NAME = "shalott_code"
ROOMS = ("core", "checkers", "spark_analysis")
LIBRARIES = ("msgspec", "cffi", "_cffi_backend")
_KEPT = (".py", ".so", ".pyd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """``master``: as Spark writes it; "": this machine, or what spark-submit says. ``cache``: where
    class archives are kept; None: none is used. ``bytes_in_jvm``: of histories that SQL reads."""

    log: Path
    master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    cache: Path | None = None
    cores: int | None = None
    bytes_in_jvm: int = 0
    rooms: tuple[str, ...] = ROOMS  # packages of ours that executors elsewhere are sent

    @property
    def is_local(self) -> bool:
        return (self.master or "local").startswith("local") and not was_submitted()


def cache_directory() -> Path:
    """Where the user's caches go (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shalott"


@contextlib.contextmanager
def spark_session(wanted: Session) -> Iterator[SparkSession]:
    """Raises UsageError if Java or pyspark is missing, HarnessError if Spark does not come up."""
    require_spark()
    import pyspark
    from pyspark.sql import SparkSession

    cores = wanted.cores or min(CORES_MAX, len(os.sched_getaffinity(0)))
    home = Path(pyspark.__file__).parent
    archive = None
    if wanted.cache is not None and wanted.is_local:
        archive = ClassArchive.of(java(), home / "jars", wanted.cache)
    with tempfile.TemporaryDirectory(prefix="shalott-spark-") as scratch:
        builder = SparkSession.builder.appName("shalott")
        if wanted.master or wanted.is_local:
            builder = builder.master(wanted.master or f"local[{cores}]")
        for name, value in settings(wanted, Path(scratch), cores, archive).items():
            builder = builder.config(name, value)
        session = _start(builder, wanted)
        try:
            yield session
        finally:
            _end(session, archive)


@contextlib.contextmanager
def local_session(
    log: Path, *, cache: Path | None = None, cores: int | None = None, bytes_in_jvm: int = 0
) -> Iterator[SparkSession]:
    """A session on this machine."""
    wanted = Session(log=log, cache=cache, cores=cores, bytes_in_jvm=bytes_in_jvm)
    with spark_session(wanted) as session:
        yield session


def settings(
    wanted: Session, scratch: Path, cores: int, archive: ClassArchive | None
) -> dict[str, str]:
    """What the session is configured with; what the user says comes last, and holds."""
    parts = max(cores, wanted.bytes_in_jvm // SHUFFLED_BYTES)
    found = {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(parts),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    if wanted.packages:
        found["spark.jars.packages"] = ",".join(wanted.packages)
    if wanted.is_local:
        found |= _local_settings(wanted, scratch, cores, archive)
    else:
        found |= shipped_code(scratch, wanted.rooms)
    return found | dict(wanted.conf)


def _local_settings(
    wanted: Session, scratch: Path, cores: int, archive: ClassArchive | None
) -> dict[str, str]:
    small = wanted.bytes_in_jvm <= SMALL_BYTES
    java_options = [
        *(("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if small else ("-XX:+UseParallelGC",)),
        f"-Djava.io.tmpdir={scratch}",
        *(archive.options() if archive else ()),
        *filter(None, [wanted.conf.get("spark.driver.extraJavaOptions")]),
    ]
    heap = "1g" if wanted.bytes_in_jvm == 0 else "2g" if small else "4g"
    return {
        "spark.driver.memory": "6g" if wanted.bytes_in_jvm > FULL_BYTES else heap,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.default.parallelism": str(cores),
        "spark.task.maxFailures": "1",  # our tasks are deterministic: what failed will fail
        "spark.python.daemon.module": "shalott.spark_analysis.worker_daemon",
        **(PLAIN_PLANS if wanted.bytes_in_jvm == 0 else {}),
    }


def _start(builder: SparkSession.Builder, wanted: Session) -> SparkSession:
    if wanted.is_local:
        # A hostname that does not resolve kills the start, and only the environment helps.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        # Executors elsewhere have a Python of their own, which only who runs them knows.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True  # kilobytes of JSON on stderr for any error
    from pyspark.errors import PySparkException

    log = wanted.log
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
    """Stop the session; and its JVM, unless spark-submit started that."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    try:
        end(process, archive)
    finally:
        SparkContext._gateway = None
        SparkContext._jvm = None


def shipped_code(scratch: Path, rooms: Sequence[str] = ROOMS) -> dict[str, str]:
    """Spark's settings for it; the archive is written into ``scratch``."""
    archive = write_archive(scratch / f"{NAME}.zip", rooms)
    return {"spark.archives": f"{archive}#{NAME}", "spark.executorEnv.PYTHONPATH": f"./{NAME}"}


def write_archive(path: Path, rooms: Sequence[str] = ROOMS) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _files(rooms):
            archive.write(file, name)
        archive.writestr("shalott/__init__.py", "")
    return path


def _files(rooms: Sequence[str]) -> Iterator[tuple[str, Path]]:
    (package,) = map(Path, shalott.__path__)
    for room in rooms:
        for file in sorted((package / room).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                yield f"shalott/{file.relative_to(package)}", file
    for library in LIBRARIES:
        found = importlib.util.find_spec(library)
        if found is None or found.origin is None:
            continue  # an engine that was built otherwise may do without it
        origin = Path(found.origin)
        if not found.submodule_search_locations:
            yield origin.name, origin
            continue
        for file in sorted(origin.parent.rglob("*")):
            if file.suffix in _KEPT:
                yield f"{library}/{file.relative_to(origin.parent)}", file
