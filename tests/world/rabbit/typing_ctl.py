"""What a line of rabbitmqctl's says when it is typed at a node of ours, and its exit code."""

from __future__ import annotations

import asyncio
import shlex
import socket

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.ctl.session import CtlError
from shalott.broker.rabbit.ctl.verbs import Outcome, read, run
from shalott.cluster.local.backend import HOST
from tests.world.processes.rabbit import NodeProcess


def typed(node: NodeProcess, line: str) -> Outcome:
    """As the command's process does it, without the half second that such a process needs."""
    try:
        words = read(shlex.split(line.removeprefix("rabbitmqctl ")))
    except CtlError as error:
        return Outcome(error.exit_code, stderr=error.text + "\n")
    asked = Asked(HOST, node.management_port, cookie=node.config.cookie, timeout_s=words.timeout_s)
    return asyncio.run(run(words, asked, socket.gethostname()))


def said(node: NodeProcess, line: str) -> list[str]:
    done = typed(node, line)
    assert (done.exit_code, done.stderr) == (0, ""), done
    return done.stdout.splitlines()
