"""A standalone Spark cluster on this machine: a master and two workers, each its own process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DEPLOY = "org.apache.spark.deploy"
TIMEOUT_S = 120


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@dataclass
class Cluster:
    """``url``: what ``--master`` is given."""

    directory: Path
    url: str = ""
    master: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.master = self._daemon(
            "master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", str(free_port()),
        )  # fmt: skip
        self._await("master", r"I have been elected leader")
        for number in (1, 2):
            worker = self._daemon(
                f"worker{number}", f"{DEPLOY}.worker.Worker", "--host", "127.0.0.1",
                "--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), self.url,
            )  # fmt: skip
            self.workers.append(worker)
        for number in (1, 2):
            self._await(f"worker{number}", r"Successfully registered with master")

    def _daemon(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        work = self.directory / name
        work.mkdir()
        settings = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(work),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
            " -Dspark.master.rest.enabled=false",
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
        }
        # What is shipped is all that executors have of ours.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self._log(name).open("wb") as log:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), *words],
                env=inherited | settings, stdout=log, stderr=log, cwd=work,
                start_new_session=True,
            )  # fmt: skip

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _await(self, name: str, words: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if re.search(words, self._log(name).read_text(errors="replace")):
                return
            time.sleep(0.05)  # a log file can't be waited for
        raise TimeoutError(self._log(name).read_text(errors="replace")[-2000:])

    def kill_worker(self, number: int) -> None:
        """With its executors, at once."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            if process is None:
                continue
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def standalone(directory: Path) -> Iterator[Cluster]:
    cluster = Cluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


CLUSTER_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
}
