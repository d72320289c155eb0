"""The content of lookup files of ngram-cache, in llama.cpp's format; not trusted.

A file is a run of records of little-endian int32: 4 tokens of an n-gram, oldest first, padded with
-1; the number of its followers; for each follower its token and count. A valid record has at least
one follower, and counts from 1.
"""

from __future__ import annotations

from array import array
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from slipstream.drafters.lookup_rows import Rows, joined
from slipstream.drafters.ngram_counts import MOST_TOKENS, TOKEN_BITS
from slipstream.errors import InputError

WORD_BYTES = 4
HEAD_WORDS = MOST_TOKENS + 1


def decode(content: bytes, vocabulary: int, name: str) -> Rows:
    """
    Args:
        vocabulary: token ids are below it.
        name: of the file, for errors.

    Raises:
        InputError: the content is malformed or of another vocabulary.
    """
    if len(content) % WORD_BYTES:
        refuse(name, "whole int32 numbers", f"{len(content)} bytes")
    words = np.frombuffer(content, "<i4").astype(np.int32, copy=False)
    records = np.array(_records(words, name), np.int64)
    grams = words[records[:, None] + np.arange(MOST_TOKENS)]  # [records, 4]
    _check_grams(grams, records, vocabulary, name)
    numbers = words[records + MOST_TOKENS].astype(np.int64)
    record = np.repeat(np.arange(len(records)), numbers)  # [pairs]
    within = np.arange(len(record)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    places = records[record] + HEAD_WORDS + 2 * within
    followers, counts = words[places], words[places + 1]
    known = (followers >= 0) & (followers < vocabulary)
    _check(known, places, followers, f"token ids below {vocabulary}", name)
    _check(counts > 0, places + 1, counts, "counts from 1", name)
    high, low = _halves(grams)
    return joined(high[record], low[record], followers, counts.astype(np.int64))


def refuse(name: str, expected: str, found: str) -> NoReturn:
    raise InputError(
        f"{expected} in the lookup file `{name}`",
        found,
        "Use a lookup file made for this model, or leave the option out.",
    )


def _records(words: NDArray[np.int32], name: str) -> array[int]:
    """Where each record begins, in words."""
    records = array("q")
    view, place, end = words.data, 0, len(words)
    while place < end:
        if place + HEAD_WORDS > end:
            refuse(name, "whole records", f"one cut off at byte {place * WORD_BYTES}")
        followers = view[place + MOST_TOKENS]
        stop = place + HEAD_WORDS + 2 * followers
        if followers < 1 or stop > end:
            fit = (end - place - HEAD_WORDS) // 2
            where = (place + MOST_TOKENS) * WORD_BYTES
            refuse(name, f"1 to {fit} followers", f"{followers} at byte {where}")
        records.append(place)
        place = stop
    return records


def _check_grams(
    grams: NDArray[np.int32], records: NDArray[np.int64], vocabulary: int, name: str
) -> None:
    present = grams >= 0
    valid = present & (grams < vocabulary)
    valid[:, 1:] &= present[:, :-1]
    valid[:, 1:] |= grams[:, 1:] == -1
    places = records[:, None] + np.arange(MOST_TOKENS)
    expected = f"n-grams of 1 to 4 token ids below {vocabulary}, then -1,"
    _check(valid.ravel(), places.ravel(), grams.ravel(), expected, name)


def _check(
    valid: NDArray[np.bool_],
    places: NDArray[np.int64],
    values: NDArray[np.int32],
    expected: str,
    name: str,
) -> None:
    if not valid.all():
        first = int(np.argmin(valid))
        refuse(name, expected, f"{values[first]} at byte {int(places[first]) * WORD_BYTES}")


def _halves(grams: NDArray[np.int32]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """High and low half of each n-gram as one integer.

    Args:
        grams: [n-grams, 4], padded with -1.
    """
    parts = _flipped(grams).astype(np.int64) + 1  # newest token first, 0 = none
    one, two, three, four = parts.astype(np.uint64).T
    bits = np.uint64(TOKEN_BITS)
    return four << bits | three, two << bits | one


def _flipped(grams: NDArray[np.int32]) -> NDArray[np.int32]:
    """The tokens of each row in reverse order, its padding still behind them."""
    sizes = (grams >= 0).sum(axis=1, keepdims=True)
    order = sizes - 1 - np.arange(MOST_TOKENS)
    turned = np.take_along_axis(grams, np.maximum(order, 0), axis=1)
    return np.where(order >= 0, turned, np.int32(-1))


def encode(rows: Rows) -> bytes:
    """The content that ``decode`` gives back."""
    first = rows.grams()
    numbers = np.diff(np.append(first, len(rows)))
    words = np.empty(HEAD_WORDS * len(first) + 2 * len(rows), "<i4")
    heads = HEAD_WORDS * np.arange(len(first)) + 2 * first
    words[heads[:, None] + np.arange(MOST_TOKENS)] = _flipped(_parts(rows, first))
    words[heads + MOST_TOKENS] = numbers
    pairs = HEAD_WORDS * (np.repeat(np.arange(len(first)), numbers) + 1)
    pairs += 2 * np.arange(len(rows))
    words[pairs], words[pairs + 1] = rows.followers, rows.counts
    return words.tobytes()


def _parts(rows: Rows, chosen: NDArray[np.int64]) -> NDArray[np.int32]:
    """int32 [chosen, 4]: tokens of n-grams, newest first, padded with -1."""
    bits, mask = np.uint64(TOKEN_BITS), np.uint64((1 << TOKEN_BITS) - 1)
    high, low = rows.high[chosen], rows.low[chosen]
    parts = np.stack((low & mask, low >> bits, high & mask, high >> bits), axis=1)
    return (parts.astype(np.int64) - 1).astype(np.int32)
