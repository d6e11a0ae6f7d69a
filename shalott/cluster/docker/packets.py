"""PacketShaper: what becomes of single packets between containers where the kernel has no netem.

A chain of our own (SHALOTT_PACKETS) in the INPUT of each shaped node gives the packets of named
senders to a queue, which the packet engine serves (packet_engine.py). The rule lets everything pass
while no process serves the queue, so an engine that ends leaves a whole network. The chain goes
with the container. The engine goes with the harness, and its command line says whose it is, for
``sweep_engines``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from shalott.cluster.capabilities import Can
from shalott.cluster.docker.namespaces import can_enter, has_program, is_root
from shalott.cluster.docker.packet_engine import QUEUE
from shalott.cluster.nodes import HelperEnd, Link, LinkShape
from shalott.cluster.owner import Owner, liveness, parse_owner, runs, start_ticks
from shalott.cluster.packets.numbered import UNSHAPED_TOS
from shalott.cluster.packets.queue import INJECTED_MARK, PacketQueue
from shalott.cluster.packets.shaping import (
    TRIALS,
    Answer,
    LinkState,
    Order,
    Source,
    decode_answer,
    encode_line,
    qdisc_script,
)
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.docker")

PROGRAM = "shalott.cluster.docker.packet_engine"
CHAIN = "SHALOTT_PACKETS"
TRIAL_QUEUE = 5178
ERRORS_MAX = 2000
CAPABILITIES: Can = frozenset(
    {"delay", "throttle", "loss", "jitter", "duplicate", "reorder", "corrupt"}
)

RunInNode = Callable[[str, str], Awaitable[str]]  # (node, shell script) -> output
PidOf = Callable[[str], Awaitable[int | None]]


def queue_capabilities() -> Can:
    """What the packet engine can do on this host, for root: all or nothing."""
    if not (is_root() and has_program("unshare")):
        return frozenset()
    try:
        PacketQueue(TRIAL_QUEUE).close()
    except OSError:
        return frozenset()
    rule = f"iptables -w -A INPUT -s 10.0.0.1 -j NFQUEUE --queue-num {QUEUE} --queue-bypass"
    tried = subprocess.run(
        ["unshare", "-n", "sh", "-c", rule], capture_output=True, timeout=10, check=False, cwd="/"
    )
    # Nodes have iptables of their own; a host without one is no obstacle.
    return CAPABILITIES if tried.returncode in (0, 127) else frozenset()


def chain_script(addresses: list[str]) -> str:
    """A shell script that makes a node queue what comes from these, but for probes of cuts and what
    the engine put in itself."""
    if not addresses:
        return (
            f"iptables -w -D INPUT -j {CHAIN} 2>/dev/null; iptables -w -F {CHAIN} 2>/dev/null;"
            f" iptables -w -X {CHAIN} 2>/dev/null; true"
        )
    rules = "".join(
        f"-A {CHAIN} -s {address} -j NFQUEUE --queue-num {QUEUE} --queue-bypass\n"
        for address in sorted(addresses)
    )
    return (
        "iptables-restore -w -n <<'END' && "
        f"(iptables -w -C INPUT -j {CHAIN} 2>/dev/null || iptables -w -A INPUT -j {CHAIN})\n"
        f"*filter\n:{CHAIN} - [0:0]\n"
        f"-A {CHAIN} -m mark --mark {INJECTED_MARK:#x} -j RETURN\n"
        f"-A {CHAIN} -m tos --tos {UNSHAPED_TOS:#x} -j RETURN\n"
        f"{rules}COMMIT\nEND\n"
    )


class PacketShaper:
    """The engine's links of one cluster. The engine starts with the first of them."""

    def __init__(
        self, owner: Owner, token: str, seed: int, run_in_node: RunInNode, pid_of: PidOf
    ) -> None:
        self.engine = PacketEngine(owner, token, seed)
        self._run = run_in_node
        self._pid_of = pid_of
        self._addresses: Mapping[str, str] = {}
        self._shapes: dict[Link, LinkShape] = {}
        self._lock = asyncio.Lock()

    def set_addresses(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        self.engine.tell_stalls(tell)

    async def shape(self, link: Link, shape: LinkShape) -> None:
        """One direction is so from now on. Raises HarnessError."""
        if shape == LinkShape():
            if self._shapes.pop(link, None) is None:
                return
        else:
            self._shapes[link] = shape
        await self._apply(link[1])

    async def state(self, link: Link) -> LinkState:
        """What is in force, as the engine says."""
        if link not in self._shapes or not self.engine.is_started:
            return LinkState(shape=LinkShape())
        answer = await self.engine.ask("read", link[1])
        return answer.links.get(link[0], LinkState(shape=LinkShape()))

    async def node_started(self, node: str) -> None:
        """It has a fresh network namespace."""
        if any(destination == node for _, destination in self._shapes):
            await self._apply(node)

    async def apply_again(self) -> None:
        """Nodes have other addresses."""
        for node in dict.fromkeys(destination for _, destination in self._shapes):
            await self._apply(node)

    async def clear(self) -> None:
        """Nothing is shaped any more."""
        nodes = list(dict.fromkeys(destination for _, destination in self._shapes))
        self._shapes.clear()
        await asyncio.gather(*(self._apply(node) for node in nodes))

    async def close(self) -> None:
        """End the engine."""
        self._shapes.clear()
        await self.engine.close()

    async def _apply(self, node: str) -> None:
        async with self._lock:
            pid = await self._pid_of(node)
            if pid is None:
                return  # no process, no network; ``node_started`` puts everything back
            sources = {
                self._addresses[a]: Source(a, shape)
                for (a, b), shape in self._shapes.items()
                if b == node
            }
            if sources:
                # The queue first: without it the rule lets everything pass.
                try:
                    await self.engine.ask("shape", node, pid, sources)
                except HarnessError:
                    if can_enter(pid):
                        raise
                    return  # it has ended meanwhile
                await self._run(node, chain_script(list(sources)))
            else:
                await self._run(node, chain_script([]))
                if self.engine.is_started:
                    await self.engine.ask("shape", node, pid)


class PacketEngine:
    """The engine's process. Raises HarnessError for what it can't do, or once it has ended."""

    def __init__(self, owner: Owner, token: str, seed: int) -> None:
        self._words = (str(owner), token, str(seed))
        self._process: asyncio.subprocess.Process | None = None
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._number = 0
        self._closing = False
        self._errors = b""
        self._tell: Callable[[Stall], None] = _log_stall
        self.on_end: Callable[[HelperEnd], None] = _log_end

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        self._tell = tell

    async def ask(
        self, do: str, node: str, pid: int = 0, sources: Mapping[str, Source] | None = None
    ) -> Answer:
        """The answer, when it has been carried out. Starts the engine if need be."""
        if self._process is None:
            await self._start()
        assert self._process is not None and self._process.stdin is not None
        if self._reading is None or self._reading.done():
            raise self._ended()
        self._number += 1
        order = Order(
            number=self._number,
            do="shape" if do == "shape" else "read",
            node=node,
            pid=pid,
            sources=dict(sources or {}),
        )
        asked = self._asked[order.number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(encode_line(order))
        answer: Answer = await asked
        if answer.error:
            raise HarnessError(f"the packet engine: {answer.error}")
        return answer

    async def _start(self) -> None:
        self._closing = False
        search = os.pathsep.join(entry for entry in sys.path if entry)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", PROGRAM, *self._words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": search},
            start_new_session=True,
        )
        self._process = process
        self._reading = asyncio.create_task(self._read(process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Answers, until the process ends."""
        assert process.stdout is not None and process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        try:
            while line := await process.stdout.readline():
                answer = decode_answer(line)
                if answer.stall is not None:
                    self._tell(Stall("relays", *answer.stall))
                asked = self._asked.pop(answer.number, None) if answer.number else None
                if asked is not None and not asked.done():
                    asked.set_result(answer)
        except msgspec.MsgspecError as error:
            log.error("the packet engine said what is no answer: %s", error)
            process.kill()
        await process.wait()
        self._errors = (await errors)[-ERRORS_MAX:]
        if not self._closing:
            self.on_end(HelperEnd(helper="packet engine", reason=str(self._ended())))
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(self._ended())
        self._asked.clear()

    async def close(self) -> None:
        self._closing = True
        process, reading = self._process, self._reading
        self._process = self._reading = None
        if process is None or reading is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await reading
        assert process.stdin is not None
        process.stdin.close()

    def _ended(self) -> HarnessError:
        code = self._process.returncode if self._process is not None else None
        said = self._errors.decode(errors="replace").strip()
        return HarnessError(
            f"the packet engine ended (exit code {code}), so links are as they were before any"
            f" fault{': ' + said if said else ''}"
        )


def _log_stall(stall: Stall) -> None:
    log.warning("the packet engine did not run for %.2f s", stall.end_s - stall.begin_s)


def _log_end(ended: HelperEnd) -> None:
    log.error("%s", ended.reason)


def list_engines() -> list[tuple[int, str, str]]:
    """(process id, owner, the run's token) of every packet engine on this host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if PROGRAM in words[:-2] and words[words.index(PROGRAM) - 1] == "-m":
            at = words.index(PROGRAM)
            found.append((int(path.parent.name), words[at + 1], words[at + 2]))
    return found


def sweep_engines() -> list[str]:
    """End the packet engines of dead harnesses. Says what was ended."""
    sentences = []
    for pid, text, token in list_engines():
        owner, ticks = parse_owner(text), start_ticks(pid)
        if owner is None or ticks is None or liveness(owner) != "dead" or not runs(pid, ticks):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            sentences.append(f"ended the packet engine {pid} that a dead run ({token}) had left")
    return sentences


# -- Which shapes of links this host's kernel can make with tc: each is tried.
def shaping_capabilities() -> Can:
    """Of TRIALS."""
    if not (is_root() and has_program("tc") and has_program("unshare")):
        return frozenset()
    return frozenset(
        name for name, shape in TRIALS.items() if _works(qdisc_script({"10.0.0.1": shape}, "lo"))
    )


def _works(script: str) -> bool:
    result = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, timeout=10, check=False, cwd="/"
    )
    return result.returncode == 0
