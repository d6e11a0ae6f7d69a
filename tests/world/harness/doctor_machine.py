"""A machine for `shalott doctor`, from which tests take things away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shalott.harness.cli.doctor_machine import EngineFacts

PROGRAMS = ("nft", "iptables", "tc", "mmdebstrap", "java", "javac", "mvn")


@dataclass(frozen=True)
class FakeMachine:
    """A machine that has everything, until a test takes something away."""

    python: tuple[int, int] = (3, 12)
    is_root: bool = True
    programs: Sequence[str] = PROGRAMS
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    facts: EngineFacts = EngineFacts(version="27.1", has_base_image=True)
    shapes: frozenset[str] = frozenset({"delay", "throttle"})
    disks: str | None = None
    is_first: bool = True
    free: int | None = 50_000_000_000

    def missing_distributions(self, extra: str = "") -> Sequence[str]:
        return self.missing.get(extra, ())

    def program(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.programs else None

    def engine(self) -> EngineFacts:
        return self.facts

    def shaping(self) -> frozenset[str]:
        return self.shapes

    def disk_obstacle(self) -> str | None:
        return self.disks

    def may_go_first(self) -> bool:
        return self.is_first

    def free_bytes(self) -> int | None:
        return self.free


def without(*names: str) -> Sequence[str]:
    return [name for name in PROGRAMS if name not in names]
