"""Lines of real logs, one of each kind that matters, and logs without measure."""

from __future__ import annotations

import pytest

from slipstream.lab.contract.records import Counts
from slipstream.lab.observation import log_scan
from slipstream.lab.observation.log_drafts import DraftLines
from slipstream.lab.observation.log_scan import LineFeed, LogScanner, scan

STARTED = """\
0.00.005.764 I cmn  common_param: common_params_print_info: build 1 (0c1e570) with GNU 12.2.0
0.00.005.765 I cmn  common_param: common_params_print_info: verbosity = 4 (adjust with the `-lv N`)
0.00.005.829 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : AVX2
0.02.011.113 I llama_context: n_ctx                 = 1024
0.02.011.152 I llama_context: n_batch               = 512
0.02.053.243 I llama_kv_cache: size =   22.50 MiB, K (f16):   11.25 MiB, V (q8_0):   11.25 MiB
0.02.767.978 I llama_context: n_ctx                 = 2048
0.02.942.543 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 512, kv_unified = 'false'
0.02.942.610 I spec common_specu: adding speculative implementation 'draft-simple'
0.02.942.632 I spec common_specu: - n_max=3, n_min=0, p_min=0.000000
0.02.942.653 I spec common_specu: - gpu_layers=-1, cache_k=f16, cache_v=f16, devices=[default]
0.03.057.143 I srv    load_model: speculative decoding context initialized
0.03.076.410 I srv  llama_server: listening on http://127.0.0.1:18123
0.04.196.511 I slot print_timing: id  0 | task 0 | draft acceptance = 1.00000 (8 accepted / 8)
0.04.196.561 I slot      release: id  0 | task 0 | stop processing: n_tokens = 12, truncated = 0
""".splitlines()
METAL = """\
ggml_metal_device_init: tensor API disabled for pre-M5 and pre-A19 devices
ggml_metal_device_init: GPU name:   Apple M3 Max
ggml_metal_device_init: GPU family: MTLGPUFamilyApple9  (1009)
ggml_metal_device_init: GPU family: MTLGPUFamilyCommon3 (3003)
ggml_metal_device_init: simdgroup matrix mul. = true
ggml_metal_device_init: has tensor            = false
load_tensors: offloaded 31/31 layers to GPU
ggml_metal_library_compile_pipeline: compiling pipeline: base = 'kernel_mul_mv_mma_x', name = 'y'
ggml_metal_library_compile_pipeline: loaded kernel_mul_mv_mma_q4_0_f32_nsg=4   0x10 | th_max = 1024
""".splitlines()

FINDINGS = [
    ("error", "0.00.031.626 E cmn  common_init_: something else went wrong"),
    ("draft-incompatible", "spec common: the target and draft vocabs are not compatible"),
    ("draft-incompatible", "draft model vocab must match target model to use speculation but x"),
    ("draft-incompatible", "srv: failed to initialize speculative decoding context: y"),
    ("draft-incompatible", "speculative decoding not supported by this context"),
    ("drafts-degraded", "process() did not run on every prefill ubatch. Drafts may degrade."),
    ("context-shift", "slot: id  0 | task 5 | slot context shift, n_keep = 0, n_discard = 100"),
    ("context-full", "slot      release: id  0 | stop processing: n_tokens = 255, truncated = 1"),
    ("context-full", "error: request (401 tokens) exceeds the available context size (256 tokens)"),
    ("context-reduced", "common_fit: context size reduced from 8192 to 4096"),
    ("slot-erased", "slot: id  0 | erased invalidated context checkpoint (pos_min = 3)"),
    ("cache-full", "srv: failed to find free space in the KV cache, retrying with smaller batch"),
    ("fallback", "spec: backend offload failed for seq_id=0; using CPU sampler"),
    ("fallback", "the tensor cannot be used with preferred buffer type, falling back to CPU"),
    ("memory", "ggml_backend: failed to allocate buffer of size 123"),
    ("crashed", "ggml.c:12: GGML_ASSERT(x) failed"),
    ("crashed", "Traceback (most recent call last):"),
    ("invalid-output", "synthetic acceptance is enabled; generated output is not valid"),
    ("router", "srv  llama_server: starting server in router mode. models will be"),
    ("warning", "warning: something that a reader should know"),
]


@pytest.mark.parametrize(("name", "line"), FINDINGS)
def test_a_line_that_a_reader_must_know(name: str, line: str) -> None:
    assert scan([*STARTED, line]).findings[0].startswith(f"{name}: ")


def test_a_good_start_has_no_findings() -> None:
    found = scan(STARTED)
    assert found.findings == ()
    assert found.drafting == {
        "draft-simple": {
            "n_max": "3", "n_min": "0", "p_min": "0.000000", "gpu_layers": "-1",
            "cache_k": "f16", "cache_v": "f16",
        }
    }  # fmt: skip
    assert found.tells_drafting
    assert found.capability["build"] == "1 (0c1e570) with GNU 12.2.0"
    wanted = {"n_ctx": "1024", "n_threads": "2", "n_slots": "2", "n_ctx_slot": "512"}
    assert wanted.items() <= found.settings.items()
    assert (found.settings["cache_type_k"], found.settings["cache_type_v"]) == ("f16", "q8_0")


def test_a_log_that_says_that_nothing_drafts() -> None:
    line = "I spec common_specu: no implementations specified for speculative decoding"
    assert (scan([line]).drafting, scan([line]).tells_drafting) == ({}, True)
    assert not scan([]).tells_drafting


def test_metal_s_own_lines() -> None:
    found = scan(METAL)
    assert found.capability["gpu family"] == "MTLGPUFamilyApple9, MTLGPUFamilyCommon3"
    assert found.capability["simdgroup matrix"] == "true"
    assert found.capability["tensor API"] == "false"
    assert found.layers_offloaded == 31
    assert found.pipelines == ("kernel_mul_mv_mma_q4_0_f32",)
    assert any("loaded kernel_mul_mv_mma" in line for line in found.evidence)


@pytest.mark.parametrize(
    "line",
    [
        "cmn  common_param: system_info: n_threads = 2 | CPU : AVX2 = 1 |",
        'INFO [ main] system info | tid="1" n_threads=1 system_info="AVX2 = 1 | FMA = 1 | "',
    ],
)
def test_instruction_sets_as_two_programs_tell_them(line: str) -> None:
    told = scan([line]).capability["system"]
    assert "AVX2 = 1" in told
    assert '"' not in told


def test_an_announced_pipeline_is_not_a_compiled_one() -> None:
    assert scan(METAL[:-1]).pipelines == ()
    older = "ggml_metal_init: loaded kernel_mul_mv_q4_0_f32   0x155606aa0 | th_max = 1024"
    assert scan([older]).pipelines == ()  # it loads every kernel, used or not


def test_lines_that_differ_in_numbers_are_one_finding() -> None:
    lines = [f"0.00.0{n % 10}.000 E slot: id {n} | task {n} | failed to decode" for n in range(500)]
    assert len(scan(lines).findings) == 1
    assert scan(lines).findings[0].endswith("(500 times)")


IK = """\
no implementations specified for speculative decoding
slot         init: id  0 | task -1 | speculative decoding context not initialized
""".splitlines()
DRAFTED = """\
draft acceptance rate = 1.00000 (   17 accepted /    20 generated)
statistics ngram_simple: #calls(b,g,a) = 1 3 3, #gen drafts = 3, #acc drafts = 3
0.04.196.511 I slot print_timing: id  0 | draft acceptance = 0.57576 ( 171 accepted / 297 generated)
statistics draft: #calls(b,g,a) = 1 6 6, #gen drafts = 6, #acc drafts = 6
"""


def test_drafting_as_logs_alone_tell_it() -> None:
    lines = DraftLines()
    assert lines.counts() == Counts()  # nothing came yet
    lines.take(b"calm\n")
    assert lines.counts() == Counts()  # nothing is told, so it is not 0
    lines.take(DRAFTED[:40].encode())
    assert lines.counts() == Counts()
    lines.take(DRAFTED[40:].encode())
    assert lines.counts() == Counts(drafted=317, accepted=188, source="counters")
    assert lines.counts() == Counts(drafted=317, accepted=188, source="counters")


def test_a_log_that_says_that_nothing_drafts_counts_nothing() -> None:
    lines = DraftLines()
    lines.take("\n".join([*IK, ""]).encode())
    assert lines.counts() == Counts(drafted=0, accepted=0, source="counters")


def test_folders_are_left_out_of_what_is_shown() -> None:
    line = "/home/me/src/x/./fa.h:1157: GGML_ASSERT(S > 0) failed at http://127.0.0.1:80/a/b"
    wanted = "crashed: fa.h:1157: GGML_ASSERT(S > 0) failed at http://127.0.0.1:80/a/b"
    assert scan([line]).findings == (wanted,)


def test_statistics_tell_what_drafts() -> None:
    assert set(scan(DRAFTED.splitlines()).drafting) == {"ngram-simple", "draft-simple"}
    assert (scan(IK).drafting, scan(IK).tells_drafting) == ({}, True)


def test_findings_and_lines_are_bounded() -> None:
    words = ("".join(chr(97 + (n // 26**k) % 26) for k in range(4)) for n in range(1000))
    found = scan(f"error: {word} {'x' * 10_000}" for word in words).findings
    assert len(found) == log_scan.MOST_FINDINGS
    assert max(map(len, found)) < log_scan.SHOWN + 40


def test_lines_come_in_pieces() -> None:
    feed = LineFeed()
    assert list(feed.lines(b"a\nb")) == ["a"]
    assert list(feed.lines(b"c\r\nd\re")) == ["bc", "d"]
    assert feed.rest() == "e"
    assert feed.rest() == ""


def test_a_line_without_end_is_held_as_far_as_it_is_read() -> None:
    feed = LineFeed()
    for _ in range(100):
        assert list(feed.lines(b"x" * 10_000)) == []
    assert feed.rest() == "x" * log_scan.MOST_LINE


def test_bytes_that_are_no_text() -> None:
    scanner, feed = LogScanner(), LineFeed()
    scanner.feed(feed, b"\xff\xfe\x00error: a\xff fault\n")
    assert len(scanner.result().findings) == 1


def test_what_a_log_makes_up_is_bounded() -> None:
    lines = []
    for n in range(1000):
        lines.append(f"adding speculative implementation 'made-{n}'")
        lines += [f"x: - a{n}b{m}={m}" for m in range(3)]
        lines.append(f"llama_context: n_{n} = {n}")
    lines.append("adding speculative implementation 'made-0'")
    lines += [f"x: - a{n}={n}, b{n}={n}" for n in range(1000)]
    found = scan(lines)
    assert len(found.drafting) == log_scan.MOST_IMPLEMENTATIONS
    assert len(found.settings) <= log_scan.MOST_SETTINGS + 8
    assert max(map(len, found.drafting.values())) <= log_scan.MOST_SETTINGS
