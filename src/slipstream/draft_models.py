"""The draft models of one target model, each loaded when first wanted and shared afterwards."""

from __future__ import annotations

from threading import Lock

from slipstream import drafters as methods
from slipstream.backends.base import Progress
from slipstream.drafters.resources import DraftModel
from slipstream.errors import PairingError
from slipstream.loading import LoadedModel, load_draft_model
from slipstream.options import SpeculationOptions

MOST_KEPT = 4


class DraftModels:
    """
    Args:
        target: what they draft for.
    """

    def __init__(self, target: LoadedModel) -> None:
        self._target = target
        self._lock = Lock()
        self._kept: dict[tuple[str, int | None], DraftModel | PairingError] = {}

    def of(
        self, speculation: SpeculationOptions, progress: Progress | None = None
    ) -> DraftModel | PairingError | None:
        """The draft model of some options, loaded when first wanted; None where they use none.

        An error is the reason why it is not used, where ``draft_fallback`` allows that. Of more
        than 4 the one used longest ago is given up; engines that use it keep it.

        Args:
            progress: called with (weight bytes done, weight bytes in all).

        Raises:
            PairingError: its vocabulary is not the target's.
            InputError: the model cannot be found or run.
        """
        name = speculation.draft_model
        if name is None or not methods.reads_draft_model(speculation.type):
            return None
        with self._lock:
            found = self._load((name, speculation.draft_vocab), progress)
        if isinstance(found, PairingError) and not speculation.draft_fallback:
            raise found
        return found

    def _load(
        self, key: tuple[str, int | None], progress: Progress | None
    ) -> DraftModel | PairingError:
        found = self._kept.pop(key, None)
        if found is None:
            try:
                found = load_draft_model(key[0], self._target, key[1], progress)
            except PairingError as error:
                found = error
        self._kept[key] = found
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return found
