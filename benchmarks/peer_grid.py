"""The settings of speculation under which native peers are measured, once, as data.

ik_llama.cpp cuts every draft to ``--draft-max`` (16 unless set), llama.cpp only those of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NGRAM_SIMPLE: Final = tuple((n, m) for n in (4, 6, 12) for m in (8, 15, 48))
NGRAM_MOD: Final = ((24, 48, 64), (16, 1, 16))  # match, least and most tokens
DRAFT: Final = (3, 7, 15)
PLAIN: Final = "plain"


@dataclass(frozen=True)
class Setting:
    """How a peer's server is started.

    Attributes:
        flags: beside those of model, threads and context.
        drafts: whether it needs the draft model.
        remembers: whether the server learns over requests, so that a cold output needs a new one.
    """

    name: str
    flags: tuple[str, ...] = ()
    drafts: bool = False
    remembers: bool = False


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _llama() -> list[Setting]:
    simple = "--spec-type ngram-simple --spec-ngram-simple-size-n {} --spec-ngram-simple-size-m {}"
    mod = (
        "--spec-type ngram-mod --spec-ngram-mod-n-match {} --spec-ngram-mod-n-min {} "
        "--spec-ngram-mod-n-max {}"
    )
    return [
        *(Setting(f"ngram-simple {n}x{m}", _words(simple.format(n, m))) for n, m in NGRAM_SIMPLE),
        *(
            Setting("ngram-mod {}/{}/{}".format(*sizes), _words(mod.format(*sizes)), remembers=True)
            for sizes in NGRAM_MOD
        ),
        *(
            Setting(f"draft {n}", _words(f"--spec-type draft-simple --spec-draft-n-max {n}"), True)
            for n in DRAFT
        ),
    ]


def _ik_llama() -> list[Setting]:
    simple = "--spec-type ngram-simple --spec-ngram-size-n {} --spec-ngram-size-m {} --draft-max {}"
    mod = "--spec-type ngram-mod --spec-ngram-size-n {} --draft-min {} --draft-max {}"
    suffix = "--spec-type suffix --draft-max 16 --draft-min 1 --suffix-min-match-len 3"
    return [
        *(
            Setting(f"ngram-simple {n}x{m}", _words(simple.format(n, m, m)))
            for n, m in NGRAM_SIMPLE
        ),
        *(
            Setting("ngram-mod {}/{}/{}".format(*sizes), _words(mod.format(*sizes)), remembers=True)
            for sizes in NGRAM_MOD
        ),
        Setting("suffix 16/1/3", _words(suffix), remembers=True),
        Setting("suffix 16/1/3 autotune", _words(f"{suffix} --spec-autotune"), remembers=True),
        *(Setting(f"draft {n}", _words(f"--draft-max {n}"), True) for n in DRAFT),
    ]


GRID: Final[dict[str, tuple[Setting, ...]]] = {
    "llama": (Setting(PLAIN), *_llama()),
    "ik_llama": (Setting(PLAIN), *_ik_llama()),
}
COMMON: Final[dict[str, tuple[str, ...]]] = {
    "llama": ("-ngl", "0", "--no-webui"),
    "ik_llama": ("--run-time-repack",),  # without it one row is 1.5 times as slow (kernels)
}
DRAFT_MODEL_FLAG: Final = {"llama": "--spec-draft-model", "ik_llama": "--model-draft"}


def setting(peer: str, name: str) -> Setting:
    """The named setting of a peer."""
    return next(s for s in GRID[peer] if s.name == name)


def command(
    peer: str,
    program: str,
    chosen: Setting,
    *,
    model: str,
    draft: str | None,
    threads: int,
    context: int,
) -> list[str]:
    """The server's command line, all but host and port.

    Raises:
        ValueError: the setting needs a draft model and there is none.
    """
    words = [program, "-m", model, "-t", str(threads), "-tb", str(threads), "-c", str(context)]
    words += ["-np", "1", *COMMON[peer], *chosen.flags]
    if chosen.drafts:
        if draft is None:
            raise ValueError(f"{chosen.name} needs a draft model")
        words += [DRAFT_MODEL_FLAG[peer], draft]
    return words
