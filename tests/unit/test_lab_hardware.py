"""A machine is described by what its system tells; the rest is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.lab.contract.plan import Artifact, Plan, RuntimePlan
from slipstream.lab.freezing.hardware import describe_hardware

CPU = """\
processor\t: 0
model name\t: Some Processor 9
flags\t\t: fpu sse4_2 avx avx2 fma f16c hypervisor

processor\t: 1
model name\t: Another
"""


def plan(**more: object) -> Plan:
    runtimes = {"slipstream": RuntimePlan(kind="slipstream")}
    given: dict[str, object] = {"runtimes": runtimes, **more}
    return Plan(name="x", target=Artifact(model="m"), **given)  # type: ignore[arg-type]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for name, text in {
        "proc/cpuinfo": CPU,
        "proc/meminfo": "MemTotal:       16384 kB\nMemFree: 1 kB\n",
        "etc/os-release": 'NAME="X"\nPRETTY_NAME="Some Linux 7"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
        "sys/class/dmi/id/sys_vendor": "QEMU\n",
        "sys/class/power_supply/AC/type": "Mains\n",
        "sys/class/power_supply/AC/online": "1\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": "123\n",
        "sys/class/powercap/intel-rapl:0/name": "package-0\n",
        "proc/driver/nvidia/gpus/0/information": "Model: \t\t Some GPU\nIRQ: 3\n",
        ".dockerenv": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def silent(_: str) -> None:
    return None


def test_a_machine_that_tells(machine: Path) -> None:
    found = describe_hardware(plan(), machine, silent)
    assert found.cpu == "Some Processor 9"
    assert found.memory_bytes == 16384 * 1024
    assert found.isa == ("sse4_2", "avx", "avx2", "fma", "f16c")
    assert found.governor == "performance, powersave, boost off"
    assert found.virtualisation == "virtual machine (QEMU), container"
    assert found.power == "mains"
    assert found.accelerator == "Some GPU"
    assert found.energy_source == "RAPL (package-0) + NVML"
    assert found.system.startswith("Some Linux 7, ")
    assert "load averages" in found.other_load
    assert found.sampler_placement == "cpu"


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    found = describe_hardware(plan(), tmp_path, silent)
    names = ("cpu", "memory_bytes", "governor", "accelerator", "power", "cooling", "energy_source")
    assert {getattr(found, name) for name in names} == {"unknown"}
    assert found.virtualisation == "unknown"
    assert found.isa == ()


def test_a_machine_without_virtualisation(machine: Path) -> None:
    (machine / "proc/cpuinfo").write_text(CPU.replace(" hypervisor", ""))
    (machine / ".dockerenv").unlink()
    assert describe_hardware(plan(), machine, silent).virtualisation == "none seen"


def test_the_control_groups_memory_is_less(machine: Path) -> None:
    (machine / "sys/fs/cgroup").mkdir(parents=True)
    (machine / "sys/fs/cgroup/memory.max").write_text("4096\n")
    assert describe_hardware(plan(), machine, silent).memory_bytes == 4096
    (machine / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert describe_hardware(plan(), machine, silent).memory_bytes == 16384 * 1024


def test_a_battery(machine: Path) -> None:
    folder = machine / "sys/class/power_supply"
    (folder / "AC/online").write_text("0")
    (folder / "BAT0").mkdir()
    (folder / "BAT0/type").write_text("Battery")
    (folder / "BAT0/status").write_text("Discharging")
    assert describe_hardware(plan(), machine, silent).power == "battery"


def test_what_a_person_knows_comes_first(machine: Path) -> None:
    known = plan(power="desktop, 65 W", cooling="fan", load_note="a browser")
    found = describe_hardware(known, machine, silent)
    assert (found.power, found.cooling) == ("desktop, 65 W", "fan")
    assert found.other_load.startswith("a browser; load averages")


def test_the_placement_asked_for(machine: Path) -> None:
    runtimes = {
        "own": RuntimePlan(kind="slipstream"),
        "b1": RuntimePlan(kind="llama-server", binary="x", device={"layers": "99"}),
    }
    found = describe_hardware(plan(runtimes=runtimes), machine, silent)
    assert found.placement == {"b1.layers": "99"}
    assert found.sampler_placement == "own: cpu; b1: unknown"


def test_a_mac(tmp_path: Path) -> None:
    told = {
        "machdep.cpu.brand_string": "Apple M3",
        "hw.memsize": "17179869184",
        "hw.optional.arm.FEAT_I8MM": "1",
        "hw.optional.AdvSIMD": "1",
        "kern.hv_vmm_present": "0",
    }
    found = describe_hardware(plan(), tmp_path, told.get)
    assert found.cpu == "Apple M3"
    assert found.memory_bytes == 1 << 34
    assert found.isa == ("AdvSIMD", "I8MM")
    assert found.accelerator == "Apple M3, graphics of the chip"
    assert found.virtualisation == "none seen"


def test_this_machine_is_described() -> None:
    found = describe_hardware(plan())
    assert isinstance(found.cores, int)
    assert found.cores >= 1
    assert found.system
