"""What was tested is recorded, and what can't be known says why."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.debian_packages import installed_packages, read_pins, unpinned
from shalott.cluster.docker.images import IMAGES, build_step, pins_of
from shalott.cluster.nodes import CommandResult
from shalott.core.errors import HarnessError
from shalott.harness.report.meta import Tested
from shalott.harness.report.meta import tested_facts as facts_told
from shalott.harness.run.backends import make_system
from shalott.harness.run.planning import make_plan
from shalott.harness.run.provenance import Provenance, Source, source_of_project
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit

DPKG = """\
erlang-base 1:25.2.3+dfsg-1+deb12u4 installed
erlang-doc  not-installed
rabbitmq-server 3.10.8-1.1+deb12u1 installed
dpkg-query: no packages found matching etcd-server
"""
IMAGE = {
    "engine": "24.0.1",
    "image": "shalott-rabbitmq:abc",
    "image_id": "sha256:1",
    "image_digest": "none: it was made here",
    "base_image": "debian:bookworm-slim",
    "base_image_id": "sha256:2",
    "base_image_digest": "debian@sha256:3",
}
SOURCE = Source(commit="f00", tree="clean")


class Containers:
    """A cluster of containers, of which only what is asked here is there."""

    nodes = ("n1", "n2")

    def __init__(self, output: str = DPKG, error: HarnessError | None = None) -> None:
        self.output = output
        self.error = error
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.processes = self.images = self.parts = self

    async def facts(self, image: str) -> Mapping[str, str]:
        if self.error is not None:
            raise self.error
        assert image == "rabbitmq"
        return IMAGE

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        self.asked.append((node, command))
        return CommandResult(exit_code=1, output=self.output)


def facts_of(cluster: Containers, system: str = "rabbitmq") -> Tested:
    plan = make_plan(
        Request(system=system, nemesis="none", cluster="docker"), backend="docker", seed=1
    )
    facts = Provenance(plan, SOURCE)
    asyncio.run(facts.look(cluster, make_system(plan)))  # type: ignore[arg-type]
    return facts.tested()


def test_images_and_packages_are_what_the_engine_and_dpkg_say() -> None:
    cluster = Containers()
    tested = facts_of(cluster)
    assert {name: getattr(tested, name) for name in IMAGE} == IMAGE
    assert tested.packages == {
        "erlang-base": "1:25.2.3+dfsg-1+deb12u4",
        "rabbitmq-server": "3.10.8-1.1+deb12u1",
    }
    assert (tested.packages_from, tested.commit, tested.tree) == ("dpkg on n1", "f00", "clean")
    assert tested.pinned == pins_of("rabbitmq")
    ((_, command),) = cluster.asked
    assert {"rabbitmq-server", "erlang-base", "erlang-*"} <= set(command)


def test_what_can_not_be_asked_says_why() -> None:
    tested = facts_of(Containers("sh: dpkg-query: not found", HarnessError("docker: gone")))
    assert tested.image_id == tested.engine == "unknown: docker: gone"
    assert tested.packages_from == "unknown: dpkg-query on n1 says sh: dpkg-query: not found"
    never_booted = Provenance(
        make_plan(Request(nemesis="none"), backend="docker", seed=1), SOURCE
    ).tested()
    assert (
        never_booted.image_id
        == never_booted.packages_from
        == ("unknown: the nodes were not started")
    )


@pytest.mark.parametrize("backend", ["local", "sim"])
def test_without_containers_there_is_no_image_and_the_distribution_is_what_runs(
    backend: str,
) -> None:
    tested = Provenance(
        make_plan(Request(nemesis="none"), backend=backend, seed=1), SOURCE
    ).tested()
    assert tested.image.startswith("none: ") and tested.engine.startswith("none: ")
    assert tested.packages == {"shalott": tested.shalott}


def test_no_field_is_ever_empty() -> None:
    for tested in (Tested(), facts_of(Containers()), facts_of(Containers("", HarnessError("x")))):
        assert all(value for _, value in facts_told(tested))
        assert len(facts_told(tested)) == len(msgspec.structs.fields(Tested))


def test_another_version_than_the_pinned_one_is_told() -> None:
    pins = {"rabbitmq-server": "3.10.8", "erlang-*": "25.2"}
    installed = {"rabbitmq-server": "3.10.8", "erlang-base": "25.3", "erlang-ssl": "25.3"}
    (sentence,) = unpinned(installed, pins)
    assert sentence.startswith("The image has erlang-base 25.3 and 1 more of erlang-*, and not")
    assert list(unpinned(installed | {"erlang-base": "25.2", "erlang-ssl": "25.2"}, pins)) == []


def test_nothing_installed_is_an_error() -> None:
    with pytest.raises(HarnessError, match="no packages found matching x"):
        cluster = Containers("dpkg-query: no packages found matching x\n")
        asyncio.run(installed_packages(cluster, "n1", ["x"]))  # type: ignore[arg-type]


def test_every_image_with_packages_pins_some_and_hands_them_to_apt() -> None:
    for recipe in ("rabbitmq", "python"):
        pins = read_pins((IMAGES / recipe / "pins.pref").read_text())
        assert pins and all(pins.values())
        dockerfile = (IMAGES / recipe / "Dockerfile").read_text()
        copied = dockerfile.index("COPY pins.pref /etc/apt/preferences.d/shalott.pref")
        assert copied < dockerfile.index("apt-get install")
    assert pins_of("broker") == pins_of("python")
    assert "rabbitmq-server" in pins_of("rabbitmq")


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


def test_a_checkout_says_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    package = tmp_path / "shalott"
    package.mkdir(parents=True)
    assert source_of_project(package).commit.startswith("unknown: neither a checkout nor a wheel")
    (package / "commit.txt").write_text("abc\nclean\n")
    assert source_of_project(package) == Source(commit="abc", tree="clean")
    (tmp_path / "pyproject.toml").write_text("")
    git(tmp_path, "init", "-q")
    assert source_of_project(package).commit.startswith("unknown: git says ")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    found = source_of_project(package)
    assert (len(found.commit), found.tree) == (40, "clean")
    (package / "new.py").write_text("")
    assert source_of_project(package) == Source(commit=found.commit, tree="changed")


def test_steps_of_a_build_are_told_in_words() -> None:
    assert build_step("rabbitmq", "Step 3/6 : RUN apt-get update") == (
        "building the node image (rabbitmq), step 3 of 6, once, about a minute"
    )
    assert build_step("rabbitmq", " ---> Running in 123") is None
