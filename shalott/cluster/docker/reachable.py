"""Whether a server listens at the engine's socket, found without the SDK that is slow to load; and
whether an engine that answers can run nodes."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping

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


def unfit(info: Mapping[str, object]) -> str | None:
    """Why an engine that says this of itself can't run nodes, and what to do; None if it can.

    Docker and Podman answer alike. An engine without root keeps its containers in a network of its
    own, whose addresses lead elsewhere on this host, and their processes in namespaces where no
    fault can be made; one in a virtual machine likewise.
    """
    if "Docker Desktop" in str(info.get("OperatingSystem", "")):
        return "Docker Desktop's containers can't be reached from the host: use --cluster local"
    options = info.get("SecurityOptions")
    words = [str(option) for option in options] if isinstance(options, list) else []
    if info.get("Rootless") is True or any("name=rootless" in word.split(",") for word in words):
        return (
            "the engine runs without root, so its containers can't be reached or cut from here:"
            " use one that runs as root (DOCKER_HOST says which), or --cluster local"
        )
    return None


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
