"""Energy that the machine itself measures; where it measures none it is unknown, never derived.

RAPL (Linux, ``/sys/class/powercap``) counts microjoules of processor packages and their memory;
NVML counts millijoules of NVIDIA devices; macOS's ``powermetrics``, which only root may run, tells
the mean power of intervals, each with its length. A meter is of the whole machine.

Sources: the kernel's powercap documentation, NVML's API reference, ``man powermetrics``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from slipstream.lab.contract.manifest import UNKNOWN

POWERMETRICS: Final = "/usr/bin/powermetrics"
_INTERVAL: Final = re.compile(r"\(([\d.]+)ms elapsed\)")
_POWER: Final = re.compile(r"^Combined Power \(.*\): (\d+) mW", re.MULTILINE)
_MOST_OUTPUT: Final = 64 << 20


class Meter(Protocol):
    """A counter of energy.

    Attributes:
        source: what counts.
    """

    source: str

    def read_j(self) -> float | None:
        """Joules since it was opened; None = it cannot be read now."""
        ...

    def close(self) -> None: ...


class _Counter:
    """A hardware counter that begins anew at ``wraps_at`` (in its own unit)."""

    def __init__(self, path: Path, wraps_at: int) -> None:
        self._path, self._wraps_at = path, wraps_at
        self._last = int(path.read_text())
        self._total = 0

    def read(self) -> int:
        value = int(self._path.read_text())
        step = value - self._last
        self._total += step if step >= 0 else step + self._wraps_at
        self._last = value
        return self._total


class Rapl:
    """Packages and their memory.

    Args:
        root: where ``/sys`` is found; a test passes a folder of its own.

    Raises:
        OSError, ValueError: there is none, or it may not be read.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._counters: list[_Counter] = []
        names = []
        for folder in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
            name = (folder / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                wraps_at = int((folder / "max_energy_range_uj").read_text()) + 1
                self._counters.append(_Counter(folder / "energy_uj", wraps_at))
                names.append(name)
        if not names:
            raise OSError("no RAPL domain")
        self.source = f"rapl ({', '.join(names)})"

    def read_j(self) -> float | None:
        with contextlib.suppress(OSError, ValueError):
            return sum(counter.read() for counter in self._counters) / 1e6
        return None

    def close(self) -> None:
        """Nothing is open."""


class Nvml:
    """All NVIDIA devices.

    Raises:
        OSError: no library, no device, or none that counts energy.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1") if library is None else library
        self._require("nvmlInit_v2")
        count = ctypes.c_uint()
        self._require("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = [self._device(index) for index in range(count.value)]
        if not self._devices:
            raise OSError("no NVIDIA device")
        self._began = [self._millijoules(device) for device in self._devices]
        self.source = f"nvml ({count.value} devices)"

    def _require(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name}: code {code}")

    def _device(self, index: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._require("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        return device

    def _millijoules(self, device: ctypes.c_void_p) -> int:
        value = ctypes.c_ulonglong()
        self._require("nvmlDeviceGetTotalEnergyConsumption", device, ctypes.byref(value))
        return value.value

    def read_j(self) -> float | None:
        with contextlib.suppress(OSError):
            now = [self._millijoules(device) for device in self._devices]
            return sum(now) / 1e3 - sum(self._began) / 1e3
        return None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._require("nvmlShutdown")


class PowerMetrics:
    """macOS: what ``powermetrics`` prints while it runs.

    Raises:
        OSError: not root, or it is not there.
    """

    source = "powermetrics (combined power)"

    def __init__(self, program: str = POWERMETRICS, interval_ms: int = 200) -> None:
        if os.geteuid() != 0 or not Path(program).exists():
            raise OSError("powermetrics needs root")
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        words = [program, "-i", str(interval_ms), "--samplers", "cpu_power,gpu_power"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
        )

    def read_j(self) -> float | None:
        if self._process.poll() is not None:
            return None
        self._output.seek(0)
        return joules_of(self._output.read(_MOST_OUTPUT).decode("utf-8", "replace"))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._output.close()


def joules_of(text: str) -> float:
    """Energy of all intervals in ``powermetrics``' text: power times the length it tells."""
    total = 0.0
    for sample in text.split("*** Sampled system activity")[1:]:
        length, power = _INTERVAL.search(sample), _POWER.search(sample)
        if length and power:
            total += float(length[1]) / 1e3 * int(power[1]) / 1e3
    return total


class EnergyMeter:
    """Everything that this machine measures, together.

    Attributes:
        source: what counts; ``unknown`` where nothing does.
    """

    def __init__(self, meters: Sequence[Meter] | None = None) -> None:
        self._meters = _opened() if meters is None else list(meters)
        self.source = " + ".join(meter.source for meter in self._meters) or UNKNOWN

    def read_j(self) -> float | None:
        """Joules since it was opened; None = unknown."""
        values = [meter.read_j() for meter in self._meters]
        told = [value for value in values if value is not None]
        return sum(told) if told and len(told) == len(values) else None

    def close(self) -> None:
        for meter in self._meters:
            meter.close()


def _opened() -> list[Meter]:
    kinds: list[Any] = [PowerMetrics] if sys.platform == "darwin" else [Rapl, Nvml]
    found: list[Meter] = []
    for kind in kinds:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(kind())
    return found
