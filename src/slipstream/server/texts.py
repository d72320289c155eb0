"""Texts to ids and back: one limit, tested before any work, and long ones beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from slipstream.errors import RequestError
from slipstream.server.beside import Beside, GoOn
from slipstream.tokenizer import Tokenizer

QUICK: Final = 1000  # characters or ids that take less time than waking a thread
SLICE: Final = 4096  # ids
PARTS_FACTOR: Final = 4  # bytes of JSON that a character of a prompt may come from
ESCAPED: Final = 12  # most bytes of JSON for a character, a pair of escaped surrogates
PARTS_BYTES: Final = 1 << 16


class Texts:
    """
    Args:
        tokenizer: of the model.
        most: characters of one text, or ids of one sequence; longer ones are refused unread.
        beside: default: threads of its own.

    Attributes:
        most: see above.
    """

    def __init__(self, tokenizer: Tokenizer, most: int, beside: Beside | None = None) -> None:
        self.most = most
        self.beside = beside or Beside()
        self._tokenizer = tokenizer

    def require_text(self, characters: int) -> None:
        """
        Raises:
            RequestError: a text of that length is too long.
        """
        self._require(characters, "characters")

    def require_ids(self, count: int) -> None:
        """
        Raises:
            RequestError: so many ids are too many.
        """
        self._require(count, "token ids")

    def require_body(self, size: int) -> None:
        """
        Raises:
            RequestError: so many bytes of JSON hold a text that is too long, however it is written.
        """
        if size > ESCAPED * self.most + PARTS_BYTES:
            raise _too_long(f"a prompt of at most {self.most} characters", f"{size} bytes")

    def require_parts(self, *values: Any) -> int:
        """Refuse what cannot end in a text that is short enough, before a template reads it.

        Returns:
            Bytes of the values.
        """
        try:
            size = len(msgspec.json.encode(values))
        except (TypeError, ValueError, RecursionError):  # the template says what is wrong
            return 0
        if size > PARTS_FACTOR * self.most + PARTS_BYTES:
            expected = (
                f"messages, tools and variables of a prompt of at most {self.most} characters"
            )
            raise _too_long(expected, f"{size} bytes")
        return size

    def _require(self, found: int, what: str) -> None:
        if found > self.most:
            raise _too_long(f"a prompt of at most {self.most} {what}", f"{found}")

    async def ids(
        self, text: str, *, add_special: bool, parse_special: bool = True, continues: bool = False
    ) -> list[int]:
        """Ids of a text.

        Raises:
            RequestError: it is too long.
            TokenizerError: it cannot be encoded.
        """
        self.require_text(len(text))
        how = {"add_special": add_special, "parse_special": parse_special, "continues": continues}
        if len(text) <= QUICK:
            return self._tokenizer.encode(text, **how)
        return await self.beside.run(lambda go_on: self._ids(text, how, go_on), len(text))

    def _ids(self, text: str, how: Mapping[str, bool], go_on: GoOn) -> list[int]:
        ids: list[int] = []
        for found in self._tokenizer.encoded_slices(text, **how):
            ids += found
            go_on()
        return ids

    async def text(self, ids: Sequence[int]) -> str:
        """Text of ids of the vocabulary.

        Raises:
            RequestError: there are too many.
        """
        self.require_ids(len(ids))
        if len(ids) <= QUICK:
            return self._tokenizer.decode(ids)
        return await self.beside.run(lambda _: self._tokenizer.decode(ids), len(ids))

    async def pieces(self, ids: Sequence[int]) -> bytes:
        """JSON: a list of each id and its text, or its bytes where they are no text."""
        return await self.beside.run(lambda go_on: self._pieces(ids, go_on), len(ids))

    def _pieces(self, ids: Sequence[int], go_on: GoOn) -> bytes:
        slices: list[bytes] = []
        for start in range(0, len(ids), SLICE):
            go_on()
            found = [self._piece(token) for token in ids[start : start + SLICE]]
            slices.append(msgspec.json.encode(found)[1:-1])
        return b"[" + b",".join(slices) + b"]"

    def _piece(self, token: int) -> dict[str, Any]:
        data = self._tokenizer.token_bytes(token)
        try:
            return {"id": token, "piece": data.decode()}
        except UnicodeDecodeError:
            return {"id": token, "piece": list(data)}


def _too_long(expected: str, found: str) -> RequestError:
    return RequestError(
        expected, found, "Shorten it, or start the server with a larger `prompt_limit`."
    )
