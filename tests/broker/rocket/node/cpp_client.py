"""The C++ client of the package ``rocketmq`` 0.4.4 (2019), in a virtual environment of its own: two
other packages install a module of the same name. Its one wheel has a library for x86-64 Linux.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parents[4]
ENVIRONMENT = ROOT / ".tox" / "rocketmq-cpp"
PACKAGE = "rocketmq==0.4.4"
PROGRAM = Path(__file__).with_name("cpp_client_program.py")
INSTALL_TIMEOUT_S = 180
PROGRAM_TIMEOUT_S = 90


def cpp_client() -> Path:
    """An interpreter that has it; installed if need be. Skips where it can't run."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the C++ client has a library for x86-64 Linux only")
    python = ENVIRONMENT / "bin" / "python"
    installed = ENVIRONMENT / f"{PACKAGE}.installed"
    if not installed.exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.SubprocessError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"the C++ client can't be installed: {error}")
        installed.touch()
    return python


def run_cpp_client(home: Path, name_servers: str, topic: str, count: int) -> Any:
    """What the program said (cpp_client_program.py). The client logs under ``home``."""
    done = subprocess.run(
        [cpp_client(), PROGRAM, name_servers, topic, str(count)],
        env={"HOME": str(home)},
        capture_output=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr.decode()}"
    return msgspec.json.decode(done.stdout)
