"""Threads that are really there: affinity, cores, quotas."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream import machine


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")


def topology(root: Path, cores: list[tuple[int, int]]) -> None:
    for number, (package, core) in enumerate(cores):
        folder = f"sys/devices/system/cpu/cpu{number}/topology"
        write(root, {f"{folder}/physical_package_id": str(package), f"{folder}/core_id": str(core)})


@pytest.fixture
def eight_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages of two cores of two hyper-threads, numbered as Linux does."""
    topology(tmp_path, [(0, 0), (0, 1), (1, 0), (1, 1)] * 2)
    monkeypatch.setattr(machine, "available_processors", lambda: frozenset(range(8)))
    return tmp_path


def test_hyper_threads_are_not_cores(eight_processors: Path) -> None:
    assert machine.default_threads(eight_processors) == 4


def test_affinity_limits(eight_processors: Path) -> None:
    assert machine.physical_cores({0, 4}, eight_processors) == 1
    assert machine.physical_cores({0, 1, 4}, eight_processors) == 2
    assert machine.physical_cores({0, 2}, eight_processors) == 2


@pytest.mark.parametrize(
    ("maximum", "threads"),
    [("200000 100000", 2), ("350000 100000", 3), ("50000 100000", 1), ("max 100000", 4), ("", 4)],
)
def test_quota_of_version_2(eight_processors: Path, maximum: str, threads: int) -> None:
    write(eight_processors, {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": maximum})
    assert machine.default_threads(eight_processors) == threads


def test_the_tightest_quota_above_counts(eight_processors: Path) -> None:
    write(
        eight_processors,
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/b/cpu.max": "300000 100000",
            "sys/fs/cgroup/a/cpu.max": "100000 100000",
        },
    )
    assert machine.processor_quota(eight_processors) == 1.0


@pytest.mark.parametrize("mounted", ["cpu", "cpu,cpuacct"])
def test_quota_of_version_1(eight_processors: Path, mounted: str) -> None:
    folder = f"sys/fs/cgroup/{mounted}/job"
    write(
        eight_processors,
        {
            "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/job\n0::/",
            f"{folder}/cpu.cfs_quota_us": "150000",
            f"{folder}/cpu.cfs_period_us": "50000",
        },
    )
    assert machine.processor_quota(eight_processors) == 3.0
    write(eight_processors, {f"{folder}/cpu.cfs_quota_us": "-1"})
    assert machine.processor_quota(eight_processors) is None


def test_a_group_outside_the_container_is_read_at_the_mount(eight_processors: Path) -> None:
    write(
        eight_processors,
        {"proc/self/cgroup": "0::/../host/job", "sys/fs/cgroup/cpu.max": "200000 100000"},
    )
    assert machine.processor_quota(eight_processors) == 2.0


def test_no_topology_falls_back_to_the_system(tmp_path: Path) -> None:
    assert 1 <= machine.physical_cores({0, 1, 2}, tmp_path) <= 3
    assert machine.processor_quota(tmp_path) is None


def test_a_quota_below_the_affinity_and_an_affinity_below_the_quota(
    eight_processors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        eight_processors,
        {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "290000 100000"},
    )
    assert machine.default_threads(eight_processors) == 2
    monkeypatch.setattr(machine, "available_processors", lambda: frozenset({0, 4}))
    assert machine.default_threads(eight_processors) == 1


def sysctl(answer: str | Exception) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "hw.perflevel0.physicalcpu"
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0, stdout=answer)

    return run


@pytest.mark.parametrize(
    ("answer", "cores"),
    [
        ("4\n", 4),
        ("64\n", 10),
        ("0\n", 8),
        ("unknown oid\n", 8),
        (FileNotFoundError("sysctl"), 8),
        (subprocess.CalledProcessError(1, "sysctl"), 8),
        (subprocess.TimeoutExpired("sysctl", 5), 8),
    ],
)
def test_only_performance_cores_count_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | Exception, cores: int
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", sysctl(answer))
    monkeypatch.setattr("psutil.cpu_count", lambda **_: 8)
    assert machine.physical_cores(range(10), tmp_path) == cores


MAPS = """00400000-00600000 r-xp 00000000 00:00 0
AnonHugePages:      2048 kB
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Rss:                8192 kB
AnonHugePages:      6144 kB
7f0000800000-7f0000a00000 rw-p 00000000 00:00 0
AnonHugePages:      2048 kB"""
START, MB = 0x7F0000000000, 1 << 20
MODE = "sys/kernel/mm/transparent_hugepage/enabled"


@pytest.mark.parametrize(
    ("start", "size", "obtained"),
    [
        (START, 8 * MB, 6 * MB),
        (START + 8 * MB, 2 * MB, 2 * MB),
        (START, 10 * MB, 8 * MB),
        (START, 4 * MB, 4 * MB),
        (START + 16 * MB, 4 * MB, 0),
    ],
)
def test_huge_pages_are_counted_in_the_range(
    tmp_path: Path, start: int, size: int, obtained: int
) -> None:
    write(
        tmp_path,
        {
            "proc/self/smaps": MAPS,
            MODE: "always [madvise] never",
        },
    )
    found = machine.huge_pages(start, size, tmp_path)
    assert (found.asked_bytes, found.obtained_bytes) == (size, obtained)
    assert (found.reason == "") == (obtained == size)


@pytest.mark.parametrize(
    ("files", "size", "reason"),
    [
        ({}, 4 * MB, "does not tell"),
        ({"proc/self/smaps": ""}, 4 * MB, "no transparent huge pages"),
        ({"proc/self/smaps": "", MODE: "always madvise [never]"}, 4 * MB, "switched off"),
        ({"proc/self/smaps": "", MODE: "[always] madvise never"}, MB, "smaller than one"),
        ({"proc/self/smaps": "", MODE: "[always] madvise never"}, 4 * MB, "too few"),
    ],
)
def test_why_there_are_fewer_huge_pages(
    tmp_path: Path, files: dict[str, str], size: int, reason: str
) -> None:
    write(tmp_path, files)
    found = machine.huge_pages(START, size, tmp_path)
    assert found.obtained_bytes == 0
    assert reason in found.reason


def test_this_machine() -> None:
    assert 1 <= machine.default_threads() <= len(machine.available_processors())
