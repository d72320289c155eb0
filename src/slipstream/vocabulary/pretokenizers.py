"""Pre-tokenisers by name: how text is cut before byte pairs are merged.

Each is a sequence of regular expressions; every match is a word of its own and so is what lies
between matches. The expressions are those that the models were trained with (their published
``tokenizer.json``); ``default`` is llama.cpp's. Character classes are those of the `tokenizers`
library, whose Unicode version is newer than llama.cpp's: ``default`` takes three marks
added in Unicode 16 (U+1B4E, U+1B4F, U+1B7F) for punctuation, llama.cpp for other characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slipstream.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

SPACES: Final = r"\s+(?!\S)"
GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + SPACES + r"|\s+"
# Spelled out, because a case-insensitive group would also take U+017F for an s.
CONTRACTIONS: Final = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|"
LINES: Final = r"\s*[\r\n]+|" + SPACES + r"|\s+"


def _lines(letters: str, numbers: str) -> str:
    """The expression family that keeps line ends apart (Llama 3, Qwen)."""
    return (
        CONTRACTIONS
        + rf"[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{numbers}"
        + rf"| ?[^\s{letters}\p{{N}}]+[\r\n]*|"
        + LINES
    )


@dataclass(frozen=True)
class PreTokenizerRule:
    """How one pre-tokeniser cuts.

    Attributes:
        expressions: applied one after the other to the pieces of the one before.
        whole_words: a word that is a token is taken whole, whatever the merges say.
    """

    expressions: tuple[str, ...]
    whole_words: bool = False


_LLAMA3: Final = PreTokenizerRule((_lines(r"\p{L}", r"\p{N}{1,3}"),), whole_words=True)
_QWEN2: Final = PreTokenizerRule((_lines(r"\p{L}", r"\p{N}"),))

PRE_TOKENIZERS: Final[Mapping[str, PreTokenizerRule]] = MappingProxyType(
    {
        "gpt-2": PreTokenizerRule((GPT2,)),
        "smollm": PreTokenizerRule((r"\p{N}", GPT2)),
        "qwen2": _QWEN2,
        "deepseek-r1-qwen": _QWEN2,
        "qwen35": PreTokenizerRule((_lines(r"\p{L}\p{M}", r"\p{N}"),)),
        "llama-bpe": _LLAMA3,
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "default": PreTokenizerRule((r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", r"[0-9]{3}")),
    }
)


def find_rule(name: str) -> PreTokenizerRule:
    """The pre-tokeniser of that name.

    Raises:
        TokenizerError: there is none; names those there are.
    """
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        raise TokenizerError(
            expected="a pre-tokeniser (tokenizer.ggml.pre) among " + ", ".join(PRE_TOKENIZERS),
            found=ascii(name[:80]) if name else "no such key",
            remedy="This vocabulary is not supported yet; other text would be cut wrongly.",
        )
    return rule


def build_pre_tokenizer(rule: PreTokenizerRule) -> PreTokenizer:
    """The rule as a pre-tokeniser of the `tokenizers` library, bytes mapped to GPT-2's alphabet."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    cuts = [Split(Regex(expression), "isolated") for expression in rule.expressions]
    return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
