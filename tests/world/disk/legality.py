"""An oracle of what may be found on a disk after a power loss, made of the operations alone.

Of a file: what was synced is there; every byte has a value that the file had at that place at some
moment since the last sync; so has every sector as a whole, unless a truncation or a half-written
map came between; the size is one that it passed through. Of a name: what it led to when its
directory was last synced, or something that it led to since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shalott.cluster.sim.disk.page_cache import SECTOR_BYTES

PATHS = ("a", "b", "d/a", "d/b")  # and d/made, which makes the directory


@dataclass(eq=False)
class ModelFile:
    """``images``: its content at the last sync and after each change since."""

    images: list[bytes] = field(default_factory=lambda: [b""])
    sectors_are_whole: bool = True

    @property
    def content(self) -> bytes:
        return self.images[-1]

    def write(self, offset: int, data: bytes) -> None:
        grown = self.content.ljust(offset, b"\0")
        self.images.append(grown[:offset] + data + grown[offset + len(data) :])

    def truncate(self, size: int) -> None:
        self.images.append(self.content[:size].ljust(size, b"\0"))
        self.sectors_are_whole = False

    def begin_map(self, found: bytes) -> None:
        """The process died while it copied into a map: ``found`` is how far it came, and what was
        written back meanwhile may be any part of that."""
        self.images.append(found)
        self.sectors_are_whole = False

    def sync(self) -> None:
        del self.images[:-1]
        self.sectors_are_whole = True

    def explains(self, found: bytes) -> bool:
        if len(self.images) == 1:
            return found == self.content
        sizes = [len(image) for image in self.images]
        if not min(sizes) <= len(found) <= max(sizes):
            return False
        padded = [image.ljust(len(found), b"\0")[: len(found)] for image in self.images]
        step = SECTOR_BYTES if self.sectors_are_whole else 1
        return all(
            any(found[at : at + step] == image[at : at + step] for image in padded)
            for at in range(0, len(found), step)
        )


@dataclass
class Model:
    """``bindings[path]``: what it led to at its directory's last sync and since."""

    bindings: dict[str, list[ModelFile | None]] = field(
        default_factory=lambda: {path: [None] for path in PATHS}
    )
    d_is_durable: bool = False

    def at(self, path: str) -> ModelFile | None:
        return self.bindings[path][-1]

    def bind(self, path: str, file: ModelFile | None) -> None:
        self.bindings[path].append(file)

    def sync_directory(self, directory: str) -> None:
        for path in PATHS:
            if path.rpartition("/")[0] == directory:
                del self.bindings[path][:-1]
        if not directory:
            self.d_is_durable = True


def is_legal(model: Model, path: str, found: bytes | None) -> bool:
    possible = model.bindings[path]
    if found is None:
        return None in possible or (path.startswith("d/") and not model.d_is_durable)
    return any(file is not None and file.explains(found) for file in possible)
