"""What a server's log holds that a reader of its figures must know.

llama.cpp's lines are read as its programs print them (b11401 to b11434 and what Metal's backend
prints in public reports), Slipstream's as ``serve`` does. A log comes in pieces and is never held
whole; what is found is told once, with how often it came.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

MOST_LINE: Final = 4096
MOST_FINDINGS: Final = 64
MOST_PIPELINES: Final = 512
MOST_SETTINGS: Final = 512
MOST_IMPLEMENTATIONS: Final = 64
SHOWN: Final = 240

# name -> what a line of it looks like; the first that fits names the line
_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("router", r"router mode"),
        (
            "draft-incompatible",
            r"vocabs? (are|is) not compatible|must (closely )?match target model|"
            r"draft model is not|failed to (load|initialize|init).*(draft|speculative)|"
            r"speculative decoding not supported|exceeds the trained block size|no confidence head",
        ),
        ("drafts-degraded", r"drafts? may degrade|zero rows for them and drafts"),
        ("invalid-output", r"generated output is not valid|THE OUTPUT IS INVALID"),
        ("context-shift", r"context shift(?!.*(disabled|--))"),
        ("context-full", r"running out of context|exceeds the available context|truncated = 1"),
        (
            "context-reduced",
            r"context size.*reduced|reduc\w+ (the )?(n_ctx|context)|n_ctx\w* .*reduced",
        ),
        ("slot-erased", r"slot.*(erased|eras(e|ing) )|erased invalidated context checkpoint"),
        ("cache-full", r"failed to find (free space|a memory slot)"),
        (
            "fallback",
            r"fall(s|ing)?[ -]?back|backend offload failed|using CPU sampler|no usable GPU|"
            r"not supported by the (device|backend)|without support for GPU",
        ),
        ("memory", r"out of memory|failed to allocate|unable to allocate|\bOOM\b"),
        ("crashed", r"GGML_ASSERT|Traceback \(most recent|segmentation fault|terminate called"),
        ("replayed", r"speculative decoding will use checkpoints"),
        ("error", r"^(\d+\.){3}\d+ E |\berror:|: failed |\bfailed to "),
        ("warning", r"^warning:"),
    )
)
_ANY: Final = re.compile("|".join(rule.pattern for _, rule in _RULES), re.IGNORECASE)
_HARMLESS: Final = re.compile(r"server is listening|CORS|log_server_r|, error = 0|0 errors")

_CAPABILITY: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("gpu name", re.compile(r"GPU name:\s*(.+)")),
    ("gpu family", re.compile(r"GPU family:\s*(\w+)")),
    ("simdgroup matrix", re.compile(r"simdgroup matrix mul\.(?: support)?\s*=\s*(\w+)")),
    ("tensor API", re.compile(r"has tensor\s*=\s*(\w+)")),
    ("tensor API note", re.compile(r"(tensor API disabled[^\n]*)")),
    ("system", re.compile(r"system_info(?:: |=\")([^\"]+)")),
    ("device", re.compile(r"using device (\w+ \([^)]*\)[^-\n]*)")),
    ("flash attention", re.compile(r"Flash Attention (?:was auto, set to )?(enabled|disabled)")),
    ("build", re.compile(r"build(?::)? (\S+ \([0-9a-f]+\)[^\n]*)")),
)
_OFFLOADED: Final = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
# one compiled when it was first needed; older builds load all at their start (`metal_init: loaded`)
_PIPELINE: Final = re.compile(
    r"compile_pipeline: loaded (kernel_\w+?)(?:_[A-Za-z0-9]+=\S+)?\s+0x[0-9a-f]+ \| th_max"
)
_SPECULATIVE: Final = re.compile(r"adding speculative implementation '([\w-]+)'")
NO_SPECULATIVE: Final = "no implementations specified for speculative decoding"
STATISTICS: Final = re.compile(r"statistics\s+([\w-]+):\s+#calls")
_IMPLEMENTATIONS: Final = {"draft": "draft-simple"}
_LINE_END: Final = re.compile(rb"\r?\n|\r")
_FOLDERS: Final = re.compile(r"(?<![\w/:])/(?:[^/\s`'\"]+/)+")
_PAIR: Final = re.compile(r"(\w+)\s*=\s*'?([\w./:-]+)'?")
_SETTINGS: Final = re.compile(r"llama_context: (n_\w+|flash_attn|kv_unified)\s*=\s*(\S+)")
_CACHE: Final = re.compile(r"K \((\w+)\):.*V \((\w+)\):")
_VERBOSITY: Final = re.compile(r"verbosity = (\d+)")
_THREADS: Final = re.compile(r"n_threads = (\d+) \(n_threads_batch = (\d+)\)")
_SLOTS: Final = re.compile(r"n_slots = (\d+), n_ctx_slot = (\d+)")


@dataclass(frozen=True)
class LogScan:
    """
    Attributes:
        findings: ``NAME: line`` in the order met, with `` (N times)`` where it came more often.
        capability: what the device and the build say of themselves.
        layers_offloaded: of the target model; None = not told.
        pipelines: compute pipelines that were compiled, by their base names.
        evidence: the lines behind capability and pipelines.
        settings: values in effect, under llama.cpp's names.
        drafting: implementation -> its values in effect, as printed; empty where none is at work.
        tells_drafting: whether the log says which implementations are at work, or that none is.
    """

    findings: tuple[str, ...]
    capability: Mapping[str, str]
    layers_offloaded: int | None
    pipelines: tuple[str, ...]
    evidence: tuple[str, ...]
    settings: Mapping[str, str]
    drafting: Mapping[str, Mapping[str, str]]
    tells_drafting: bool


def scan(lines: Iterable[str]) -> LogScan:
    """Everything of a log in one pass."""
    scanner = LogScanner()
    for line in lines:
        scanner.take(line)
    return scanner.result()


class LineFeed:
    """Lines of a stream that comes in pieces; of each its first ``MOST_LINE`` bytes are kept."""

    def __init__(self) -> None:
        self._open = b""

    def lines(self, data: bytes) -> Iterator[str]:
        """Lines that end in this piece."""
        first, *others = _LINE_END.split(data)
        self._open = (self._open + first[:MOST_LINE])[:MOST_LINE]
        for other in others:
            yield self.rest()
            self._open = other[:MOST_LINE]

    def rest(self) -> str:
        """The line that is still open, which is closed by this."""
        line, self._open = self._open.decode("utf-8", "replace"), b""
        return line


class LogScanner:
    """What a log holds, line by line, in bounded memory however long it is."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._shown: dict[str, str] = {}
        self._capability: dict[str, list[str]] = {}
        self._offloaded: int | None = None
        self._pipelines: dict[str, str] = {}
        self._evidence: list[str] = []
        self._settings: dict[str, str] = {}
        self._drafting: dict[str, dict[str, str]] = {}
        self._open = ""
        self._told = False

    def feed(self, feed: LineFeed, data: bytes) -> None:
        """Lines that end in this piece of a stream."""
        for line in feed.lines(data):
            self.take(line)

    def take(self, line: str) -> None:
        """One line."""
        line = line[:MOST_LINE]
        self._take_finding(line)
        self._take_capability(line)
        self._take_settings(line)
        self._take_drafting(line)

    def _take_finding(self, line: str) -> None:
        if not _ANY.search(line) or _HARMLESS.search(line):
            return
        name = next(name for name, rule in _RULES if rule.search(line))
        text = f"{name}: {_shown(line)}"
        kind = re.sub(r"\d+", "#", text)  # lines that differ in their numbers are one finding
        if kind in self._found or len(self._found) < MOST_FINDINGS:
            self._found[kind] += 1
            self._shown.setdefault(kind, text)

    def _take_capability(self, line: str) -> None:
        for name, rule in _CAPABILITY:
            if match := rule.search(line):
                values = self._capability.setdefault(name, [])
                if match[1].strip() not in values and len(values) < 16:
                    values.append(match[1].strip())
                    self._keep(line)
        if (match := _OFFLOADED.search(line)) and self._offloaded is None:
            self._offloaded = int(match[1])
            self._keep(line)
        if (match := _PIPELINE.search(line)) and len(self._pipelines) < MOST_PIPELINES:
            self._pipelines.setdefault(match[1], line)

    def _keep(self, line: str) -> None:
        if len(self._evidence) < MOST_FINDINGS:
            self._evidence.append(_shown(line))

    def _take_settings(self, line: str) -> None:
        """The target's context comes first in a log; a draft model's values come later."""
        if (match := _SETTINGS.search(line)) and len(self._settings) < MOST_SETTINGS:
            self._settings.setdefault(match[1], match[2])
        if match := _CACHE.search(line):
            self._settings.setdefault("cache_type_k", match[1])
            self._settings.setdefault("cache_type_v", match[2])
        if match := _VERBOSITY.search(line):
            self._settings.setdefault("verbosity", match[1])
        if match := _THREADS.search(line):
            self._settings.setdefault("n_threads", match[1])
        if match := _SLOTS.search(line):
            self._settings.setdefault("n_slots", match[1])
            self._settings.setdefault("n_ctx_slot", match[2])

    def _take_drafting(self, line: str) -> None:
        if match := _SPECULATIVE.search(line):
            self._open, self._told = self._implementation(match[1]), True
        elif match := STATISTICS.search(line):
            name = match[1].replace("_", "-")
            self._implementation(_IMPLEMENTATIONS.get(name, name))
            self._told = True
        elif NO_SPECULATIVE in line:
            self._told = True
        elif self._open and ": - " in line:
            values = self._drafting[self._open]
            values.update(_PAIR.findall(line.partition(": - ")[2])[: MOST_SETTINGS - len(values)])
        elif self._open:
            self._open = ""

    def _implementation(self, name: str) -> str:
        """The name, once it has a place; empty where too many have."""
        if name not in self._drafting and len(self._drafting) >= MOST_IMPLEMENTATIONS:
            return ""
        self._drafting.setdefault(name, {})
        return name

    def result(self) -> LogScan:
        counted = [(self._shown[kind], times) for kind, times in self._found.items()]
        shown = [_shown(line) for line in self._pipelines.values()]
        return LogScan(
            findings=tuple(f"{text} ({n} times)" if n > 1 else text for text, n in counted),
            capability={name: ", ".join(values) for name, values in self._capability.items()},
            layers_offloaded=self._offloaded,
            pipelines=tuple(sorted(self._pipelines)),
            evidence=(*self._evidence, *shown[:MOST_FINDINGS]),
            settings=self._settings,
            drafting=self._drafting,
            tells_drafting=self._told,
        )


def _shown(line: str) -> str:
    """Without the time before it, so that equal lines are one finding, and without folders."""
    return _FOLDERS.sub("", re.sub(r"^(\d+\.){3}\d+ ", "", line.strip()))[:SHOWN]
