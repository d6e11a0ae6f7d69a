"""Files that nothing needs: modules that no code imports, other files that no file names.

A module lives if it is an entry point, or some other module imports it or starts its file, tests
not counted: what only its own tests import is dead. Any other file lives if some file names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tests.tidy.import_table import imports
from tests.tidy.sources import Source

# Modules that are started by name.
ENTRY_POINTS: Mapping[str, str] = {
    "shalott.harness.cli.main": "the command `shalott`",
    "shalott.broker.__main__": "python -m shalott.broker",
    "shalott.broker.rabbit.ctl.__main__": "rabbitmqctl of a node's image",
    "shalott.cluster.local.relay_process": "python -m, by shalott/cluster/local/relay_link.py",
    "shalott.harness.cli.matrix_run": "python -m, by shalott/harness/matrix/night_runs.py",
    "shalott.cluster.ssh.agent.main": "what the archive of shalott/cluster/ssh/upload.py runs",
    "shalott.cluster.existing.guardian": "python -m, by shalott/cluster/existing/guard.py",
    "shalott.cluster.images.rocketmq.await_others": "entry.sh of a RocketMQ node's image",
    "shalott.cluster.images.rocketmq.log_digest": "a node of RocketMQ, for its harness",
    "shalott.harness.testing.pytest_plugin": "the entry point of pytest, in pyproject.toml",
    "setup": "the package's build",
    "shalott.checkers.engine.build_engine": "named by setup.py: builds the engine",
}
# Files that tools and people look for by themselves.
KNOWN_BY_NAME = (
    ".ci/run",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "tox.ini",
)


def dead_modules(sources: Sequence[Source], texts: Mapping[str, str]) -> Iterator[str]:
    """``texts``: the files that are not Python, by path: they may start a module by name."""
    modules = {source.module: source for source in sources}
    importers = [source for source in sources if not source.path.startswith("tests/")]
    imported = dict.fromkeys(
        target
        for source in importers
        for target in _targets(source, modules)
        if target != source.module
    )
    for module, source in modules.items():
        if source.path.startswith(("tests/", "benchmarks/", "scripts/")):
            continue
        if module in imported or module in ENTRY_POINTS or not source.text.strip():
            continue
        names = (f"-m {module}", f'"{module}:')  # the latter is an entry point
        started = any(name in text for text in texts.values() for name in names)
        quoted = (
            f'"{PurePosixPath(source.path).name}"',
            f'"{module}"',
            f'"{module}:',
        )  # a file, with -m, or what is loaded late
        named = any(name in other.text for other in importers for name in quoted)
        if not started and not named:
            yield f"{source.path}: nothing imports it: use it or remove it"


def _targets(source: Source, modules: Mapping[str, Source]) -> Iterator[str]:
    for imported in imports(source):
        for name in (imported.target, *(f"{imported.target}.{name}" for name in imported.names)):
            while name:  # a module keeps the packages around it alive
                if name in modules:
                    yield name
                name = name.rpartition(".")[0]


def dead_texts(sources: Sequence[Source], texts: Mapping[str, str]) -> Iterator[str]:
    contents = {source.path: source.text for source in sources} | dict(texts)
    for path in texts:
        if path in KNOWN_BY_NAME or path.startswith("tests/"):
            continue
        name = PurePosixPath(path).name
        directory = str(PurePosixPath(path).parent).removeprefix("shalott/")
        named = any(
            name in text or (directory != "." and directory in text and "tests/" not in other)
            for other, text in contents.items()
            if other != path
        )
        if not named:
            yield f"{path}: no file names it: use it or remove it"
