"""The machine of a run, as its system tells it; what it does not tell is ``unknown``.

Nothing is started: Linux is read from /proc and /sys, macOS by ``sysctlbyname``.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from slipstream.lab.contract.manifest import UNKNOWN, Hardware
from slipstream.lab.contract.plan import Plan
from slipstream.machine import available_processors, physical_cores, processor_quota

ISA_FLAGS: Final = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl"),
    *("avx512_vnni", "avx512_bf16", "avx512_vbmi", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)
"""Flags of /proc/cpuinfo that decide which kernels can run."""
_DARWIN_FEATURES: Final = ("AdvSIMD", "DotProd", "FP16", "I8MM", "BF16", "SME", "SME2")
_VENDORS: Final = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_MOST_BYTES: Final = 1 << 20

Sysctl = Callable[[str], str | None]


def describe_hardware(plan: Plan, root: Path = Path("/"), sysctl: Sysctl | None = None) -> Hardware:
    """
    Args:
        plan: says what only a person knows (power, cooling, load) and the placement asked for.
        root: where /proc, /sys and /etc are found; a test passes a directory of its own.
        sysctl: value of a name on macOS; None = the system's own.
    """
    ask = sysctl or _system_value
    cpu = _cpu_info(root)
    processors = available_processors()
    return Hardware(
        cpu=_cpu_name(cpu) or ask("machdep.cpu.brand_string") or UNKNOWN,
        cores=physical_cores(processors, root),
        threads=len(processors),
        memory_bytes=_memory(root, ask),
        isa=tuple(_isa(cpu, ask)),
        accelerator=_accelerator(root, ask),
        placement=_placement(plan),
        sampler_placement=_sampler_placement(plan),
        power=plan.power or _power(root),
        cooling=plan.cooling or UNKNOWN,
        governor=_governor(root),
        virtualisation=_virtualisation(root, cpu, ask),
        other_load=_load(plan),
        system=_system(root),
        energy_source=_energy_source(root),
    )


def _cpu_info(root: Path) -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    facts: dict[str, str] = {}
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            break
        facts.setdefault(key.strip(), value.strip())
    return facts


def _cpu_name(cpu: Mapping[str, str]) -> str:
    if "model name" in cpu:
        return cpu["model name"]
    parts = [f"{key} {cpu[key]}" for key in ("CPU implementer", "CPU part") if key in cpu]
    return ", ".join(parts)


def _isa(cpu: Mapping[str, str], ask: Sysctl) -> Iterator[str]:
    flags = set(cpu.get("flags", cpu.get("Features", "")).split())
    yield from (flag for flag in ISA_FLAGS if flag in flags)
    for feature in _DARWIN_FEATURES if not flags else ():
        if "1" in (ask(f"hw.optional.{feature}"), ask(f"hw.optional.arm.FEAT_{feature}")):
            yield feature


def _memory(root: Path, ask: Sysctl) -> int | str:
    """The machine's, or what the control group leaves of it."""
    total = re.search(r"^MemTotal: +([0-9]+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    limit = _text(root / "sys/fs/cgroup/memory.max")
    sizes = [int(total[1]) * 1024] if total else []
    sizes += [int(limit)] if limit.isdigit() else []
    told = ask("hw.memsize") if not sizes else None
    if told and told.isdigit():
        sizes.append(int(told))
    return min(sizes, default=UNKNOWN)


def _accelerator(root: Path, ask: Sysctl) -> str:
    """Graphics processors that the system lists; ``none seen`` where it lists none."""
    names = [_nvidia_name(file) for file in _glob(root, "proc/driver/nvidia/gpus/*/information")]
    for file in _glob(root, "sys/class/drm/card[0-9]*/device/vendor"):
        vendor = _VENDORS.get(_text(file), "")
        if vendor and not (vendor == "NVIDIA" and names):
            names.append(f"{vendor}, device {_text(file.with_name('device')) or UNKNOWN}")
    if names:
        return "; ".join(dict.fromkeys(names))
    if (root / "sys/class").is_dir():
        return "none seen"
    chip = ask("machdep.cpu.brand_string") or ""
    return f"{chip}, graphics of the chip" if chip.startswith("Apple") else UNKNOWN


def _nvidia_name(file: Path) -> str:
    for line in _text(file).splitlines():
        if line.startswith("Model:"):
            return line.partition(":")[2].strip()
    return "NVIDIA"


def _placement(plan: Plan) -> dict[str, str]:
    return {
        f"{name}.{key}": value
        for name, runtime in plan.runtimes.items()
        for key, value in runtime.device.items()
    }


def _sampler_placement(plan: Plan) -> str:
    """Slipstream samples on the CPU; of others the plan's ``device.sampler``."""
    places = {
        name: "cpu" if runtime.kind == "slipstream" else runtime.device.get("sampler", UNKNOWN)
        for name, runtime in plan.runtimes.items()
    }
    distinct = set(places.values())
    if len(distinct) == 1:
        return distinct.pop()
    return "; ".join(f"{name}: {place}" for name, place in places.items())


def _power(root: Path) -> str:
    """``mains`` or ``battery`` where the system lists a supply."""
    kinds = {}
    for folder in _glob(root, "sys/class/power_supply/*"):
        kind = _text(folder / "type")
        kinds[folder.name] = (kind, _text(folder / "online"), _text(folder / "status"))
    if any(kind == "Mains" and online == "1" for kind, online, _ in kinds.values()):
        return "mains"
    if any(kind == "Battery" and status == "Discharging" for kind, _, status in kinds.values()):
        return "battery"
    return _psutil_power() if sys.platform == "darwin" else UNKNOWN


def _psutil_power() -> str:
    import psutil  # type: ignore[import-untyped,unused-ignore]

    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is None or battery.power_plugged is None:
        return UNKNOWN
    return "mains" if battery.power_plugged else "battery"


def _governor(root: Path) -> str:
    pattern = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"
    found = sorted({_text(file) for file in _glob(root, pattern)} - {""})
    if not found:
        return UNKNOWN
    boost = _text(root / "sys/devices/system/cpu/cpufreq/boost")
    turbo = _text(root / "sys/devices/system/cpu/intel_pstate/no_turbo")
    states = {"1": "boost on", "0": "boost off"}.get(boost, "")
    states = states or {"0": "boost on", "1": "boost off"}.get(turbo, "")
    return ", ".join([*found, *([states] if states else [])])


def _virtualisation(root: Path, cpu: Mapping[str, str], ask: Sysctl) -> str:
    found = []
    if "hypervisor" in cpu.get("flags", "").split() or ask("kern.hv_vmm_present") == "1":
        names = [_text(root / f"sys/class/dmi/id/{n}") for n in ("sys_vendor", "product_name")]
        known = " ".join(name for name in names if name)
        found.append(f"virtual machine ({known or 'hypervisor unknown'})")
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        found.append("container")
    quota = processor_quota(root)
    if quota is not None:
        found.append(f"a quota of {quota:g} processors")
    if found:
        return ", ".join(found)
    return "none seen" if "flags" in cpu or ask("kern.hv_vmm_present") == "0" else UNKNOWN


def _load(plan: Plan) -> str:
    """The plan's note and the system's load averages when the manifest was frozen."""
    try:
        averages = " ".join(f"{value:.2f}" for value in os.getloadavg())
        told = f"load averages {averages} over 1, 5 and 15 minutes, when frozen"
    except (OSError, AttributeError):
        told = "" if plan.load_note else UNKNOWN
    return "; ".join(part for part in (plan.load_note, told) if part)


def _system(root: Path) -> str:
    kernel = f"{platform.system()} {platform.release()}"
    for line in _text(root / "etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            name = line.partition("=")[2].strip('"')
            return f"{name}, {kernel}"
    return f"macOS {platform.mac_ver()[0]}, {kernel}" if platform.mac_ver()[0] else kernel


def _energy_source(root: Path) -> str:
    """What ``lab.observation.energy`` can read here, by what the system shows, else ``unknown``."""
    domains = [
        _text(file.with_name("name")) or file.parent.name
        for file in _glob(root, "sys/class/powercap/*/energy_uj")
        if _text(file).isdigit()
    ]
    found = [f"RAPL ({', '.join(dict.fromkeys(domains))})"] if domains else []
    found += ["NVML"] if _glob(root, "proc/driver/nvidia/gpus/*") else []
    if platform.system() == "Darwin" and os.geteuid() == 0:
        found.append("powermetrics")
    return " + ".join(found) or UNKNOWN


def _glob(root: Path, pattern: str) -> list[Path]:
    try:
        return sorted(root.glob(pattern))
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _system_value(name: str) -> str | None:
    """macOS's ``sysctlbyname`` (man 3 sysctl): a text or a number as text; None elsewhere."""
    if platform.system() != "Darwin":
        return None
    import ctypes

    library = ctypes.CDLL(None)
    size = ctypes.c_size_t(0)
    key = name.encode()
    if library.sysctlbyname(key, None, ctypes.byref(size), None, 0) or size.value > _MOST_BYTES:
        return None
    buffer = ctypes.create_string_buffer(size.value)
    if library.sysctlbyname(key, buffer, ctypes.byref(size), None, 0):
        return None
    if size.value in (4, 8) and not buffer.raw.rstrip(b"\0").isalpha():
        return str(int.from_bytes(buffer.raw, sys.byteorder))
    return buffer.value.decode("utf-8", "replace")
