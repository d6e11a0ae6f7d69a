"""The parts of a world: small protocols, of which each world implements those that it has.

A part's ``capabilities`` are the words of faults that it can make on this host; they are at most
what the table in capabilities.py says of its world. A part raises HarnessError when it fails, and
MissingCapability for what it can't do at all.

Cuts are counted: ``cut`` twice needs ``mend`` twice, so overlapping faults compose. A mend of what
is not cut does nothing, as a fault may end after a ``heal``. Shapes, clocks, disks and shortages
are settings: the last one stands (nemesis/settings.py adds up those of several faults).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from shalott.cluster.capabilities import Capability
from shalott.cluster.nodes import (
    CommandResult,
    DiskFaults,
    Link,
    LinkShape,
    NodeStatus,
    PacketsSeen,
    Shortage,
)

# Called with a node and an event of its, a row of EVENT_SCHEMA.
TellEvent = Callable[[str, Mapping[str, object]], None]


class Part(Protocol):
    """What all parts have in common."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The faults that this part can make here."""
        ...

    async def heal(self) -> None:
        """Undo every fault of this part. Does not start nodes that are down."""
        ...

    async def close(self) -> None:
        """End for good what this part runs and holds, also when it was never used."""
        ...


class Processes(Part, Protocol):
    """The nodes' processes, and their machines' power."""

    async def start(self, node: str) -> None:
        """Power and process. A node that runs goes on."""
        ...

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        """SIGTERM, wait, then SIGKILL."""
        ...

    async def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""
        ...

    async def power_off(self, node: str) -> None:
        """Cut the machine's power, in any state of its process; returns when it is dark.

        What was not synced may be lost or torn, and its peers hear nothing, no reset either.
        """
        ...

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    async def status(self, node: str) -> NodeStatus: ...

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        """Run an administration command in the running node's world.

        Exit code 124: it was ended at the timeout.
        """
        ...


@runtime_checkable
class HoldsProcesses(Protocol):
    """Processes of a world that can stop a node in the middle of what it does, at no time at all.

    Held twice it must be let go twice. Who kills or pauses it meanwhile does just that.
    """

    def hold(self, node: str) -> None: ...

    def let_go(self, node: str) -> None: ...


class Links(Part, Protocol):
    """The directed links between nodes."""

    async def cut(self, links: Sequence[Link]) -> None:
        """Drop everything from source to destination.

        Established connections are hit too: they hang, they are not reset.
        """
        ...

    async def mend(self, links: Sequence[Link]) -> None: ...

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        """One direction is so from now on, all of it; ``LinkShape()`` restores it."""
        ...

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        """What is in force on one direction now: the probe that proves shapes.

        It is read where it works (the kernel's queues, the relay, the simulated link), not from
        what was asked for.
        """
        ...

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        """Whether bytes sent by ``source`` arrive at ``destination`` now: the probe that proves
        cuts.

        Only this direction counts. False too if either node's process is gone; a paused one still
        receives.
        """
        ...


@runtime_checkable
class MeasuresPackets(Protocol):
    """Links over which packets can be sent to see what becomes of them."""

    async def measure(self, source: str, destination: str, count: int) -> PacketsSeen:
        """Send so many, and wait as long as the link's shape may hold them."""
        ...


# Called with words for what happens; whether it has the nodes that take part stand still.
TellMoment = Callable[[str], bool]
# (the port of the service, whether who dialled it says this): names the messages in what one end of
# one connection says, as it comes; None where that can't be
MessageReader = Callable[[bytes], Sequence[str]]
ReaderOf = Callable[[int, bool], MessageReader | None]


@runtime_checkable
class WatchesMessages(Protocol):
    """Links that show what nodes say to each other. ``tell`` must do next to nothing."""

    def watch_messages(
        self, link: Link, moment: str, what: str, reader_of: ReaderOf, tell: TellMoment
    ) -> Callable[[], None]:
        """Call ``tell`` at this moment of every message of that name, "" for any, from now on: when
        it is "sent", "before" it is delivered, or "after". What is returned ends that."""
        ...


@runtime_checkable
class HoldsBack(Protocol):
    """Links that can hold back some of the connections between two nodes, while others pass."""

    async def hold_back(self, links: Sequence[Link], seed: int) -> None:
        """Nothing of about half of them passes from now on; the seed says of which."""
        ...

    async def let_pass(self, links: Sequence[Link]) -> None: ...

    async def holds_back(self, link: Link) -> bool:
        """Whether it does now: the probe."""
        ...


@runtime_checkable
class CutsClients(Protocol):
    """Links of a world that can part the harness's clients from nodes, and nothing else.

    Links are (CLIENTS, node), what clients send, and (node, CLIENTS), what they are answered. The
    nodes reach each other as before, and the harness reaches their other ports.
    """

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        """From now on these links are cut, at the ports of these names, and no others.

        Connections hang, they are not reset. ``heal`` mends them all.
        """
        ...

    async def client_cuts(self) -> Sequence[Link]:
        """Which of these links are cut now, sorted: read where it works, not from what was asked
        for."""
        ...


class Files(Part, Protocol):
    """What nodes write: their data, their output and what is collected at the end."""

    async def wipe(self, node: str) -> None:
        """Remove a stopped node's data."""
        ...

    async def output(self, node: str, lines: int = 20) -> str:
        """The last lines that the node's process printed: what a BootFailed quotes."""
        ...

    async def collect(self, into: Path) -> None:
        """Copy every node's output (``output.log``) and collectable files to ``into/<node>/``."""
        ...


@runtime_checkable
class ReadsDataFiles(Protocol):
    """Files that can be read while their node runs."""

    async def read(self, node: str, path: str, offset: int) -> bytes:
        """A file below the data directory from that byte on; b"" if there is none, or nothing new.

        Raises HarnessError if it can't be looked at, as of a node that does not run in some worlds.
        """
        ...


@runtime_checkable
class ChangesDataFiles(Protocol):
    """Files that can be changed behind their node's back, whether it runs or is down.

    Paths lie below the data directory. What is collected at the end is never found: it is evidence.
    All raise HarnessError.
    """

    async def find(self, node: str, pattern: str) -> Mapping[str, int]:
        """The files that a pattern means (``**`` passes slashes), and how many bytes of each have
        content: zeros at its end have none."""
        ...

    async def read_places(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[bytes]:
        """What stands there now, (offset, size) each; less where the file ends, b"" if there is
        none."""
        ...

    async def flip_bits(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[tuple[int, int]]:
        """Flip bits of bytes, (offset, bits) each, as another program may: (before, after)."""
        ...

    async def cut_file(self, node: str, path: str, size: int) -> None:
        """What lies behind so many bytes is gone."""
        ...

    async def leave_file(self, node: str, path: str, data: bytes) -> None:
        """Make a file, as another program may that syncs nothing."""
        ...


@runtime_checkable
class TellsEventsAtOnce(Protocol):
    """Files of a world that hears of a node's event when it is written."""

    def watch_events(self, tell: TellEvent) -> Callable[[], None]:
        """Call ``tell`` for every event from now on. What is returned ends that. ``tell`` is called
        from within the node, and must do next to nothing."""
        ...


class Disks(Part, Protocol):
    """The nodes' disks. Their power is cut by ``Processes.power_off``."""

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        """Make a node's disk misbehave; it outlives restarts. None: a sound disk again.

        Raising ``corrupt_bytes`` rots the difference; lowering it undoes nothing.
        """
        ...

    async def faults(self, node: str) -> DiskFaults:
        """What is in force on the node's disk now, read from the disk: the probe that proves disk
        faults."""
        ...

    async def lose_unsynced(self, node: str) -> Mapping[str, int]:
        """All that a node, which is down, has not synced is gone: how many ``files`` and ``bytes``
        that was, and how many operations on ``names``. A loss of power may leave some."""
        ...

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """Whether the disk makes so many more syncs, of files or directories, in time."""
        ...


@runtime_checkable
class WatchesCalls(Protocol):
    """Disks that show what they are asked to do. ``tell`` must do next to nothing."""

    def watch_calls(
        self, node: str, moment: str, what: str, files: str, tell: TellMoment
    ) -> Callable[[], None]:
        """Call ``tell`` "before" or "after" every call of that kind (write, sync, rename), of files
        that a pattern means, "" for any, is done, from now on. What is returned ends that."""
        ...


class Clocks(Part, Protocol):
    """The nodes' clocks.

    ``error_ms``: by how much ``offset_ms`` may be wrong. 0: exact, of any node. Otherwise clocks
    are read from outside, of running nodes only, and a drift is made of steps.
    """

    @property
    def error_ms(self) -> float: ...

    async def set(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        """Set a node's clock that far from the true time, running that much faster from now on.

        It outlives restarts. Zeros restore it. The wall clock jumps; in the simulation drift moves
        the monotonic clock and timers too.
        """
        ...

    async def offset_ms(self, node: str) -> float:
        """How far the node's wall clock is ahead of the true time now, measured: the probe that
        proves clock faults."""
        ...


@runtime_checkable
class SuspendsNodes(Protocol):
    """Clocks of a world in which the time of a paused node can stand still."""

    async def suspend(self, node: str) -> None: ...

    async def go_on(self, node: str) -> float:
        """Before it is resumed: its timers and its monotonic clock go on where they were, and its
        wall clock is right. For how many ms they stood; 0 if it has ended or run meanwhile."""
        ...


@runtime_checkable
class MovesClocks(Protocol):
    """Clocks whose part remembers how far ahead each node's wall clock was put, and when."""

    # By node: (the harness's monotonic clock, ahead of the machine's own wall clock), in ns.
    history: Mapping[str, Sequence[tuple[int, int]]]


class Resources(Part, Protocol):
    """What the nodes' machines have of CPU, memory, descriptors, processes and room in /tmp."""

    async def set(self, node: str, shortage: Shortage) -> None:
        """From now on; ``PLENTY``: as it was. Of a node that does not run: from its start on."""
        ...

    async def seen(self, node: str) -> Shortage:
        """What is in force now: read from the kernel, not from what was asked for. ``PLENTY`` of a
        node that does not run."""
        ...


class Images(Part, Protocol):
    """The images that nodes are made from."""

    async def facts(self, image: str) -> Mapping[str, str]:
        """What is known of a recipe's image: ``engine`` (version), ``image``, ``image_id``,
        ``image_digest``, and the same three of its ``base_image``. What there is none of says so.
        """
        ...

    async def find(self, image: str) -> str:
        """What identifies that image (a recipe, as NodeSpec's, or one that is there by its name);
        it is built if need be."""
        ...

    async def change(self, node: str, image: str) -> None:
        """A stopped node starts from that image from now on, with its data, address and name."""
        ...

    async def made_from(self, node: str) -> str:
        """What identifies the image that the node is made from, read from the node."""
        ...


class StatelessPart:
    """A part whose faults do not last and which holds nothing, such as ``Files``."""

    async def heal(self) -> None:
        """There is nothing to undo."""

    async def close(self) -> None:
        """There is nothing to end."""
