"""Jars of an image: what is missing when they can't be had, in one sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.cluster.docker.images import fetch_jars, find_recipe
from shalott.core.errors import BootFailed

pytestmark = pytest.mark.unit

SAID = {
    "no java": (
        "The JAVA_HOME environment variable is not defined correctly",
        "Java is missing, which Maven needs: install it with apt-get install -y",
    ),
    "no such release": (
        "[ERROR] Failed to execute goal on project x: Could not resolve dependencies: Could not"
        " find artifact org.apache.rocketmq:rocketmq-broker:jar:5.9.9 in central",
        "there is no release 5.9.9 to be had: Maven does not find"
        " org.apache.rocketmq:rocketmq-broker:jar:5.9.9",
    ),
    "no network": (
        "[ERROR] Plugin org.apache.maven.plugins:x could not be resolved: Could not transfer"
        " artifact x from/to central: repo: Name or service not known",
        "Maven reaches no repository for the jars of release 5.9.9",
    ),
    "something else": (
        "[ERROR] The goal you specified requires a project",
        "Maven can't fetch the jars of release 5.9.9: The goal you specified",
    ),
}


def maven(directory: Path, script: str) -> None:
    """A program of that name, first in the path."""
    program = directory / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("case", SAID)
def test_what_maven_lacks_is_one_sentence(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, sentence = SAID[case]
    maven(tmp_path, f'echo "{said}"; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(BootFailed) as failed:
        asyncio.run(fetch_jars(b"<project/>", "5.9.9"))
    assert sentence in str(failed.value)
    assert "\n" not in str(failed.value)


def test_without_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BootFailed, match="Maven is missing, which fetches the jars of release 5.3"):
        asyncio.run(fetch_jars(b"<project/>", "5.3.3"))


def test_the_jars_are_part_of_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        'for word in "$@"; do case $word in -DoutputDirectory=*) into=${word#*=} ;; esac; done;'
        ' mkdir -p "$into"; echo a >"$into/a.jar"'
    )
    maven(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert asyncio.run(fetch_jars(b"<project/>", "5.3.3")) == {"lib/a.jar": b"a\n"}


def test_each_release_has_an_image_of_its_own() -> None:
    one, other = find_recipe("rocketmq:5.3.3"), find_recipe("rocketmq:5.5.0")
    assert (one.name, other.name) == ("rocketmq-5.3.3", "rocketmq-5.5.0")
    assert one.files == other.files
    assert one.tag("base") != other.tag("base")


@pytest.mark.parametrize("image", ["rocketmq", "rocketmq:", "rocketmq:latest;x"])
def test_an_image_without_a_release_is_none(image: str) -> None:
    with pytest.raises(BootFailed, match="needs a release"):
        find_recipe(image)
