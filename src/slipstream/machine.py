"""What this process may use of the machine: processors, cores, quotas, huge pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

HUGE_PAGE_BYTES: Final = 2 << 20
_MAP_LINE: Final = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) ")
_SYSCTL_TIMEOUT_S: Final = 5.0


def default_threads(root: Path = Path("/")) -> int:
    """Physical cores inside this process's affinity, at most its whole-CPU quota; at least 1.

    Two hyper-threads of a core share its vector units and its path to memory, so a second thread
    per core adds nothing to a mat-mul; threads beyond a quota are descheduled in mid-step.

    Args:
        root: where `/proc` and `/sys` are found; a test passes a directory of its own.
    """
    cores = physical_cores(available_processors(), root)
    quota = processor_quota(root)
    return max(1, cores if quota is None else min(cores, int(quota)))


def available_processors() -> frozenset[int]:
    """Numbers of the logical processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def physical_cores(processors: Collection[int], root: Path = Path("/")) -> int:
    """How many distinct physical cores `processors` belong to."""
    topology = [_core(number, root) for number in processors]
    if None in topology:
        return _physical_cores_elsewhere(len(topology))
    return len(set(topology))


def _core(number: int, root: Path) -> tuple[str, str] | None:
    folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
    package = _text(folder / "physical_package_id")
    core = _text(folder / "core_id")
    return (package, core) if package is not None and core is not None else None


def _physical_cores_elsewhere(logical: int) -> int:
    """Systems without /sys; on macOS only the performance cores, as a phase of a step is over when
    its slowest core is done."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    cores = _performance_cores() if sys.platform == "darwin" else None
    return min(cores or psutil.cpu_count(logical=False) or logical, logical)


def _performance_cores() -> int | None:
    """macOS's count of physical cores of the fastest kind; None = the system does not say.

    Source: `man 3 sysctl`, `hw.perflevel0`, the level of highest performance.
    """
    command = ["/usr/sbin/sysctl", "-n", "hw.perflevel0.physicalcpu"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_SYSCTL_TIMEOUT_S, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return int(answer) if answer.isascii() and answer.isdigit() and int(answer) > 0 else None


def processor_quota(root: Path = Path("/")) -> float | None:
    """The tightest CPU quota of this process's control groups, in processors; None = no quota.

    Reads `cpu.max` (version 2) and `cpu.cfs_quota_us` / `cpu.cfs_period_us` (version 1) of the
    group and of all groups above it, as the kernel applies every one of them. Source: the kernel's
    cgroup-v2 and sched-bwc documentation.
    """
    membership = _text(root / "proc/self/cgroup") or ""
    quotas = [
        quota
        for line in membership.splitlines()
        for folder in _group_folders(line, root / "sys/fs/cgroup")
        for quota in (_version_2_quota(folder), _version_1_quota(folder))
        if quota is not None
    ]
    return min(quotas, default=None)


def _group_folders(line: str, mount: Path) -> Iterator[Path]:
    """Folders of one line of /proc/self/cgroup (`id:controllers:path`) and of its parents."""
    identifier, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if identifier == "0":
        bases = [mount, mount / "unified"]
    elif "cpu" in controllers.split(","):
        bases = [mount / controllers, mount / "cpu"]
    else:
        return
    group = PurePosixPath(path.lstrip("/"))
    for base in bases:
        for level in (group, *group.parents):
            # Inside a container the path may lie above the mount: `..` leads nowhere here.
            if ".." not in level.parts:
                yield base / level


def _version_2_quota(folder: Path) -> float | None:
    fields = (_text(folder / "cpu.max") or "").split()
    return _ratio(*fields) if len(fields) == 2 else None


def _version_1_quota(folder: Path) -> float | None:
    quota = _text(folder / "cpu.cfs_quota_us")
    period = _text(folder / "cpu.cfs_period_us")
    return _ratio(quota, period) if quota and period else None


def _ratio(quota: str, period: str) -> float | None:
    """`max` (version 2) and `-1` (version 1) both mean no quota."""
    if not (quota.isascii() and quota.isdigit() and period.isascii() and period.isdigit()):
        return None
    return int(quota) / int(period) if int(period) else None


@dataclass(frozen=True)
class HugePages:
    """How much of a range of memory lies on huge pages.

    Attributes:
        asked_bytes: the range; obtained_bytes: what of it does.
        reason: why it is less; empty when it is not.
    """

    asked_bytes: int
    obtained_bytes: int
    reason: str


def huge_pages(address: int, size: int, root: Path = Path("/")) -> HugePages:
    """Whether the system backed `[address, address + size)` with huge pages.

    Reads `AnonHugePages` of the range's maps in `/proc/self/smaps`. A neighbour that the system
    merged into the same map is counted too, up to `size`.
    """
    maps = _text(root / "proc/self/smaps")
    if maps is None:
        return HugePages(size, 0, "this system does not tell what lies on huge pages")
    obtained = min(size, _huge_bytes(maps, address, address + size))
    reason = "" if obtained >= size else _fewer_huge_pages(size, root)
    return HugePages(size, obtained, reason)


def _huge_bytes(maps: str, first: int, last: int) -> int:
    total, inside = 0, False
    for line in maps.splitlines():
        if found := _MAP_LINE.match(line):
            inside = int(found["start"], 16) < last and first < int(found["end"], 16)
        elif inside and line.startswith("AnonHugePages:"):
            total += int(line.split()[1]) * 1024
    return total


def _fewer_huge_pages(size: int, root: Path) -> str:
    mode = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    if mode is None:
        return "this kernel has no transparent huge pages"
    if "[never]" in mode:
        return "transparent huge pages are switched off (transparent_hugepage/enabled is never)"
    if size < HUGE_PAGE_BYTES:
        return f"the weights are smaller than one huge page of {HUGE_PAGE_BYTES} bytes"
    return "the system had too few free huge pages, or the process may not have them"


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
