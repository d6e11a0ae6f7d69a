"""Has RocketMQ's Java client and the bridge to it: Maven brings the jars, javac compiles bridge/
(Bridge.java asks Sender.java, Member.java and Reader.java; Asked.java and Json.java are its words).

This is done once for each release and each state of the sources, when it is first wanted, into
build/java-client of a checkout or else the user's cache. ``scripts/setup java-client`` and
``python -m shalott.clients.java.build [VERSION]`` do it ahead of time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shalott.core.errors import HarnessError, ShalottError, UsageError

BRIDGE: Final = Path(__file__).resolve().with_name("bridge")
ROOT: Final = BRIDGE.parents[3]
TIMEOUT_S: Final = 600.0
JAVA_OLDEST: Final = 11

NEEDED: Final = (
    "RocketMQ's Java client needs Java 11 or newer with its compiler, and Maven, to be built once:"
    " scripts/setup java-client"
)


@dataclass(frozen=True, slots=True)
class JavaClient:
    """``directory`` has classes/ and lib/."""

    java: str
    directory: Path

    @property
    def class_path(self) -> str:
        return f"{self.directory / 'classes'}:{self.directory / 'lib'}/*"


def pinned_version() -> str:
    """The release that the pom names."""
    found = re.search(r"<rocketmq.version>([^<]+)<", (BRIDGE / "pom.xml").read_text())
    assert found, "the pom names a release"
    return found[1]


def java_client(
    version: str = "", tell: Callable[[str], object] = lambda sentence: None
) -> JavaClient:
    """The client of a release, by default the pinned one, which is built if it is not there.

    Raises UsageError: Java, its compiler or Maven is missing, or Maven can't fetch the release.
    Raises HarnessError: the bridge does not compile.
    """
    version = version or pinned_version()
    if re.fullmatch(r"\d+(\.\d+)+", version) is None:
        raise UsageError(f"{version!r} is no release of RocketMQ's Java client, as 5.3.3 is")
    java = _program("java")
    path = _directory() / f"{version}-{_digest()}"
    if java is not None and path.exists():
        return JavaClient(java, path)
    javac, maven = _program("javac"), shutil.which("mvn")
    if java is None or javac is None or maven is None:
        raise UsageError(NEEDED)
    tell(f"fetching RocketMQ's Java client {version}, which is done once")
    _build(javac, maven, version, path)
    return JavaClient(java, path)


def obstacle() -> str:
    """Why the client can't be had here, as far as programs go; "" if it can."""
    missing = [name for name in ("java", "javac") if _program(name) is None]
    missing += [] if shutil.which("mvn") else ["mvn"]
    return f"{', '.join(missing)} not installed" if missing else ""


def _program(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    return (shutil.which(str(Path(home, "bin", name))) if home else None) or shutil.which(name)


def _directory() -> Path:
    if (ROOT / "pyproject.toml").exists():
        return ROOT / "build" / "java-client"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shalott" / "java-client"


def _digest() -> str:
    said = hashlib.sha256()
    for path in (*sorted(BRIDGE.glob("*.java")), BRIDGE / "pom.xml"):
        said.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        said.update(path.read_bytes())
    return said.hexdigest()[:16]


def _build(javac: str, maven: str, version: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        made = Path(directory)
        fetched = _run(
            *(maven, "-q", "-B", "-f", str(BRIDGE / "pom.xml"), "dependency:copy-dependencies"),
            *(f"-Drocketmq.version={version}", "-DincludeScope=runtime"),
            f"-DoutputDirectory={made / 'lib'}",
        )
        if fetched.returncode != 0:
            said = _first_error(fetched.stdout + fetched.stderr)
            raise UsageError(f"Maven can't fetch RocketMQ's Java client {version}: {said}")
        sources = [str(source) for source in sorted(BRIDGE.glob("*.java"))]
        compiled = _run(
            *(javac, "-nowarn", "--release", str(JAVA_OLDEST), "-proc:none"),
            *("-cp", f"{made / 'lib'}/*", "-d", str(made / "classes"), *sources),
        )
        if compiled.returncode != 0:
            raise HarnessError(f"the bridge to Java does not compile: {compiled.stderr.strip()}")
        made.chmod(0o755)
        _put(made, path)


def _put(made: Path, path: Path) -> None:
    """Two at once: the second finds what it wanted."""
    whole = made.with_name(f"{made.name}-whole")
    made.rename(whole)
    made.mkdir()  # for who removes it
    try:
        whole.rename(path)
    except OSError:
        shutil.rmtree(whole)
        if not path.exists():
            raise


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{command[0]} took more than {TIMEOUT_S:.0f} s") from None


def _first_error(said: str) -> str:
    lines = [line for line in said.splitlines() if line.startswith("[ERROR]")]
    return (lines or said.strip().splitlines() or ["it says nothing"])[0].removeprefix("[ERROR] ")


def main(arguments: Sequence[str]) -> None:
    try:
        version = arguments[0] if arguments else ""
        sys.stdout.write(f"{java_client(version).directory}\n")
    except ShalottError as error:
        sys.exit(f"shalott: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
