"""Peak memory of processes, and energy where a machine measures it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from slipstream.lab.observation.energy import EnergyMeter, Nvml, PowerMetrics, Rapl, joules_of
from slipstream.lab.observation.process_memory import PeakMemory, own_peak_bytes, tree, tree_bytes

MIB = 1 << 20
# a child of the child takes 64 MiB, then gives them back
SPIKE = (
    "import sys, time; a = bytearray(64 << 20); del a; print('done', flush=True); time.sleep(60)"
)
FAMILY = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIKE!r}])"
POWER = """\
*** Sampled system activity (Mon Nov 30 12:00:00 2026 +0000) (1000.00ms elapsed) ***
CPU Power: 1500 mW
Combined Power (CPU + GPU + ANE): 2000 mW
*** Sampled system activity (Mon Nov 30 12:00:01 2026 +0000) (500.00ms elapsed) ***
Combined Power (CPU + GPU + ANE): 4000 mW
*** Sampled system activity (Mon Nov 30 12:00:02 2026 +0000) (999.00ms ela"""


def started(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def test_a_short_peak_of_a_grandchild_counts() -> None:
    with started(FAMILY) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with PeakMemory([process.pid], interval_s=0.01) as memory:
            assert len(tree([process.pid])) == 2
            peak = memory.peak_bytes()
        for pid in reversed(tree([process.pid])):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        if sys.platform == "linux":
            assert peak is not None
            assert peak > 64 * MIB
        assert memory.peak_bytes() == peak  # after the end


def test_growth_is_seen_while_it_lasts() -> None:
    code = "import time; a = bytearray(96 << 20); print('x', flush=True); time.sleep(60)"
    with started("import time; time.sleep(60)") as small, started(code) as large:
        assert large.stdout is not None
        large.stdout.readline()
        assert tree_bytes([large.pid]) > tree_bytes([small.pid]) + 80 * MIB
        small.kill()
        large.kill()


def test_nobody_has_no_memory() -> None:
    with PeakMemory([2**22 + 12345], interval_s=0.01) as memory:
        time.sleep(0.03)
        assert memory.peak_bytes() is None


def test_the_system_s_own_maximum(tmp_path: Path) -> None:
    status = tmp_path / "proc/7/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tx\nVmHWM:\t    2048 kB\n")
    assert own_peak_bytes(7, tmp_path) == 2 * MIB
    status.write_text("VmHWM:\n")
    assert own_peak_bytes(7, tmp_path) == 0
    assert own_peak_bytes(8, tmp_path) == 0


def domain(root: Path, folder: str, name: str, microjoules: int) -> Path:
    place = root / "sys/class/powercap" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "name").write_text(f"{name}\n")
    (place / "max_energy_range_uj").write_text("999999\n")
    (place / "energy_uj").write_text(f"{microjoules}\n")
    return place / "energy_uj"


def test_rapl_counts_packages_and_memory_and_wraps(tmp_path: Path) -> None:
    package = domain(tmp_path, "intel-rapl:0", "package-0", 900_000)
    memory = domain(tmp_path, "intel-rapl:0:1", "dram", 10)
    domain(tmp_path, "intel-rapl:0:0", "core", 10)
    domain(tmp_path, "intel-rapl:1", "psys", 10)
    meter = EnergyMeter([Rapl(tmp_path)])
    assert meter.source == "rapl (package-0, dram)"
    package.write_text("100000\n")  # wrapped: 200000 more
    memory.write_text("300010\n")
    assert meter.read_j() == pytest.approx(0.5)
    package.write_text("150000\n")
    assert meter.read_j() == pytest.approx(0.55)
    package.unlink()
    assert meter.read_j() is None


def test_no_counter_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no RAPL domain"):
        Rapl(tmp_path)
    meter = EnergyMeter([])
    assert (meter.source, meter.read_j()) == ("unknown", None)
    meter.close()


def test_the_machine_s_own_meter_opens_and_closes() -> None:
    meter = EnergyMeter()
    assert (meter.read_j() is None) == (meter.source == "unknown")
    meter.close()


class Library:
    """NVML with two devices."""

    def __init__(self, code: int = 0) -> None:
        self.millijoules, self.code = 5000, code

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:  # noqa: N802, ARG002
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, value: Any) -> int:  # noqa: N802, ARG002
        ctypes.cast(value, ctypes.POINTER(ctypes.c_ulonglong))[0] = self.millijoules
        return self.code

    def nvmlShutdown(self) -> int:  # noqa: N802
        return 0


def test_nvml_sums_its_devices() -> None:
    library = Library()
    meter = Nvml(library)
    library.millijoules += 1500
    assert (meter.source, meter.read_j()) == ("nvml (2 devices)", 3.0)
    library.code = 15
    assert meter.read_j() is None
    meter.close()
    with pytest.raises(OSError, match="code 3"):
        Nvml(Library(code=3))


def test_powermetrics_tells_power_and_length() -> None:
    assert joules_of(POWER) == pytest.approx(2.0 + 2.0)
    assert joules_of("") == 0.0
    with pytest.raises(OSError, match="root"):
        PowerMetrics(program="/nonexistent")
