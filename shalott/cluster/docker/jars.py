"""The Java jars of an image, fetched by Maven on the host: the build itself needs no repository.

A recipe's pom says which artifacts it wants, in versions that go with the release; Maven keeps what
it fetched for the next time, so a second image of a release needs no network.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from shalott.cluster.docker.programs import Outcome, run_program
from shalott.cluster.node_tree import read_tree
from shalott.core.errors import BootFailed

MAVEN = "mvn"
INSTALL_MAVEN = "apt-get install -y maven"
INSTALL_JAVA = "apt-get install -y default-jre-headless"
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
# What Maven says, and what is the matter then. The first that is found counts.
_NO_JAVA = re.compile(r"JAVA_HOME|java.*not found|No such file.*java", re.IGNORECASE)
_ABSENT = re.compile(r"(?:Could not|Failure to) find (?:artifact )?(\S+?)(?:[, ]|$)")
_UNREACHABLE = re.compile(
    r"(?:Could not transfer|Unknown host|Connection refused|timed out|unreachable|offline)[^\n]*",
    re.IGNORECASE,
)


async def fetch_jars(pom: bytes, release: str) -> dict[str, bytes]:
    """The jars by their path in the build context. Raises BootFailed, in one sentence."""
    if shutil.which(MAVEN) is None:
        raise BootFailed(
            f"Maven is missing, which fetches the jars of release {release}: install it with"
            f" {INSTALL_MAVEN}"
        )
    with tempfile.TemporaryDirectory(prefix="shalott-jars-") as directory:
        done = await run_program(*_words(Path(directory), pom, release))
        found = _fetched(Path(directory))
        if done.exit_code != 0 or not found:
            raise BootFailed(_why_not(done, release))
        return found


def _words(directory: Path, pom: bytes, release: str) -> list[str]:
    file = directory / "pom.xml"
    file.write_bytes(pom)
    words = [MAVEN, "-B", "-q", "-f", str(file), GOAL, f"-Drocketmq.version={release}"]
    return [*words, f"-DoutputDirectory={directory / 'lib'}", "-DincludeScope=runtime"]


def _fetched(directory: Path) -> dict[str, bytes]:
    jars = directory / "lib"
    return read_tree(jars, "lib/") if jars.is_dir() else {}


def _why_not(done: Outcome, release: str) -> str:
    said = f"{done.output}\n{done.errors}"
    if _NO_JAVA.search(said):
        return f"Java is missing, which Maven needs: install it with {INSTALL_JAVA}"
    if absent := _ABSENT.search(said):
        return f"there is no release {release} to be had: Maven does not find {absent[1]}"
    if unreachable := _UNREACHABLE.search(said):
        return (
            f"Maven reaches no repository for the jars of release {release}, and this machine has"
            f" not kept them: {unreachable[0].strip()[:200]}"
        )
    errors = [line for line in said.splitlines() if line.startswith("[ERROR]")]
    reason = errors[0].removeprefix("[ERROR]").strip() if errors else "it said nothing"
    return f"Maven can't fetch the jars of release {release}: {reason[:300]}"
