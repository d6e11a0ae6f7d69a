"""The one node of an agent: its process over all its lives, and what may be done to it.

What a node started belongs to it, with any parent by now: signals go to every process that
carries the node's mark in its environment. When the first process ends, the rest is ended too, as
in a container.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.ssh.agent.launching import Program, can_isolate, give_to, launch
from shalott.cluster.ssh.agent.state import (
    MARK,
    MARKED_DIRECTORY,
    Request,
    State,
    end_processes,
    has_stopped,
    marked,
    place_of,
    signal_process,
    start_ticks,
    write_state,
)

STOPPED_WITHIN_S = 5.0
POLL_S = 0.005
RESTART_FIRST_S, RESTART_MAX_S = 0.1, 10.0
TIMED_OUT = 124  # what coreutils' timeout exits with


class NodeError(Exception):
    """What was asked for can't be done: one sentence."""


@dataclass
class Spec:
    """As ``cluster.nodes.NodeSpec``, with every placeholder filled in."""

    command: Sequence[str]
    environment: Mapping[str, str]
    restart: bool


class Node:
    """``on_exit`` is called with the exit code of each end that was not asked for."""

    def __init__(self, state: State, user: int | None, on_exit: Callable[[int], None]) -> None:
        self._state = state
        self._user = user
        self._on_exit = on_exit
        self._spec: Spec | None = None
        self._hosts = ""
        self._host_name = ""
        self.groups: Sequence[str] = ()  # control groups of its processes
        self.tmp = ""  # what lies over their /tmp
        self.on_start: Callable[[], None] = _nothing  # before and after each start
        self.on_started: Callable[[], None] = _nothing
        self.helpers: dict[int, str] = {}  # processes of the agent's own that serve it, by id
        self.on_helper_end: Callable[[str, int], None] = _nothing_ended
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.is_paused = False
        self._asked = False  # its end
        self._lives = 0
        self._ended: asyncio.Future[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._commands: dict[int, asyncio.Future[int]] = {}  # administration programs by id

    @property
    def directory(self) -> Path:
        return Path(self._state.directory)

    @property
    def is_isolated(self) -> bool:
        """Whether its processes have names and mounts of their own."""
        return bool(self._hosts)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def _output(self) -> Path:
        return self.directory / "output.log"

    # -- what the harness asks for

    def prepare(self, asked: Request) -> Mapping[str, object]:
        """Write the node's files. Raises NodeError: one of its ports is taken."""
        for port in asked["ports"]:
            _check_free(int(port))
        for path in (self.directory, self.directory / "config", self.data):
            path.mkdir(parents=True, exist_ok=True)
            give_to(path, self._user)
        (self.directory / MARKED_DIRECTORY).touch()
        self._output.touch()
        give_to(self._output, self._user)
        for name, text in asked["files"].items():
            path = self.directory / "config" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            give_to(path, self._user)
        self._spec = Spec(asked["command"], asked["environment"], asked["restart"])
        self._host_name = asked["node"]
        self._hosts = self._write_hosts(asked["hosts"])
        return {"isolated": bool(self._hosts)}

    def _write_hosts(self, hosts: Mapping[str, str]) -> str:
        """A file to lie over the node's /etc/hosts; "" if this can't be done here."""
        lines = [f"{address} {name}\n" for name, address in hosts.items()]
        path = place_of(self._state.name) / "hosts"
        path.write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(lines))
        path.chmod(0o644)
        return str(path) if os.geteuid() == 0 and can_isolate(str(path)) else ""

    def start(self) -> None:
        if self.pid is not None:
            return
        if self._spec is None:
            raise NodeError("it was never prepared")
        self._cancel_restart()
        self.on_start()
        try:
            self.pid = launch(self._program(self._spec.command, str(self._output)))
        except OSError as error:
            raise NodeError(f"cannot run {self._spec.command[0]}: {error.strerror}") from error
        self.exit_code, self.is_paused, self._asked = None, False, False
        self._lives += 1
        self._ended = asyncio.get_event_loop().create_future()
        self._state.pids = [(self.pid, start_ticks(self.pid) or 0)]
        write_state(self._state)
        self.on_started()

    async def stop(self, timeout_s: float) -> None:
        self._cancel_restart()
        if self.pid is None or self._ended is None:
            return
        self._asked = True
        os.killpg(self.pid, signal.SIGTERM)
        if self.is_paused:
            self.resume()  # or it could not end
        done, _ = await asyncio.wait([self._ended], timeout=timeout_s)
        if not done:
            await self.kill()

    async def kill(self) -> None:
        self._cancel_restart()
        if self.pid is None or self._ended is None:
            return
        self._asked = True
        os.killpg(self.pid, signal.SIGKILL)
        await asyncio.wait([self._ended])

    async def pause(self) -> None:
        """Returns when the kernel has stopped all of it."""
        if self.pid is None:
            raise NodeError("it does not run, and so can't be paused")
        deadline = asyncio.get_event_loop().time() + STOPPED_WITHIN_S
        while running := [pid for pid in marked(self._state.name) if not has_stopped(pid)]:
            for pid in running:
                signal_process(pid, signal.SIGSTOP)
            if asyncio.get_event_loop().time() > deadline:
                raise NodeError("it did not stop at SIGSTOP")
            await asyncio.sleep(POLL_S)
        self.is_paused = True

    def resume(self) -> None:
        for pid in marked(self._state.name):
            signal_process(pid, signal.SIGCONT)
        self.is_paused = False

    def wipe(self) -> None:
        if self.pid is not None:
            raise NodeError("it runs: its data can't be wiped")
        shutil.rmtree(self.data)
        self.data.mkdir()
        give_to(self.data, self._user)

    def status(self) -> Mapping[str, object]:
        if self.pid is not None:
            return {"state": "paused" if self.is_paused else "running", "pid": self.pid}
        if not self._lives:
            return {"state": "absent"}
        return {"state": "exited", "exit_code": self.exit_code}

    def output(self, lines: int) -> str:
        if not self._output.is_file():
            return ""
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-lines:])

    async def run_beside(self, command: Sequence[str], timeout_s: float) -> Request:
        """As ``run_command``, with the very environment of the node's first process."""
        if self.pid is None:
            raise NodeError("it does not run, so its clock can't be seen")
        return await self.run_command(command, timeout_s, _environment_of(self.pid))

    async def run_command(
        self,
        command: Sequence[str],
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> Mapping[str, object]:
        """Run an administration program beside the node, with what it prints kept apart.
        ``environment``: the node's, if it is not told."""
        path = place_of(self._state.name) / f"command-{len(self._commands)}-{os.urandom(4).hex()}"
        path.touch(mode=0o600)
        give_to(path, self._user)
        try:
            pid = launch(self._program(command, str(path), environment))
            ended = self._commands[pid] = asyncio.get_event_loop().create_future()
            done, _ = await asyncio.wait([ended], timeout=timeout_s)
            if not done:
                _kill_group(pid)
                await asyncio.wait([ended])
            code = ended.result() if done else TIMED_OUT
            return {"exit_code": code, "output": path.read_text(errors="replace")}
        except OSError as error:
            raise NodeError(f"cannot run {command[0]}: {error.strerror}") from error
        finally:
            path.unlink()

    # -- inside

    def _program(
        self, command: Sequence[str], output: str, environment: Mapping[str, str] | None = None
    ) -> Program:
        assert self._spec is not None
        mark = {MARK: self._state.name}
        return Program(
            command=command,
            environment={**(environment or self._spec.environment), **mark},
            directory=str(self.data),
            output=output,
            user=self._user,
            hosts=self._hosts,
            host_name=self._host_name,
            tmp=self.tmp,
            groups=self.groups,
        )

    def reap(self) -> None:
        """Take note of every child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            if pid in self._commands:
                self._commands.pop(pid).set_result(code)
            elif pid == self.pid:
                self._has_ended(code)
            elif pid in self.helpers:
                self.on_helper_end(self.helpers.pop(pid), code)

    def _has_ended(self, code: int) -> None:
        end_processes(self._state.name)  # what it started goes with it
        self.pid, self.exit_code, self.is_paused = None, code, False
        self._state.pids = []
        write_state(self._state)
        if self._ended is not None:
            self._ended.set_result(None)
        if self._asked:
            return
        self._on_exit(code)
        if self._spec is not None and self._spec.restart:
            late_s = min(RESTART_MAX_S, RESTART_FIRST_S * 2 ** min(self._lives, 10))
            self._restart = asyncio.get_event_loop().call_later(late_s, self.start)

    def _cancel_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None


def _nothing() -> None:
    """Of a node for which there is nothing to be done."""


def _nothing_ended(helper: str, code: int) -> None:
    """Of an agent that does not tell of helpers."""


def _environment_of(pid: int) -> Mapping[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended a moment ago


def _check_free(port: int) -> None:
    """Raises NodeError if a program listens at a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("0.0.0.0", port))
        except OSError as error:
            raise NodeError(f"its port {port} can't be used: {error.strerror}") from error
