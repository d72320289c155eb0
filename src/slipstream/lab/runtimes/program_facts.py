"""Facts about a program that it or its file tells before it serves: version, build, devices."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipstream.errors import PeerRuntimeError
from slipstream.lab.contract.manifest import UNKNOWN
from slipstream.paths import path_of, reason, shown

ANSWER_S: Final = 120.0
MOST_BYTES: Final = 4 << 20
_PIECE: Final = 1 << 16
_FINE: Final = (0, 1)  # ik_llama.cpp's programs end with 1 after their help
_COMMIT: Final = re.compile(r"(?:commit |\()([0-9a-f]{7,40})\)")
_BUILD: Final = re.compile(r"b\d+-([0-9a-f]{7,40})")
_OWN: Final = re.compile(r"slipstream (\d[\w.+-]*)")
_COMPILER: Final = re.compile(r"built with (.+?) for (\S+)")
_DEVICE: Final = re.compile(r"^\s+(\w+): (.+?)(?: \(\d+ MiB.*)?$")


@dataclass(frozen=True)
class Version:
    """What ``--version`` says."""

    text: str
    commit: str = UNKNOWN
    compiler: str = UNKNOWN


def said(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Everything that a program prints.

    Raises:
        PeerRuntimeError: it cannot be run, fails (a help text or a version may come with exit code
            1), prints over 4 MiB, or takes longer than two minutes.
    """
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # ended with all that it started
            env=None if environment is None else dict(environment),
        )
    except OSError as problem:
        raise _mute(command, f"`{shown(command[0])}`: {reason(problem)}") from None
    try:
        text = _printed(command, process).decode("utf-8", "replace")
    finally:
        _end(process)
    if process.returncode not in _FINE or not text.strip():
        last = " ".join(text.split())[-300:]
        raise _mute(command, f"exit code {process.returncode}: {last}")
    return text


def _printed(command: Sequence[str], process: subprocess.Popen[bytes]) -> bytes:
    """What comes until its end, however fast it comes, in bounded memory and time."""
    assert process.stdout is not None
    limit_s, pipe, found = time.monotonic() + ANSWER_S, process.stdout.fileno(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left_s := limit_s - time.monotonic()) > 0:
            if not selector.select(left_s):
                continue
            piece = os.read(pipe, _PIECE)
            found += piece
            if len(found) > MOST_BYTES:
                told = f"it printed over {MOST_BYTES >> 20} MiB and was killed"
                raise _mute(command, told)
            if not piece and _has_ended(process, limit_s):
                return bytes(found)
            if not piece:
                break
    raise _mute(command, f"no end within {ANSWER_S:g} s; it was killed")


def _has_ended(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, limit_s - time.monotonic()))
    return process.returncode is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _mute(command: Sequence[str], found: str) -> PeerRuntimeError:
    words = " ".join((Path(command[0]).name, *(shown(word) for word in command[1:5])))
    return PeerRuntimeError(f"`{words}` to answer", found, "Check the program.")


def version_of(text: str) -> Version:
    """Commit and compiler in what llama.cpp's programs say of themselves."""
    commit, compiler = _COMMIT.search(text), _COMPILER.search(text)
    return Version(
        text=" ".join(text.split()),
        commit=UNKNOWN if commit is None else commit[1],
        compiler=UNKNOWN
        if compiler is None or compiler[1] == UNKNOWN
        else f"{compiler[1]} for {compiler[2]}",
    )


def build_commit(text: str) -> str:
    """Commit in what llama.cpp's server says of its build (``b11434-0c1e570``)."""
    found = _BUILD.fullmatch(text)
    return UNKNOWN if found is None else found[1]


def own_release(text: str) -> str:
    """Release in what Slipstream's server says of its build; empty where it says none."""
    found = _OWN.fullmatch(text)
    return "" if found is None else found[1]


def devices_of(text: str) -> str:
    """Devices in what ``--list-devices`` prints; ``CPU`` where it lists none."""
    if "Available devices" not in text:
        return UNKNOWN
    listed = text.partition("Available devices")[2].splitlines()[1:]
    found = [match for match in map(_DEVICE.match, listed) if match is not None]
    return ", ".join(f"{match[1]} ({match[2]})" for match in found) or "CPU"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file; ``unknown`` where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return UNKNOWN


def same_commit(one: str, other: str) -> bool:
    """Whether two names of commits can be one: equal, shortened, or not known."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return UNKNOWN in (one, other) or not short or long.startswith(short)


def found_program(name: str) -> str:
    """Path of a program: as named, in the user's home, or on the search path."""
    path = str(path_of(name, "a program of the plan"))
    return shutil.which(path) or path
