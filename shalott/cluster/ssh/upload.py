"""What is put on a host: the agent, and for nodes of ours the broker with its libraries.

Both are named after their content and stay where they are from run to run, so a host that has them
gets nothing; ``shalott clean`` removes them. A file is written beside its place, its checksum is
compared on the host, and only then it takes its place.

An image may have an entry script of its own, which stands before a node's command (``ENTRIES``).
RabbitMQ's writes a cookie into the home of the package's user; on a host that home may be another
RabbitMQ's, so here the node has a home of its own, its data directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import platform
import secrets
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from shalott.cluster.disks.build import program_path
from shalott.cluster.node_tree import (
    broker_files,
    installed_libraries,
    library_pins,
    pip_words,
    read_tree,
)
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import HostFacts
from shalott.cluster.ssh.inventory import title_of
from shalott.core.errors import BootFailed, HarnessError

log = logging.getLogger("shalott.cluster.ssh")

AGENT = Path(__file__).parent / "agent"
# The rest of the agent, which others use too. All of it needs Python 3.9 and its library alone.
PACKAGE = Path(__file__).parents[2]
SHARED = (
    "core/rng.py",
    "core/errors.py",
    *(
        f"cluster/{name}.py"
        for name in ("cgroups", "data_files", "forking", "kernel_limits", "owner", "precedence")
    ),
    *(f"cluster/packets/{name}.py" for name in ("engine", "fates", "numbered", "queue")),
)
AGENT_START = """import sys
from shalott.cluster.ssh.agent.main import main
sys.exit(main(sys.argv[1:]))
"""
BROKER_PYTHON = (3, 11)
DIGEST_LENGTH = 16
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip archive can tell
UNPACK = """
import os, sys, tarfile
archive, fresh, target = sys.argv[1:]
os.mkdir(fresh)
with tarfile.open(archive) as file:
    file.extractall(fresh)
try:
    os.rename(fresh, target)
except OSError:
    if not os.path.isdir(target):
        raise
os.unlink(archive)
"""


def put_agent(connection: Connection, facts: HostFacts) -> str:
    """The agent's path on the host. Raises HarnessError: the upload fails."""
    content = agent_archive()
    connection.run(f"mkdir -p {shlex.quote(facts.directory)}/runs")
    path = f"{facts.directory}/agent-{_digest(content)}.pyz"
    if _remote_checksum(connection, path) != hashlib.sha256(content).hexdigest():
        _upload(connection, facts, path, content)
    return path


def put_broker(connection: Connection, facts: HostFacts) -> str:
    """What PYTHONPATH must name on the host. Raises BootFailed, HarnessError."""
    version = ".".join(map(str, facts.python))
    if facts.python < BROKER_PYTHON:
        wanted = ".".join(map(str, BROKER_PYTHON))
        raise BootFailed(
            f"{title_of(connection.host)} has Python {version}, and the broker needs {wanted} or"
            " newer: name another in the inventory (python)"
        )
    files = broker_files()
    words = [version, facts.machine, str(facts.glibc), *library_pins()]
    path = f"{facts.directory}/broker-{_digest(*files.values(), *map(str.encode, words))}"
    if connection.run(f"test -d {shlex.quote(path)}").exit_code == 0:
        return path
    log.info("uploading the broker to %s", title_of(connection.host))
    content = _tar({**_libraries(connection, facts, version), **files})
    archive = f"{path}.{secrets.token_hex(4)}.tar.gz"
    _upload(connection, facts, archive, content)
    fresh = archive.removesuffix(".tar.gz")
    python = shlex.quote(connection.host.python)
    done = connection.run(shlex.join(["-c", UNPACK, archive, fresh, path]).join((f"{python} ", "")))
    if done.exit_code != 0:
        connection.run(f"rm -rf {shlex.quote(archive)} {shlex.quote(fresh)}")
        raise BootFailed(_upload_failed(connection, facts, len(content), _last_line(done.errors)))
    return path


def put_disk_program(connection: Connection, facts: HostFacts) -> str:
    """The path on the host of the file system of docs/explanation/disks.md. Raises UsageError,
    HarnessError."""
    content = program_path().read_bytes()
    path = f"{facts.directory}/faultfs-{_digest(content)}"
    if _remote_checksum(connection, path) != hashlib.sha256(content).hexdigest():
        _upload(connection, facts, path, content)
    connection.run(f"chmod 755 {shlex.quote(path)}")
    return path


def agent_archive() -> bytes:
    """The agent as one file that Python runs. Equal sources make equal bytes."""
    sources = agent_sources()
    above = [parent for path in sources for parent in Path(path).parents if str(parent) != "."]
    files = {f"{each}/__init__.py": b"" for each in above} | sources
    files["__main__.py"] = AGENT_START.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def agent_sources() -> dict[str, bytes]:
    """By the path in the archive."""
    files = {f"shalott/cluster/ssh/agent/{path.name}": path for path in AGENT.glob("*.py")}
    files |= {f"shalott/{name}": PACKAGE / name for name in SHARED}
    return {name: path.read_bytes() for name, path in files.items()}


def _upload(connection: Connection, facts: HostFacts, path: str, content: bytes) -> None:
    fresh = f"{path}.{secrets.token_hex(4)}.part"
    with contextlib.closing(connection.files()) as files:
        try:
            files.putfo(io.BytesIO(content), fresh, confirm=True)
            seen = _remote_checksum(connection, fresh)
            if seen != hashlib.sha256(content).hexdigest():
                raise OSError("what arrived is something else than what was sent")
            files.posix_rename(fresh, path)
        except (OSError, EOFError, paramiko.SSHException) as error:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                files.remove(fresh)
            sentence = _upload_failed(connection, facts, len(content), str(error))
            raise HarnessError(sentence) from error


def _upload_failed(connection: Connection, facts: HostFacts, count: int, reason: str) -> str:
    free = "an unknown number of"
    with contextlib.suppress(HarnessError):
        words = connection.run(f"df -Pk {shlex.quote(facts.directory)}").output.split()
        free = str(int(words[-3]) * 1024) if len(words) > 3 else free
    return (
        f"{title_of(connection.host)} does not take an upload of {count} bytes into"
        f" {facts.directory}, where {free} are free ({reason}): make room there, or name another"
        " directory in the inventory"
    )


def _remote_checksum(connection: Connection, path: str) -> str:
    """Of a file on the host; "" if it is not there."""
    words = connection.run(f"sha256sum {shlex.quote(path)} 2>/dev/null").output.split()
    return words[0].decode(errors="replace") if words else ""


def _libraries(connection: Connection, facts: HostFacts, version: str) -> Mapping[str, bytes]:
    """The broker's libraries for the host's Python: those that are installed here, where the host
    is like this machine, or else from the package index."""
    alike = facts.python == sys.version_info[:2] and facts.machine == platform.machine()
    if alike and facts.glibc and platform.libc_ver()[0] == "glibc":
        return installed_libraries()
    tag = "manylinux2014" if facts.glibc else "musllinux_1_2"
    with tempfile.TemporaryDirectory(prefix="shalott-lib-") as directory:
        words = pip_words(directory, version, f"{tag}_{facts.machine}")
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, cwd="/"
        )
        if done.returncode != 0:
            raise BootFailed(
                f"cannot fetch {' '.join(library_pins())} for {title_of(connection.host)}"
                f" (Python {version}, {facts.machine}): {_last_line(done.stderr)}"
            )
        return read_tree(Path(directory))


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, 1
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(*contents: bytes) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(b"%d\0" % len(content) + content)
    return digest.hexdigest()[:DIGEST_LENGTH]


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1]


ADMINISTRATORS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Entry:
    """``before``: shell commands; ``path``: directories that are searched first; ``package``: what
    installs the program on Debian."""

    before: str = ""
    path: str = ""
    package: str = ""
    environment: tuple[tuple[str, str], ...] = ()


PLAIN = Entry()
ENTRIES: Mapping[str, Entry] = {
    "rabbitmq": Entry(
        before='umask 077; mkdir -p "$RABBITMQ_MNESIA_BASE" "$RABBITMQ_LOG_BASE";'
        ' rm -f "$HOME/.erlang.cookie"; printf %s "$SHALOTT_COOKIE" >"$HOME/.erlang.cookie";'
        ' chmod 400 "$HOME/.erlang.cookie"',
        path="/usr/lib/rabbitmq/bin",  # past Debian's wrappers, which insist on the package's user
        package="rabbitmq-server",
        environment=(("RABBITMQ_CONF_ENV_FILE", "/dev/null"),),  # the host's own is for its own
    ),
}


def entry_of(image: str) -> Entry:
    return ENTRIES.get(image, PLAIN)


def command_line(image: str, command: Sequence[str]) -> list[str]:
    """What is run on a host for a node's command."""
    before = entry_of(image).before
    return ["sh", "-c", f'{before}; exec "$@"', "sh", *command] if before else list(command)


def search_path(image: str) -> str:
    first = entry_of(image).path
    return f"{first}:{ADMINISTRATORS}" if first else ADMINISTRATORS


def check_program(connection: Connection, spec: NodeSpec) -> None:
    """Raises BootFailed if the host lacks what the node is to run."""
    program = spec.command[0]
    if "{" in program:
        return
    path = search_path(spec.image)
    search = f"PATH={path} command -v {shlex.quote(program)}"
    if connection.run(f"sh -c {shlex.quote(search)}").exit_code != 0:
        package = entry_of(spec.image).package or program
        raise BootFailed(
            f"{title_of(connection.host)} has no {program}: install it there with"
            f" `sudo apt-get install -y {package}`, and keep the host's own one stopped"
        )
