"""Node images: built from recipes, and only when what goes into them has changed.

A recipe is a directory with a Dockerfile: one of our own under cluster/images, by its name, or a
plug-in's, by its absolute path; the directory's own name is then the recipe's.
A recipe may be of several releases, and is named with one: "rocketmq:5.3.3", "/a/directory:2.12.1".
Its Dockerfile has an ``ARG RELEASE``, or a pom lies beside it (Maven brings the jars of that
release). ``ARG BASE=debian:trixie-slim`` in it says what it starts from.
A recipe's tag is a hash of its files, its base image, its release and the versions that it pins, so
an unchanged project finds its image by name and builds nothing. ``broker`` is a thin layer over
``python``: a change of the broker's source redoes that layer alone. A base image of Debian needs no
registry: see cluster/images/make_base.sh.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import io
import logging
import os
import re
import shutil
import sys
import tarfile
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import docker
import docker.errors
import msgspec

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.debian_packages import PINS, read_pins
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import BASE_TAG as BASE_TAG
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.engine_words import build_context
from shalott.cluster.docker.namespaces import Outcome, run_program
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.node_tree import OWN_BROKER, broker_files, library_pins, pip_words, read_tree
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.parts import StatelessPart
from shalott.cluster.waiting import wait_until
from shalott.core.errors import BootFailed, HarnessError
from shalott.core.steps import tell_step

log = logging.getLogger("shalott.cluster.docker")

IMAGES = Path(__file__).parent.parent / "images"
PYTHON_VERSION = "3.11"  # of Debian bookworm
MAKING_S = 1800  # all that one run may have to make
KEPT_TAGS = 3  # of one recipe; another checkout on this machine may be using an older one
POM = "pom.xml"
ELF = b"\x7fELF"  # how a program begins
BASES = (BASE_TAG, "debian:trixie-slim")  # that are made where they can't be pulled
RELEASE = re.compile(r"\d+([.-][a-z0-9]+)*")
ARGUMENT = re.compile(r"^ARG +(\w+)(?:=(\S+))?", re.MULTILINE | re.IGNORECASE)
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # a part of an image's tag
LABEL_RECIPE = "shalott.recipe"
PLATFORMS = {"amd64": "manylinux2014_x86_64", "arm64": "manylinux2014_aarch64"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one image is made of."""

    name: str
    base_tag: str
    files: Mapping[str, bytes]  # path in the build context -> content
    fetch_libraries: bool = False
    release: str = ""  # of what it fetches or its pom asks for

    def tag(self, base_id: str) -> str:
        digest = hashlib.sha256(base_id.encode())
        for path, content in sorted(self.files.items()):
            digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
        for pin in library_pins() if self.fetch_libraries else ():
            digest.update(f"\0{pin}".encode())
        if self.release:
            digest.update(f"\0{self.release}".encode())
        return f"shalott-{self.name}:{digest.hexdigest()[:12]}"


async def ensure_image(engine: Engine, image: str) -> str:
    """The tag of an up-to-date image: of a recipe, built if need be, or of a stock image, pulled if
    the engine lacks it. Raises BootFailed."""
    if not is_directory(image) and not (directory_of(image) / "Dockerfile").is_file():
        return await _ensure_stock(engine, image)
    recipe = find_recipe(image)
    async with _one_maker():
        await _ensure_base(engine, recipe.base_tag)
        if recipe.name == OWN_BROKER and not is_directory(image):
            base = await _ensure(engine, find_recipe("python"))
            recipe = replace(recipe, base_tag=base, files={**recipe.files, **broker_files()})
        return await _ensure(engine, recipe)


async def ensure_container_image(engine: Engine, spec: NodeSpec) -> str:
    """The tag of the image of a container that others describe: a stock one, or one that is built
    of a directory by the engine, which knows what it built before. Raises BootFailed."""
    build = spec.container.build if spec.container is not None else None
    if build is None:
        return await _ensure_stock(engine, spec.image)
    if build.target == "" and "BASE" not in build.arguments:
        async with _one_maker():  # what many begin with, where no registry is reached
            await _ensure_base(engine, BASE_TAG)
    digest = hashlib.sha256(msgspec.json.encode(build)).hexdigest()[:12]
    tag = f"shalott-compose:{digest}"
    tell_step(f"building the image of {Path(build.context).name}")
    words = {
        "path": build.context,
        "dockerfile": build.dockerfile,
        "buildargs": dict(build.arguments),
        "target": build.target,
        "tag": tag,
        "labels": {LABEL_RECIPE: "compose"},
    }
    why = await engine.call(lambda api: build_context(api, words))
    if why or await image_id(engine, tag) is None:
        raise BootFailed(f"the image of {spec.name} can't be built: {why[-2000:].strip()}")
    return tag


@asynccontextmanager
async def _one_maker() -> AsyncIterator[None]:
    """Meanwhile no other run of this user makes an image. Two that make one base at once get two,
    and apt fails beside another apt. Raises BootFailed when another run does not end."""
    path = Path(tempfile.gettempdir()) / f"shalott-images-{os.getuid()}.lock"
    with path.open("w") as file:

        def is_ours() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not is_ours():
            tell_step("waiting for another run that makes images")
            if not await wait_until(is_ours, MAKING_S, 0.2):
                raise BootFailed(f"another run makes images for {MAKING_S / 60:.0f} minutes")
        yield


async def _ensure_stock(engine: Engine, image: str) -> str:
    """An image of others, as it is: "nats:2.10"."""
    if await image_id(engine, image) is not None:
        return image
    tell_step(f"pulling the image {image}, once")

    def pull(api: docker.APIClient) -> str:
        try:
            said = list(api.pull(image, stream=True, decode=True))
        except docker.errors.APIError as error:
            return str(error.explanation or error)
        return next((str(line["error"]) for line in said if "error" in line), "")

    why = await engine.call(pull)
    if why or await image_id(engine, image) is None:
        raise BootFailed(
            f"there is no image {image}: name a recipe ({', '.join(recipes())}), the absolute path"
            " of a directory with a Dockerfile, or an image that the engine has or can pull"
            f" ({_last_line(why)})"
        )
    return image


def recipes() -> list[str]:
    """Our own, by name."""
    return sorted(path.parent.name for path in IMAGES.glob("*/Dockerfile"))


def is_directory(image: str) -> bool:
    """Whether ``NodeSpec.image`` is a plug-in's directory, and not the name of one of ours."""
    return Path(image).is_absolute()


def find_recipe(image: str) -> Recipe:
    """Raises BootFailed if there is none."""
    directory = directory_of(image)
    if not (directory / "Dockerfile").is_file():
        raise BootFailed(
            f"there is no Dockerfile in {image}"
            if is_directory(image)
            else f"there is no image recipe {image!r}"
        )
    if not NAME.fullmatch(directory.name):
        raise BootFailed(
            f"no image can be named after {image}: use lower-case letters, digits and dashes"
        )
    own_python, files = directory == IMAGES / "python", read_tree(directory)
    arguments, release = arguments_of(directory), release_of(image)
    return Recipe(
        f"{directory.name}-{release}" if release else directory.name,
        arguments.get("BASE", "") or BASE_TAG,
        files,
        fetch_libraries=own_python,
        release=release,
    )


def directory_of(image: str) -> Path:
    """Where the recipe is, of whichever release; perhaps there is none.

    Only what has releases is named with one: "rabbitmq:3.13" is not our recipe of that name.
    """
    name, colon, _ = image.rpartition(":")
    whole, bare = IMAGES / image, IMAGES / name  # an absolute path stays what it is
    is_released = colon and (is_directory(image) or has_releases(bare))
    return bare if is_released and not whole.is_dir() else whole


def arguments_of(directory: Path) -> dict[str, str]:
    """What its Dockerfile can be told, and "" or what that is otherwise."""
    return dict(ARGUMENT.findall((directory / "Dockerfile").read_text()))


def has_releases(directory: Path) -> bool:
    is_recipe = (directory / "Dockerfile").is_file()
    return is_recipe and ((directory / POM).is_file() or "RELEASE" in arguments_of(directory))


def release_of(image: str) -> str:
    """Of "rocketmq:5.3.3"; "" of what has none. Raises BootFailed."""
    directory = directory_of(image)
    given = image.rpartition(":")[2] if IMAGES / image != directory else ""
    if not has_releases(directory):
        if given:
            raise BootFailed(
                f"the image {image} has no releases: its Dockerfile has no ARG RELEASE"
            )
        return ""
    release = given or arguments_of(directory).get("RELEASE", "")
    if not RELEASE.fullmatch(release):
        raise BootFailed(f"the image {image} needs a release: {directory.name}:5.3.3")
    return release


def pins_of(image: str) -> dict[str, str]:
    """The versions of Debian packages that a recipe pins, by package or glob of packages."""
    directory = directory_of(image)
    if directory == IMAGES / OWN_BROKER:
        directory = IMAGES / "python"
    path = directory / PINS
    return read_pins(path.read_text()) if path.is_file() else {}


class ContainerImages(StatelessPart):
    """See ``parts.Images``."""

    capabilities = WORLDS["docker"]["images"]

    def __init__(self, run: ContainerNodes) -> None:
        self._run = run

    async def find(self, image: str) -> str:
        engine = self._run.engine
        found = await image_id(engine, await ensure_image(engine, image))
        assert found is not None, f"{image} was there a moment ago"
        return found

    async def change(self, node: str, image: str) -> None:
        """Its output goes on in the same file; its container is another one."""
        if (await self._run.status(node)).state != "exited":
            raise HarnessError(f"{node} runs: its image can't be changed")
        old, tag = self._run.machine(node), await ensure_image(self._run.engine, image)
        new = replace(old, image=tag)
        past = self._run.past.setdefault(node, [])
        name = f"{old.name}-{len(past) + 1}"
        await self._run.engine.call(lambda api: containers.replace_container(api, old, new, name))
        past.append(name)
        self._run.machines[node] = new

    async def made_from(self, node: str) -> str:
        name = self._run.machine(node).name
        return await self._run.engine.call(lambda api: containers.image_of(api, name))

    async def facts(self, image: str) -> Mapping[str, str]:
        machines = self._run.machines.values()
        tags = [each.image for each in machines if each.spec.image == image]
        if not tags:
            raise HarnessError(f"no node was made from the image {image}")

        def look(api: docker.APIClient) -> dict[str, str]:
            facts = {"engine": str(api.version()["Version"])}
            for name, each in (("image", tags[0]), ("base_image", base_of(image))):
                try:
                    found = api.inspect_image(each)
                except docker.errors.ImageNotFound:
                    continue  # an image of others has no base that we know
                digests = found.get("RepoDigests") or ()
                facts |= {
                    name: each,
                    f"{name}_id": str(found["Id"]),
                    f"{name}_digest": str(digests[0]) if digests else "none: it was made here",
                }
            return facts

        return await self._run.engine.call(look)


def base_of(image: str) -> str:
    """Of a recipe, what it starts from; of an image of others, what ours do."""
    is_recipe = (directory_of(image) / "Dockerfile").is_file()
    return find_recipe(image).base_tag if is_recipe else BASE_TAG


async def _ensure(engine: Engine, recipe: Recipe) -> str:
    base_id = await image_id(engine, recipe.base_tag)
    assert base_id is not None, f"{recipe.base_tag} was there a moment ago"
    tag = recipe.tag(base_id)
    if await image_id(engine, tag) is None:
        log.info("building the image %s", tag)
        files = dict(recipe.files)
        if recipe.fetch_libraries:
            architecture = (await engine.call(lambda api: api.version()))["Arch"]
            files |= await _wire_libraries(architecture)
        if POM in files:
            tell_step(f"fetching the jars of {recipe.name} with Maven, once")
            files |= await fetch_jars(files[POM], recipe.release)
        await _build(engine, recipe, tag, files)
        await engine.call(lambda api: _drop_old_tags(api, recipe.name, tag))
    return tag


async def image_id(engine: Engine, tag: str) -> str | None:
    """None if there is no such image."""

    def inspect(api: docker.APIClient) -> str | None:
        try:
            return str(api.inspect_image(tag)["Id"])
        except docker.errors.ImageNotFound:
            return None

    return await engine.call(inspect)


async def _ensure_base(engine: Engine, tag: str) -> None:
    if tag not in BASES:
        await _ensure_stock(engine, tag)
        return
    if await image_id(engine, tag) is not None:
        return
    tell_step(f"making the base image {tag}, once, about half a minute")
    script = IMAGES / "make_base.sh"
    done = await run_program("sh", str(script), tag)
    if done.exit_code != 0:
        raise BootFailed(f"no base image: {_last_line(done.errors)}")


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1]


async def _wire_libraries(architecture: str) -> dict[str, bytes]:
    """The broker's libraries as the image's Python wants them, in the versions that are installed
    here."""
    platform = PLATFORMS.get(architecture)
    if platform is None:
        raise BootFailed(f"no wheels for the Docker engine's architecture {architecture}")
    with tempfile.TemporaryDirectory(prefix="shalott-lib-") as directory:
        words = pip_words(directory, PYTHON_VERSION, platform)
        done = await run_program(sys.executable, *words)
        if done.exit_code != 0:
            reason = _last_line(done.errors)
            raise BootFailed(f"cannot fetch {' '.join(library_pins())} for the image: {reason}")
        return read_tree(Path(directory), "lib/")


async def _build(engine: Engine, recipe: Recipe, tag: str, files: Mapping[str, bytes]) -> None:
    abandoned = threading.Event()

    def build(api: docker.APIClient) -> str:
        output = ""
        stream = api.build(
            fileobj=_context(files),
            custom_context=True,
            encoding=None,
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            buildargs={"BASE": recipe.base_tag}
            | ({"RELEASE": recipe.release} if recipe.release else {}),
            labels={LABEL_RECIPE: recipe.name},
        )
        for line in stream:
            if abandoned.is_set():
                stream.close()
                break
            output = _progress(recipe.name, line, output)
        return output

    try:
        output = await engine.call(build)
    except asyncio.CancelledError:
        abandoned.set()
        raise
    if await image_id(engine, tag) is None:
        raise BootFailed(f"the image {recipe.name} can't be built: {output[-2000:].strip()}")


def _progress(name: str, line: Mapping[str, object], output: str) -> str:
    text = str(line.get("stream") or line.get("error") or "")
    if (sentence := build_step(name, text)) is not None:
        log.info("%s", text.strip())
        tell_step(sentence)
    return (output + text)[-8000:]


def build_step(name: str, text: str) -> str | None:
    """What the engine's line says of a build, in words for a progress line; None: nothing."""
    found = re.match(r"Step (\d+)/(\d+) : ", text)
    if found is None:
        return None
    what = "the node image" if name != "python" else "the node image's base"
    return f"building {what} ({name}), step {found[1]} of {found[2]}, once, about a minute"


def _context(files: Mapping[str, bytes]) -> io.BytesIO:
    """The build context. Times are fixed: equal files make an equal context."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            runs = path.endswith(".sh") or content[:4] == ELF
            entry.mode = 0o755 if runs else 0o644
            entry.mtime = 1
            archive.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def _drop_old_tags(api: docker.APIClient, name: str, current: str) -> None:
    """Forget all but the newest tags of a recipe; one that a container still uses stays."""
    images = api.images(filters={"label": f"{LABEL_RECIPE}={name}"})
    images.sort(key=lambda image: image["Created"], reverse=True)
    for image in images[KEPT_TAGS:]:
        for tag in image["RepoTags"] or ():
            if tag.startswith(f"shalott-{name}:") and tag != current:
                try:
                    api.remove_image(tag)
                except docker.errors.APIError as error:
                    log.debug("%s stays: %s", tag, error)


# -- The Java jars of an image, fetched by Maven on the host: the build itself needs no repository.
#
# A recipe's pom says which artifacts it wants, of ${release} and what goes with it; Maven keeps
# what it fetched for the next time, so a second image of a release needs no network.
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
    words = [MAVEN, "-B", "-q", "-f", str(file), GOAL, f"-Drelease={release}"]
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
