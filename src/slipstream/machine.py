"""What this process may use of the machine: processors, their cores, the control group's quota."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath


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
    """Systems without /sys, macOS among them."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    return min(psutil.cpu_count(logical=False) or logical, logical)


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


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
