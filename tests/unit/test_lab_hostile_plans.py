"""Plans of somebody hostile: each ends in an error of its key, in bounded time and memory."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.cli.app import main
from slipstream.errors import InputError, OptionError, PeerRuntimeError
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.plan import Plan
from slipstream.lab.planning.plan_file import parse_plan, read_plan
from slipstream.lab.planning.plan_ranges import RANGES
from slipstream.lab.planning.plan_workloads import workloads_of
from slipstream.lab.runtimes import program_facts
from slipstream.lab.runtimes.registry import runtimes
from slipstream.lab.runtimes.running_servers import key_headers
from slipstream.lab.scheduling.arrivals import recorded

HEAD = 'name = "study"\nprompts = 2\n'
TARGET = '[target]\nmodel = "smollm2-135m"\n'
OWN = '[runtimes.own]\nkind = "slipstream"\n'
LLAMA = '[runtimes.b]\nkind = "llama-server"\n'
REMOTE = '[runtimes.r]\nkind = "openai"\nurl = "http://127.0.0.1:9"\n'
NOBODY = "~nosuchuser/x"


def fault(text: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_plan(text)
    assert len(str(caught.value)) < 1500
    return caught.value


def rules(more: str) -> str:
    return HEAD + TARGET + OWN + more


def test_a_number_of_more_digits_than_are_read() -> None:
    problem = fault(f'name = "x"\nprompts = {"1" * 5000}\n')
    assert "TOML" in problem.expected
    assert "digits" in problem.found


@pytest.mark.parametrize(
    "more",
    [
        "[arrivals]\nmix = { chat = 1e308, repetitive = 1e308 }\n",
        "[arrivals]\nmix = { chat = 1e-308 }\n",
        "[arrivals]\nmix = { chat = -1 }\n",
        "[arrivals]\nmix = { chat = nan }\n",
        "[arrivals]\nkind = 'poisson'\nrate_per_s = 1e308\n",
        "[arrivals]\nkind = 'poisson'\nrate_per_s = 1e-300\n",
        "[rules]\nmargin = 1e308\n",
        "[rules]\nbudget_s = 1e308\n",
        "[rules]\nslo_ttft_s = inf\n",
        "[rules]\nmemory_margin_bytes = 99999999999999999999\n",
        "[rules]\nrows_range = [1, 99999999999999999999]\n",
        "[rules]\nrows_range = [-1, 3]\n",
    ],
)
def test_an_absurd_number_names_its_range(more: str) -> None:
    problem = fault(rules(more))
    assert re.search(r"\(line [789]\) to be", problem.expected)
    assert problem.remedy != "Correct it."


def test_every_range_has_a_reason_and_holds_its_default() -> None:
    plan = parse_plan(rules(""))
    for name, least, most, why in RANGES:
        value: object = plan
        for part in name.split("."):
            value = getattr(value, part)
        assert isinstance(value, int | float)
        assert least <= value <= most, name
        assert len(why) > 10


PATHS: dict[str, Callable[[str], str]] = {
    "workloads": lambda v: HEAD + f'workloads = "{v}"\n' + TARGET + OWN,
    "imports": lambda v: HEAD + f'imports = {{ "{v}" = "jsonl" }}\n' + TARGET + OWN,
    "target.model": lambda v: HEAD + f'[target]\nmodel = "{v}"\n' + OWN,
    "drafts.d.model": lambda v: HEAD + TARGET + OWN + f'[drafts.d]\nmodel = "{v}"\n',
    "runtimes.b.binary": lambda v: HEAD + TARGET + LLAMA + f'binary = "{v}"\n',
    "runtimes.b.python": lambda v: HEAD + TARGET + LLAMA + f'python = "{v}"\n',
    "runtimes.r.api_key_file": lambda v: HEAD + TARGET + REMOTE + f'api_key_file = "{v}"\n',
    "arrivals.file": lambda v: rules(f'[arrivals]\nkind = "recorded"\nslots = 2\nfile = "{v}"\n'),
}


@pytest.mark.parametrize("value", ["a\\u0000b", "x" * 5000, "x" * 300])
@pytest.mark.parametrize("key", PATHS)
def test_a_text_that_can_be_no_path(key: str, value: str) -> None:
    problem = fault(PATHS[key](value))
    assert f"`{key}" in problem.expected
    assert len(str(problem)) < 600


@pytest.mark.parametrize("key", ["workloads", "imports"])
def test_workloads_in_nobodys_home(key: str) -> None:
    plan = parse_plan(PATHS[key](NOBODY))
    with pytest.raises(OptionError, match=f"`{key}` to be a path; found `~nosuchuser"):
        workloads_of(plan)


@pytest.mark.parametrize("key", ["runtimes.b.binary", "runtimes.b.python"])
def test_a_program_in_nobodys_home(key: str) -> None:
    with pytest.raises(OptionError, match="whose user has no home"):
        runtimes(parse_plan(PATHS[key](NOBODY)))


def test_a_key_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, found in {
        NOBODY: "no home",
        str(tmp_path / "none"): "none`: No such file",
        str(tmp_path / "fifo"): "a pipe",
        "/dev/zero": "a device",
        str(tmp_path): "a folder",
    }.items():
        with pytest.raises(OptionError, match="api_key_file") as caught:
            key_headers(name)
        assert found in caught.value.found


def test_arrivals_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, found in {
        NOBODY: "no home",
        str(tmp_path / "none"): "No such file",
        str(tmp_path / "fifo"): "a pipe",
        "/dev/zero": "a device",
    }.items():
        with pytest.raises(InputError) as caught:
            recorded(name)
        assert found in caught.value.found
        assert "16 MiB" not in caught.value.expected


def test_a_plan_in_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OptionError, match="a plan in a regular file"):
        read_plan(tmp_path / "fifo")


URLS = [
    "http://a..b",
    "http://a..b:80",
    "http://" + "x" * 64,
    "http://" + "x." * 130 + "y",
    "http://a\\u0000b",
    "http://a b",
    "http://a:0",
    "http://" + "a" * 3000,
    "http://h/\\u001b[31m",
]


@pytest.mark.parametrize("url", URLS)
def test_a_host_that_no_resolver_takes(url: str) -> None:
    text = REMOTE.replace("http://127.0.0.1:9", url)
    problem = fault(HEAD + TARGET + text)
    assert "`runtimes.r.url` (line 7) to be an address" in problem.expected
    with pytest.raises(OptionError):
        address_of(url.encode().decode("unicode_escape"))


@pytest.mark.parametrize("url", ["http://localhost.", "http://[::1]:80", "http://bücher.example"])
def test_a_host_that_one_takes(url: str) -> None:
    assert address_of(url).host


@pytest.mark.parametrize(
    "words",
    [
        ["lab", "conformance", "http://a..b:80"],
        ["lab", "conformance", "http://127.0.0.1:9", "--api-key-file", NOBODY],
        ["lab", "init", "--runtime", "openai=http://a..b", "--out", "OUT"],
        ["lab", "run", "x" * 5000, "--dry-run"],
        ["lab", "run", NOBODY, "--dry-run"],
        ["lab", "report", "x" * 5000],
        ["lab", "gate", "x" * 300],
        ["lab", "compare", "x" * 300],
        ["inspect", "x" * 5000],
        ["inspect", NOBODY],
        ["trace", "x" * 5000],
        ["trace", NOBODY],
        ["lab", "init", "--out", "x" * 5000],
        ["run", "x" * 5000, "hello"],
        ["run", NOBODY, "hello"],
        ["chat", "x" * 5000],
        ["pull", "x" * 5000],
        ["explain", "x" * 5000],
        ["bench", "decode", "x" * 5000],
        ["bench", "rows", NOBODY],
        ["serve", "x" * 5000],
        ["serve", "--api-key-file", "x" * 5000, NOBODY],
        ["serve", "--profile", "x" * 5000, NOBODY],
    ],
    ids=lambda words: " ".join(word[:20] for word in words),
)
def test_the_command_line_ends_in_an_error(
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("slipstream.cli.app.ENDED_BY_SIGTERM", frozenset())
    with pytest.raises(SystemExit) as caught:
        main([word.replace("OUT", str(tmp_path / "plan.toml")) for word in words])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "error: expected" in told
    assert len(told) < 8000


def test_every_echo_is_bounded() -> None:
    problem = fault("k" * 500_000 + " = 1\n" + rules(""))
    assert "(500,000 characters)" in problem.found
    for more in (
        "[rules]\n" + "k" * 9000 + " = 1\n",
        f'[question]\ntext = "{"a" * 9000}"\n',
        f'[runtimes.x]\nkind = "{"a" * 9000}"\n',
        f'[[conditions]]\nname = "a"\nstage = "{"a" * 9000}"\n',
        f"[arrivals.mix]\n{'k' * 3000} = 1.0\n",
        "[tenants]\nnames = [" + ",".join(f'"t{i}"' for i in range(5000)) + "]\n",
    ):
        fault(rules(more))


def test_tenants_are_few() -> None:
    names = ", ".join(f'"{i}"' for i in range(65))
    assert "at most 64" in fault(rules(f"[tenants]\nnames = [{names}]\n")).expected


@pytest.mark.parametrize(
    ("more", "key", "found"),
    [
        ('stop = [""]\n', "`sampling.stop`", "''"),
        ("stop = [" + ",".join(f'"{i}"' for i in range(65)) + "]\n", "`sampling.stop`", ""),
        (f'stop = ["{"x" * 1001}"]\n', "`sampling.stop`", ""),
        ("sampler = { temperature = 0.7, seed = 3 }\n", "`sampling.sampler`", "`seed`"),
        ('sampler = { temperature = 0.7, stop = ["a"] }\n', "`sampling.sampler`", "`stop`"),
        ("sampler = { temperature = 0.7, logprobs = 3 }\n", "`sampling.sampler`", "`logprobs`"),
        ('sampler = { temperature = 0.7, regex = "a+" }\n', "`sampling.sampler`", "`regex`"),
        ("sampler = { temperature = nan }\n", "`sampling.sampler`", "nan"),
    ],
)
def test_what_no_request_can_carry(more: str, key: str, found: str) -> None:
    problem = fault(rules("[sampling]\n" + more))
    assert key in problem.expected
    assert found in problem.found


def program(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return [sys.executable, str(path), "--help"]


def test_a_help_text_without_end_is_cut_off(tmp_path: Path) -> None:
    endless = program(tmp_path, "while True: print('x' * 10000)\n")
    with pytest.raises(PeerRuntimeError) as caught:
        program_facts.said(endless)
    assert "program.py --help`" in caught.value.expected
    assert "over 4 MiB" in caught.value.found


@pytest.mark.parametrize(
    "text",
    [
        "import time\nprint('x', flush=True)\ntime.sleep(50)\n",
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(50)\n",
        "import os, time\nif os.fork() == 0: time.sleep(50)\nelse: print('x')\n",
    ],
    ids=["silent", "closed", "child"],
)
def test_a_program_that_does_not_end_is_killed(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_facts, "ANSWER_S", 1.0)
    begun = time.monotonic()
    with pytest.raises(PeerRuntimeError, match="no end within 1 s"):
        program_facts.said(program(tmp_path, text))
    assert time.monotonic() - begun < 20


def test_a_program_that_ends_is_heard_whole(tmp_path: Path) -> None:
    text = program_facts.said(program(tmp_path, "print('x' * 3000000)\n"))
    assert len(text.strip()) == 3_000_000
    with pytest.raises(PeerRuntimeError, match="exit code 3: why"):
        program_facts.said(program(tmp_path, "print('why')\nraise SystemExit(3)\n"))
    with pytest.raises(PeerRuntimeError, match="No such file"):
        program_facts.said([str(tmp_path / "none")])


def test_the_template_is_still_a_plan() -> None:
    assert isinstance(parse_plan(rules("")), Plan)
