"""Image recipes: our own by their names, a plug-in's by its directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.images import (
    BASE_TAG,
    LABEL_RECIPE,
    ensure_image,
    find_recipe,
    pins_of,
)
from shalott.core.errors import BootFailed

DOCKERFILE = "ARG BASE=debian:bookworm-slim\nFROM ${BASE}\nCOPY greeting /greeting\n"


def recipe_directory(parent: Path, name: str = "store", greeting: str = "hello") -> Path:
    directory = parent / name
    (directory / "__pycache__").mkdir(parents=True)
    (directory / "Dockerfile").write_text(DOCKERFILE)
    (directory / "greeting").write_text(greeting)
    (directory / "__pycache__" / "left.pyc").write_bytes(b"of an interpreter")
    return directory


@pytest.mark.unit
def test_a_name_is_a_recipe_of_our_own() -> None:
    recipe = find_recipe("rabbitmq")
    assert (recipe.name, recipe.base_tag) == ("rabbitmq", BASE_TAG)
    assert set(recipe.files) == {"Dockerfile", "entry.sh", "pins.pref"}


@pytest.mark.unit
def test_an_absolute_path_is_a_plug_ins_directory(tmp_path: Path) -> None:
    recipe = find_recipe(str(recipe_directory(tmp_path)))
    assert (recipe.name, recipe.base_tag) == ("store", BASE_TAG)
    assert dict(recipe.files) == {"Dockerfile": DOCKERFILE.encode(), "greeting": b"hello"}


@pytest.mark.unit
def test_a_changed_file_makes_another_image(tmp_path: Path) -> None:
    first = find_recipe(str(recipe_directory(tmp_path / "a"))).tag("base")
    same = find_recipe(str(recipe_directory(tmp_path / "b"))).tag("base")
    other = find_recipe(str(recipe_directory(tmp_path / "c", greeting="good day"))).tag("base")
    assert first == same != other


@pytest.mark.unit
def test_a_directory_is_never_mistaken_for_a_recipe_of_our_own(tmp_path: Path) -> None:
    recipe = find_recipe(str(recipe_directory(tmp_path, "python")))
    assert "lib/" not in recipe.files and not recipe.fetch_libraries


@pytest.mark.unit
def test_a_missing_recipe_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BootFailed, match="there is no image recipe 'nothing'"):
        find_recipe("nothing")
    with pytest.raises(BootFailed, match=f"there is no Dockerfile in {tmp_path}"):
        find_recipe(str(tmp_path))


@pytest.mark.unit
def test_a_directory_whose_name_no_image_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootFailed, match="use lower-case letters, digits and dashes"):
        find_recipe(str(recipe_directory(tmp_path, "My Store")))


def released(parent: Path, argument: str = "ARG RELEASE") -> Path:
    """A recipe of Debian 13 that keeps the release it was built for."""
    directory = recipe_directory(parent, "shalott-test-released")
    (directory / "Dockerfile").write_text(
        "ARG BASE=debian:trixie-slim\nFROM ${BASE}\n"
        f"{argument}\nLABEL told=${{RELEASE}}\nCOPY greeting /greeting\n"
    )
    return directory


@pytest.mark.unit
def test_a_directory_with_releases_is_named_with_one(tmp_path: Path) -> None:
    directory = released(tmp_path)
    old, new = find_recipe(f"{directory}:2.10.20"), find_recipe(f"{directory}:2.12.1-rc.1")
    assert (old.name, old.release) == ("shalott-test-released-2.10.20", "2.10.20")
    assert (new.name, new.release) == ("shalott-test-released-2.12.1-rc.1", "2.12.1-rc.1")
    assert old.base_tag == new.base_tag == "debian:trixie-slim"
    assert old.files == new.files and old.tag("base") != new.tag("base")
    assert pins_of(f"{directory}:2.10.20") == {}


@pytest.mark.unit
@pytest.mark.parametrize("release", ["", ":", ":latest", ":2.10;x", ":2..1"])
def test_a_directory_with_releases_needs_one(tmp_path: Path, release: str) -> None:
    with pytest.raises(BootFailed, match=r"needs a release: shalott-test-released:5\.3\.3"):
        find_recipe(f"{released(tmp_path)}{release}")


@pytest.mark.unit
def test_a_dockerfile_may_say_which_release_it_is_without_one(tmp_path: Path) -> None:
    assert find_recipe(str(released(tmp_path, "ARG RELEASE=2.12.1"))).release == "2.12.1"


@pytest.mark.unit
def test_a_directory_without_releases_is_refused_with_one(tmp_path: Path) -> None:
    directory = recipe_directory(tmp_path / "a:1", "store")  # a colon of its own is none
    assert find_recipe(str(directory)).name == "store"
    with pytest.raises(BootFailed, match=r"store:1\.2 has no releases: its Dockerfile has no ARG"):
        find_recipe(f"{directory}:1.2")


@pytest.mark.docker
def test_a_release_and_a_base_reach_the_build(tmp_path: Path) -> None:
    async def build() -> None:
        engine, directory = Engine(), released(tmp_path)
        tag = await ensure_image(engine, f"{directory}:2.10.20")
        try:
            found = await engine.call(lambda api: api.inspect_image(tag))
            base = await engine.call(lambda api: api.inspect_image("debian:trixie-slim"))
            assert tag.startswith("shalott-shalott-test-released-2.10.20:")
            assert found["Config"]["Labels"]["told"] == "2.10.20"
            layers = base["RootFS"]["Layers"]
            assert found["RootFS"]["Layers"][: len(layers)] == layers
        finally:
            await engine.call(lambda api: api.remove_image(tag))
            engine.close()

    asyncio.run(build())


@pytest.mark.docker
def test_a_plug_ins_image_is_built_on_our_base_and_found_again(tmp_path: Path) -> None:
    async def build_twice() -> None:
        engine, directory = Engine(), str(recipe_directory(tmp_path, "shalott-test-recipe"))
        tag = await ensure_image(engine, directory)
        try:
            found = await engine.call(lambda api: api.inspect_image(tag))
            base = await engine.call(lambda api: api.inspect_image(BASE_TAG))
            assert found["Config"]["Labels"][LABEL_RECIPE] == "shalott-test-recipe"
            layers = base["RootFS"]["Layers"]
            assert found["RootFS"]["Layers"][: len(layers)] == layers
            assert await ensure_image(engine, directory) == tag
        finally:
            await engine.call(lambda api: api.remove_image(tag))
            engine.close()

    asyncio.run(build_twice())


@pytest.mark.docker
def test_what_two_runs_need_at_once_is_made_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def build_at_once() -> None:
        engine, directory = Engine(), str(recipe_directory(tmp_path, "shalott-test-once"))
        tags = await asyncio.gather(*(ensure_image(engine, directory) for _ in range(3)))
        await engine.call(lambda api: api.remove_image(tags[0]))
        engine.close()
        assert len(set(tags)) == 1

    caplog.set_level("INFO", "shalott.cluster.docker")
    asyncio.run(build_at_once())
    built = [line for line in caplog.messages if line.startswith("building the image")]
    assert len(built) == 1


@pytest.mark.docker
def test_a_node_of_ours_has_an_operators_command() -> None:
    async def type_it(*words: str) -> tuple[int, str]:
        engine = Engine()
        tag = await ensure_image(engine, "broker")
        command = ["rabbitmqctl", *words]
        made = await engine.call(lambda api: api.create_container(tag, entrypoint=command))
        try:
            await engine.call(lambda api: api.start(made["Id"]))
            ended = await engine.call(lambda api: api.wait(made["Id"]))
            said = await engine.call(lambda api: api.logs(made["Id"]))
            return ended["StatusCode"], said.decode()
        finally:
            await engine.call(lambda api: api.remove_container(made["Id"], force=True))
            engine.close()

    exit_code, said = asyncio.run(type_it("dance"))
    assert (exit_code, "Command 'dance' not found" in said) == (64, True)
    exit_code, said = asyncio.run(type_it("cluster_status"))
    assert (exit_code, "unable to perform an operation on node" in said) == (69, True)
