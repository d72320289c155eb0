"""Whether a draft model belongs to a target: four parts, each confirmed by a named source or not.

That a file loads proves nothing. Here the two files are compared; what they do not hold can be
confirmed by a source that the plan's author names (``Artifact.pairing``), but a source never
outweighs files that contradict it. Sources: docs/decisions/0010-lab.md; llama.cpp's checks and the
keys of trained heads as methods.md 1.2 to 1.9 describes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slipstream.chat import ChatTemplate
from slipstream.errors import SlipstreamError
from slipstream.gguf import GGUFFile, TensorInfo
from slipstream.lab.contract.manifest import Pairing
from slipstream.lab.contract.plan import Artifact
from slipstream.lab.freezing.model_facts import TEMPLATE_KEY, shards_of, tokenizer_digest
from slipstream.lab.planning.plan_checks import PAIRING_PARTS
from slipstream.models import supported_architectures
from slipstream.tokenizer import Tokenizer, build_tokenizer

LLAMA_SIZE_LIMIT: Final = 128
"""Most ids by which two vocabularies may differ in llama.cpp, which else drafts nothing."""
HEAD_ARCHITECTURES: Final[Mapping[str, tuple[str, ...]]] = {
    "draft-eagle3": ("eagle3",),
    "draft-dflash": ("dflash",),
    "draft-dspark": ("dflash",),
    "medusa": ("medusa",),
}
_KINDS: Final = ("model", "pre", "add_bos_token", "add_eos_token")
_ENDS: Final = ("bos", "eos")
_BOUNDARIES: Final = ("bos_token_id", "eos_token_id")

Messages = Sequence[Mapping[str, Any]]


def pair(
    key: str,
    target: GGUFFile,
    draft: GGUFFile,
    artifact: Artifact,
    *,
    methods: Collection[str],
    kinds: Collection[str],
    conversations: Sequence[Messages],
) -> Pairing:
    """The pairing of one draft model.

    Args:
        key: the plan's, of ``drafts``.
        artifact: what the plan's author says of it.
        methods: of the conditions that use it.
        kinds: of the runtimes that load it.
        conversations: messages of the run's prompts, for templates that differ as texts.
    """
    comparison = _Comparison(target, draft, frozenset(methods), frozenset(kinds), conversations)
    found = {part: getattr(comparison, part)() for part in PAIRING_PARTS}
    named = {part: artifact.pairing.get(part, "") for part in PAIRING_PARTS}
    return Pairing(draft=key, **{part: _judged(found[part], named[part]) for part in PAIRING_PARTS})


def has_heads(file: GGUFFile) -> bool:
    """Whether a file holds heads of draft-mtp, under the name that llama.cpp looks for."""
    return any(".nextn." in name for name in file.tensors)


def unpaired(key: str, reason: str) -> Pairing:
    """A pairing of which nothing can be confirmed."""
    return Pairing(draft=key, **dict.fromkeys(PAIRING_PARTS, reason))


class _Undecided(str):
    """A reason why the files alone do not tell; a named source may."""

    __slots__ = ()


def _judged(found: str, source: str) -> str:
    if source and isinstance(found, _Undecided):
        return f"confirmed: {source} (named by the plan; the files alone: {found})"
    return str(found)


class _Comparison:
    """What two files say of each other; every part is ``confirmed: SOURCE`` or a reason."""

    def __init__(
        self,
        target: GGUFFile,
        draft: GGUFFile,
        methods: frozenset[str],
        kinds: frozenset[str],
        conversations: Sequence[Messages],
    ) -> None:
        self._target, self._draft = target, draft
        self._methods, self._kinds = methods, kinds
        self._conversations = conversations
        self._heads = bool(methods) and not methods & {"draft-simple", "auto"}

    def tokenizer(self) -> str:
        target, draft = (tokenizer_digest(file.metadata) for file in (self._target, self._draft))
        if target == draft:
            return f"confirmed: equal tokenizer.ggml.* of both files, SHA-256 {target}"
        if self._heads and draft == "unknown":
            return _Undecided("the drafter's file has no tokenizer; it reads the target's ids")
        for key in self._keys():
            ours, theirs = (f.metadata.get(key) for f in (self._target, self._draft))
            if repr(ours) != repr(theirs):
                return f"{key} is {_shown(ours)} in the target, {_shown(theirs)} in the draft"
        return f"confirmed: equal {', '.join(self._keys())} of both files"

    def _keys(self) -> tuple[str, ...]:
        added = [self._target.metadata.get(f"tokenizer.ggml.add_{end}_token") for end in _ENDS]
        ends = [key for key, there in zip(_BOUNDARIES, added, strict=True) if there]
        return tuple(f"tokenizer.ggml.{key}" for key in (*_KINDS, *ends))

    def vocabulary(self) -> str:
        if self._heads and "d2t" in self._draft.tensors:
            return self._mapped()
        ours, theirs = (_tokens(file) for file in (self._target, self._draft))
        if not theirs and self._heads:
            return _Undecided("the drafter's file lists no tokens and has no map (d2t)")
        if not ours or not theirs:
            return "a file lists no tokens"
        size = min(len(ours), len(theirs))
        differing = [i for i in range(size) if ours[i] != theirs[i]]
        if differing:
            first = differing[0]
            texts = f"{_shown(ours[first])} in the target, {_shown(theirs[first])} in the draft"
            return f"{len(differing)} ids have another text, the first is id {first}: {texts}"
        difference = abs(len(ours) - len(theirs))
        if difference > LLAMA_SIZE_LIMIT and "llama-server" in self._kinds:
            sizes = f"{len(ours)} and {len(theirs)} ids"
            return f"{sizes}: llama.cpp refuses more than {LLAMA_SIZE_LIMIT} of difference"
        rest = f"; {difference} ids of the larger are never drafted" if difference else ""
        return f"confirmed: equal texts of ids 0 to {size - 1} in both files{rest}"

    def _mapped(self) -> str:
        """A reduced vocabulary whose ids are looked up in a tensor of absolute target ids."""
        info = self._draft.tensors["d2t"]
        if not info.nbytes or info.shape != (info.nbytes // 8,):
            return "the draft's tensor d2t is no list of 64-bit ids"
        ids = _ids(self._draft, info)
        size = len(_tokens(self._target))
        if int(ids.min()) < 0 or int(ids.max()) >= size or len(np.unique(ids)) != len(ids):
            return f"the draft's tensor d2t names ids that are not the target's {size}, or twice"
        return f"confirmed: tensor d2t maps {len(ids)} draft ids to different target ids"

    def template(self) -> str:
        ours, theirs = (_template_text(file) for file in (self._target, self._draft))
        if not ours:
            return _Undecided("the target's file has no chat template")
        if ours == theirs:
            return f"confirmed: equal {TEMPLATE_KEY} of both files"
        if not theirs:
            return _Undecided("the draft's file has no chat template")
        return self._rendered()

    def _rendered(self) -> str:
        """Templates that differ as texts may still write the run's own prompts alike."""
        if not self._conversations:
            return _Undecided("the templates differ and no prompt was there to render")
        try:
            pairs = [(a, b) for a, b in self._renderings() if a != b]
        except SlipstreamError as problem:
            return _Undecided(f"the templates differ; rendering the prompts failed: {problem}")
        if pairs:
            many = f"{len(pairs)} of {len(self._conversations)}"
            return _Undecided(f"the templates write {many} of the run's prompts differently")
        many = str(len(self._conversations))
        return f"confirmed: both files' {TEMPLATE_KEY} write the run's {many} prompts alike"

    def _renderings(self) -> Iterator[tuple[str, str]]:
        ours, theirs = (_template(file) for file in (self._target, self._draft))
        for messages in self._conversations:
            yield ours.render(messages), theirs.render(messages)

    def architecture(self) -> str:
        name = str(self._draft.metadata.get("general.architecture", ""))
        faults = [
            reason for method in sorted(self._methods) if (reason := self._unfit(method, name))
        ]
        if faults:
            return faults[0]
        if self._heads:
            same = self._draft.path.samefile(self._target.path)
            own = "confirmed: the drafter is a part of the target's own file"
            return own if same else self._widths(name)
        if "slipstream" in self._kinds and name not in supported_architectures():
            return f"general.architecture {_shown(name)} of the draft is none that Slipstream runs"
        return f"confirmed: general.architecture {name} of the draft; it reads token ids alone"

    def _unfit(self, method: str, name: str) -> str:
        wanted = HEAD_ARCHITECTURES.get(method)
        if wanted and name not in wanted:
            return f"{method} takes architecture {' or '.join(wanted)}, the draft is {name}"
        if method == "draft-mtp" and not has_heads(self._draft):
            return "draft-mtp takes a file with nextn tensors; the draft's has none"
        markov = "markov_w1.weight" in self._draft.tensors
        if method in ("draft-dflash", "draft-dspark") and markov != (method == "draft-dspark"):
            there = "has" if markov else "lacks"
            return f"the draft {there} markov_w1.weight, which tells draft-dspark from draft-dflash"
        if method == "draft-simple" and name in ("eagle3", "dflash", "medusa"):
            return f"the draft is a trained head ({name}), no model of its own"
        return ""

    def _widths(self, name: str) -> str:
        """A head reads hidden states of the width that it was trained on."""
        width = _width(self._target)
        kinds = ("target_hidden_size", "embedding_length_out", "embedding_length")
        keys = [f"{name}.{kind}" for kind in kinds]
        key = next((key for key in keys if key in self._draft.metadata), "")
        found = self._draft.metadata.get(key)
        if width is None or not isinstance(found, int):
            return _Undecided("the files do not tell the width of the hidden states")
        if found != width:
            return f"{key} is {_shown(found)}, the target's hidden states have {width}"
        return _Undecided(f"{key} {width} fits, but no file names the target it was trained for")


def _ids(file: GGUFFile, info: TensorInfo) -> NDArray[np.int64]:
    """A tensor of 64-bit ids, a type that no kernel of ours reads."""
    with shards_of(file.path)[info.shard].open("rb") as stream:
        stream.seek(info.offset)
        return np.frombuffer(stream.read(info.nbytes), "<i8")


def _tokens(file: GGUFFile) -> Sequence[str]:
    found = file.get_string_array("tokenizer.ggml.tokens", default=None)
    return () if found is None else found[:]


def _width(file: GGUFFile) -> int | None:
    name = file.get_string("general.architecture", default="")
    return file.get_int(f"{name}.embedding_length", default=None)


def _template_text(file: GGUFFile) -> str:
    text = file.metadata.get(TEMPLATE_KEY)
    return text if isinstance(text, str) else ""


def _template(file: GGUFFile) -> ChatTemplate:
    tokenizer: Tokenizer = build_tokenizer(file.metadata)
    return ChatTemplate.from_metadata(file.metadata, tokenizer)


def _shown(value: object) -> str:
    return f"{value!r:.60}"
