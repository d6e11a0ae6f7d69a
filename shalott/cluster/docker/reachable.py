"""Whether a server listens at the engine's socket, found without the SDK that is slow to load."""

from __future__ import annotations

import getpass
import os
import socket

CONNECT_TIMEOUT_S = 5
USUAL_SOCKET = "/var/run/docker.sock"


def socket_obstacle() -> str | None:
    """Why no server can be reached at the engine's Unix socket, and the command that mends it; None
    if one listens, or if the engine is elsewhere."""
    try:
        reach_socket()
    except OSError as error:
        return explain(error)
    return None


def reach_socket() -> None:
    """Raises OSError if no server listens at the engine's Unix socket, if it is one.

    The SDK would say so too, but leaves the socket that it tried with open.
    """
    host = os.environ.get("DOCKER_HOST", "").strip()
    path = host.removeprefix("unix://") if host else USUAL_SOCKET
    if "://" not in path:
        with socket.socket(socket.AF_UNIX) as attempt:
            attempt.settimeout(CONNECT_TIMEOUT_S)
            attempt.connect(path)


def explain(error: Exception) -> str:
    """What keeps the engine from answering, and the command that mends it."""
    text = f"{type(error).__name__}: {error}"
    if "Permission denied" in text or "PermissionError" in text:
        user = getpass.getuser()
        return (
            "no permission on the Docker socket: run as root, or once"
            f" `sudo usermod -aG docker {user}` and log in again"
        )
    if "FileNotFoundError" in text or "No such file" in text:
        return (
            "no Docker engine on this machine: install one with"
            " `sudo apt-get install -y docker.io`, or start it with `sudo systemctl start docker`"
        )
    if "Connection refused" in text or "ConnectionRefusedError" in text:
        return "the Docker engine is not running: start it with `sudo systemctl start docker`"
    return f"the Docker engine does not answer: {text}"
