"""Docker, Podman, with root and without: which can run nodes, by what real ones said of themselves.

The answers are those of Docker 20.10.24 and Podman 4.3.1 of Debian 12.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import docker.errors
import pytest

from shalott.cluster.docker.engine import connect
from shalott.cluster.docker.reachable import unfit
from shalott.cluster.docker.sweep import remove_when_free
from shalott.core.errors import MissingHere
from shalott.harness.cli.main import run_command
from shalott.harness.run.backends import choose_backend

DEBIAN = "Debian GNU/Linux 12 (bookworm)"
DOCKER = {"OperatingSystem": DEBIAN, "SecurityOptions": ["name=seccomp,profile=default"]}
PODMAN = {**DOCKER, "OperatingSystem": "debian", "Rootless": False}
ROOTLESS_DOCKER = {**DOCKER, "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}
ROOTLESS_PODMAN = {**PODMAN, "Rootless": True}  # its options do not say so
WITHOUT_ROOT = "the engine runs without root, so its containers can't be reached or cut from here"


@pytest.mark.unit
@pytest.mark.parametrize("info", [DOCKER, PODMAN, {}, {"SecurityOptions": None}])
def test_an_engine_with_root_runs_nodes(info: Mapping[str, object]) -> None:
    assert unfit(info) is None


@pytest.mark.unit
@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        (ROOTLESS_DOCKER, WITHOUT_ROOT),
        (ROOTLESS_PODMAN, WITHOUT_ROOT),
        ({**DOCKER, "SecurityOptions": ["name=rootless,more=words"]}, WITHOUT_ROOT),
        ({"OperatingSystem": "Docker Desktop"}, "Docker Desktop's containers can't be reached"),
    ],
)
def test_others_are_refused_with_what_to_do(info: Mapping[str, object], sentence: str) -> None:
    told = str(unfit(info))
    assert told.startswith(sentence)
    assert "--cluster local" in told


@pytest.mark.unit
def test_a_container_that_ends_while_podman_kills_it_is_removed_again() -> None:
    said = "cannot remove container as it could not be stopped: container state improper: stopped"
    answers: list[Exception | None] = [docker.errors.APIError(said), None]

    def remove() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    remove_when_free(remove)
    assert answers == []
    answers.append(docker.errors.APIError("no space left on device"))
    with pytest.raises(docker.errors.APIError, match="no space left"):
        remove_when_free(remove)


@contextmanager
def engine(directory: Path, info: Mapping[str, object]) -> Iterator[str]:
    """An engine that says this of itself and does nothing else; its DOCKER_HOST."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = {"ApiVersion": "1.41"} if self.path.endswith("/version") else info
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "a client"

        def log_message(self, format: str, *args: object) -> None: ...

    path = str(directory / "engine.sock")
    with ThreadingUnixStreamServer(path, Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"unix://{path}"
        server.shutdown()
        thread.join()


@pytest.mark.explore
@pytest.mark.parametrize("info", [ROOTLESS_DOCKER, ROOTLESS_PODMAN], ids=["docker", "podman"])
def test_a_run_on_an_engine_without_root_is_refused_before_boot(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    info: Mapping[str, object],
) -> None:
    monkeypatch.chdir(tmp_path)
    with engine(tmp_path, info) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(MissingHere, match="runs without root"):
            connect()
        assert run_command(["test", "--cluster", "docker", "--store", "kept"]) == 254
        assert choose_backend("auto", "mirrored").backend == "local"
    told = capsys.readouterr().err
    assert told.startswith(f"shalott: cluster docker can't be used: {WITHOUT_ROOT}")
    assert told.count("\n") == 1
    assert not (tmp_path / "kept").exists()


@pytest.mark.explore
def test_podman_with_root_is_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(tmp_path, PODMAN) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        connect().close()
        assert choose_backend("docker", "mirrored").backend == "docker"
