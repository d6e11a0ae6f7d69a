"""The graph of folders: which folder's modules import which other folder's, and its cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.tidy.import_table import imports, targets_of
from tests.tidy.sources import PACKAGE, Source

Graph = Mapping[str, Sequence[str]]


def folder_graph(sources: Sequence[Source], *, by_top: bool = False) -> Graph:
    """Folder -> the other folders that its modules import, types and late imports included.

    ``by_top``: the package's top folders alone, by their bare names.
    """
    folders = {source.module: _folder(source.path) for source in sources}
    if by_top:
        folders = {module: path.split("/")[1] for module, path in folders.items() if "/" in path}
    known = dict.fromkeys(folders)
    found: dict[str, dict[str, None]] = {folder: {} for folder in folders.values()}
    for source in sources:
        if (own := folders.get(source.module)) is None:
            continue
        for imported in imports(source):
            for target in targets_of(imported, known):
                other = folders.get(target, own)
                if other != own:
                    found[own][other] = None
    return {folder: tuple(sorted(others)) for folder, others in sorted(found.items())}


def _folder(path: str) -> str:
    """A module at the root of the package is a room by itself."""
    folder = path.rpartition("/")[0]
    is_room = folder == PACKAGE and not path.endswith("/__init__.py")
    return path.removesuffix(".py") if is_room else folder


def cycles(graph: Graph) -> list[tuple[str, ...]]:
    """Folders that can't be put in order: what is left when, again and again, every folder that
    imports none of the rest is taken away (Kahn 1962)."""
    rest = {folder: dict.fromkeys(others) for folder, others in graph.items()}
    while True:
        free = [folder for folder, others in rest.items() if not any(o in rest for o in others)]
        if not free:
            break
        for folder in free:
            del rest[folder]
    return [(folder, *(o for o in others if o in rest)) for folder, others in rest.items()]
