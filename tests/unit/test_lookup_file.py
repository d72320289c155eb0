"""Lookup files: llama.cpp's format, hostile files, updates by several processes."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import fake_engine, fake_resources, run
from slipstream.drafters import lookup_file
from slipstream.drafters.base import DraftRequest
from slipstream.drafters.lookup_file import read, update
from slipstream.drafters.lookup_format import decode, encode
from slipstream.drafters.lookup_rows import merged, rows_of
from slipstream.drafters.lookup_table import LookupTable
from slipstream.drafters.ngram_cache import NgramCache, create
from slipstream.drafters.ngram_counts import NgramCounts, grams_of
from slipstream.errors import InputError, OperationError
from slipstream.options import SpeculationOptions

VOCABULARY = 24


def gram(*tokens: int) -> int:
    return grams_of(tokens)[-1]


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


ONE = words(3, 4, -1, -1, 2, 5, 7, 6, 1)  # after 3 4: 5 seven times, 6 once
FILE = ONE + words(3, -1, -1, -1, 1, 4, 8) + words(1, 2, 3, 4, 1, 5, 2)


def learned(*tokens: int) -> NgramCounts:
    counts = NgramCounts()
    counts.learn(tokens, ())
    return counts


# format


def test_a_file_by_hand() -> None:
    table = LookupTable(decode(FILE, VOCABULARY, "f"))
    assert len(table) == 3
    assert table.followers(gram(3, 4)) == {5: 7, 6: 1}
    assert table.totals(gram(3, 4)) == (8, 7)
    assert [table.count(gram(3, 4), token) for token in (4, 5, 6, 7)] == [0, 7, 1, 0]
    assert table.followers(gram(3)) == {4: 8}
    assert table.followers(gram(1, 2, 3, 4)) == {5: 2}
    assert table.followers(gram(4, 3)) == {}
    assert table.count(gram(4, 3), 1) == 0
    assert encode(decode(ONE, VOCABULARY, "f")) == ONE


def test_records_of_one_ngram_add_up() -> None:
    table = LookupTable(decode(ONE + ONE + words(3, 4, -1, -1, 1, 9, 1), VOCABULARY, "f"))
    assert table.followers(gram(3, 4)) == {5: 14, 6: 2, 9: 1}
    full = words(1, -1, -1, -1, 2, 5, (1 << 31) - 1, 5, 3)
    assert LookupTable(decode(full, VOCABULARY, "f")).followers(gram(1)) == {5: (1 << 31) - 1}


def test_an_empty_file_is_valid() -> None:
    rows = decode(b"", VOCABULARY, "f")
    assert (len(rows), encode(rows)) == (0, b"")
    table = LookupTable(rows)
    assert (len(table), table.totals(gram(1)), table.followers(gram(1))) == (0, (0, 0), {})


@given(
    st.dictionaries(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4).map(tuple),
        st.dictionaries(
            st.integers(0, VOCABULARY - 1), st.integers(1, (1 << 31) - 1), min_size=1, max_size=4
        ),
        max_size=12,
    )
)
def test_round_trip(counted: dict[tuple[int, ...], dict[int, int]]) -> None:
    pairs = [(gram(*key), token, count) for key, f in counted.items() for token, count in f.items()]
    rows = rows_of(NgramCounts.of(pairs))
    content = encode(rows)
    again = decode(content, VOCABULARY, "f")
    assert encode(again) == content
    for name in ("high", "low", "followers", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(rows, name))
    table = LookupTable(again)
    assert len(table) == len(counted)
    for key, followers in counted.items():
        assert table.followers(gram(*key)) == followers


def test_merging_is_bounded_and_forgets_what_is_rare_and_old() -> None:
    old = rows_of(learned(1, 2, 1, 2, 1, 2, 3))
    new = rows_of(learned(5, 6))
    table = LookupTable(merged(old, new, most=len(old) + 1))
    assert table.followers(gram(1)) == {2: 3}
    table = LookupTable(merged(old, new, most=len(old)))
    assert table.followers(gram(1)) == {2: 1}
    assert table.followers(gram(2)) == {1: 1}
    assert table.followers(gram(5)) == {6: 1}
    many = rows_of(learned(*range(20)))
    assert len(merged(old, many, most=10)) <= 10


# hostile files

HOSTILE: dict[str, tuple[bytes, str]] = {
    "half a number": (ONE[:-2], "whole int32 numbers"),
    "a cut head": (ONE + words(1, 2), "one cut off at byte 36"),
    "no follower count": (words(1, 2, -1, -1), "cut off at byte 0"),
    "cut followers": (ONE[:-8], "1 to 1 followers.*2 at byte 16"),
    "no followers": (words(1, 2, -1, -1, 0) + ONE, "0 at byte 16"),
    "a negative number of followers": (words(1, 2, -1, -1, -5) + ONE, "-5 at byte 16"),
    "an absurd number of followers": (words(1, 2, -1, -1, (1 << 31) - 1, 1, 1), "2147483647"),
    "a follower outside the vocabulary": (words(1, -1, -1, -1, 1, 24, 1), "24 at byte 20"),
    "a negative follower": (words(1, -1, -1, -1, 1, -1, 1), "-1 at byte 20"),
    "a count of 0": (words(1, -1, -1, -1, 1, 5, 0), "counts from 1.*0 at byte 24"),
    "a negative count": (words(1, -1, -1, -1, 1, 5, -7), "-7 at byte 24"),
    "an n-gram of nothing": (words(-1, -1, -1, -1, 1, 5, 1), "-1 at byte 0"),
    "a gap in an n-gram": (words(1, -1, 2, -1, 1, 5, 1), "2 at byte 8"),
    "a negative token": (words(1, -2, -1, -1, 1, 5, 1), "-2 at byte 4"),
    "a token outside the vocabulary": (ONE + words(1, 99, -1, -1, 1, 5, 1), "99 at byte 40"),
    "text": (b"this is not a lookup file, but words", "followers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_refused_by_place(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    for option in ("ngram_cache_static", "ngram_cache_dynamic"):
        with pytest.raises(InputError, match=message) as caught:
            create(SpeculationOptions(**{option: str(path)}), fake_resources())
        assert str(path) in str(caught.value)
    with pytest.raises(InputError, match=message):
        update(path, VOCABULARY, learned(1, 2))
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file.bin"]


@given(st.binary(max_size=80))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    try:
        rows = decode(content, VOCABULARY, "f")
    except InputError:
        return
    assert rows.counts.min(initial=1) > 0
    assert 0 <= rows.followers.min(initial=0) <= rows.followers.max(initial=0) < VOCABULARY


@given(st.integers(0, len(FILE) // 4 - 1), st.integers(-(1 << 31), (1 << 31) - 1))
def test_any_number_changed_is_read_or_refused(place: int, value: int) -> None:
    content = FILE[: 4 * place] + words(value) + FILE[4 * place + 4 :]
    try:
        rows = decode(content, VOCABULARY, "f")
    except InputError:
        return
    assert encode(decode(encode(rows), VOCABULARY, "f")) == encode(rows)


def test_a_file_of_10_gb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as stream:
        stream.truncate(10 << 30)
    for option in ("ngram_cache_static", "ngram_cache_dynamic"):
        with pytest.raises(InputError, match=r"at most \d+ bytes.*10737418240"):
            create(SpeculationOptions(**{option: str(path)}), fake_resources())


def no_file(path: Path) -> None:
    del path


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [no_file, Path.mkdir, pipe, loop])
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(InputError, match="thing"):
        create(SpeculationOptions(ngram_cache_static=str(path)), fake_resources())
    if make is not no_file:
        with pytest.raises(InputError):
            create(SpeculationOptions(ngram_cache_dynamic=str(path)), fake_resources())


@pytest.mark.parametrize("option", ["ngram_cache_static", "ngram_cache_dynamic"])
@pytest.mark.parametrize("name", ["missing/file.bin", "a\0b"])
def test_impossible_paths_are_refused(tmp_path: Path, option: str, name: str) -> None:
    with pytest.raises(InputError):
        create(SpeculationOptions(**{option: f"{tmp_path}/{name}"}), fake_resources())


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(FILE)
    path.chmod(0o444)
    with pytest.raises(InputError, match="read-only"):
        create(SpeculationOptions(ngram_cache_dynamic=str(path)), fake_resources())
    create(SpeculationOptions(ngram_cache_static=str(path)), fake_resources())
    assert path.read_bytes() == FILE


def test_a_static_file_needs_ngrams_of_two(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(words(3, -1, -1, -1, 1, 4, 8))
    with pytest.raises(InputError, match="n-grams of two tokens"):
        create(SpeculationOptions(ngram_cache_static=str(path)), fake_resources())
    path.write_bytes(FILE)
    static = create(SpeculationOptions(ngram_cache_static=str(path)), fake_resources()).static
    assert static is not None
    assert len(static) == 1
    assert static.followers(gram(3, 4)) == {5: 7, 6: 1}


# updates


def dynamic(path: Path) -> NgramCache:
    return create(SpeculationOptions(ngram_cache_dynamic=str(path)), fake_resources())


def test_a_closed_sequence_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.bin"
    drafter = dynamic(path)
    drafter.open(0, [1, 2, 3], "a")
    assert not path.exists()
    drafter.close(0)
    expected = {gram(1): {2: 1}, gram(2): {3: 1}, gram(1, 2): {3: 1}}
    table = LookupTable(read(path, VOCABULARY))
    assert {key: table.followers(key) for key in expected} == expected
    assert len(table) == 3
    drafter.open(0, [1, 2, 3], "b")
    drafter.close(0)
    assert LookupTable(read(path, VOCABULARY)).followers(gram(1, 2)) == {3: 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["dynamic.bin"]


def test_an_engine_updates_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.bin"
    [output] = run(fake_engine(dynamic(path)), [1, 2, 3], max_tokens=6)
    table = LookupTable(read(path, VOCABULARY))
    text = [1, 2, 3, *output.ids]
    for place in range(1, len(text) - 2):  # the tokens of the last step are not learned
        assert text[place] in table.followers(gram(text[place - 1]))
    assert not output.statistics.rejected_drafts


def test_what_is_in_the_file_is_seen_by_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.bin"
    begun = [10, 11, 12]
    writer = dynamic(path)
    writer.open(0, [*range(10, 20)] * 2, "a")
    writer.close(0)
    asked = [
        (writer, "b", False),  # not what others taught since it was made
        (writer, "a", True),
        (dynamic(path), "b", True),
        (NgramCache(), "a", False),
    ]
    for sequence, (drafter, scope, drafts) in enumerate(asked, start=1):
        drafter.open(sequence, begun, scope)
        [draft] = drafter.draft([DraftRequest(sequence, begun, 8)])
        assert (len(draft) > 0) == drafts, sequence
    writer.forget(None)
    [draft] = writer.draft([DraftRequest(2, begun, 8)])
    assert len(draft) == 0
    assert LookupTable(read(path, VOCABULARY)).totals(gram(10, 11, 12)) == (2, 2)


def test_an_update_keeps_mode_and_link(tmp_path: Path) -> None:
    path, link = tmp_path / "real.bin", tmp_path / "link.bin"
    path.write_bytes(FILE)
    path.chmod(0o644)
    link.symlink_to(path)
    (tmp_path / "real.bin.new").write_bytes(b"left by a crash")
    update(link, VOCABULARY, learned(3, 4))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert LookupTable(read(path, VOCABULARY)).followers(gram(3)) == {4: 9}
    assert sorted(os.listdir(tmp_path)) == ["link.bin", "real.bin"]


def test_a_crash_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dynamic.bin"
    path.write_bytes(FILE)

    def crash(descriptor: int) -> None:
        del descriptor
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lookup_file.os, "fsync", crash)
    with pytest.raises(OperationError, match="No space left"):
        update(path, VOCABULARY, learned(1, 2))
    assert path.read_bytes() == FILE
    monkeypatch.undo()
    update(path, VOCABULARY, learned(1, 2))
    assert LookupTable(read(path, VOCABULARY)).followers(gram(1)) == {2: 1}


def test_a_held_lock_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dynamic.bin"
    monkeypatch.setattr(lookup_file, "LOCK_WAIT_S", 0.02)
    with (
        lookup_file._locked(tmp_path),
        pytest.raises(OperationError, match="another program has locked it"),
    ):
        update(path, VOCABULARY, learned(1, 2))
    assert not path.exists()
    update(path, VOCABULARY, learned(1, 2))
    assert path.exists()


WRITER = """
import sys
from pathlib import Path
from slipstream.drafters import lookup_file
from slipstream.drafters.base import DraftRequest
from slipstream.drafters.ngram_counts import NgramCounts

lookup_file.LOCK_WAIT_S = 60
counts = NgramCounts()
counts.learn([1, 2, int(sys.argv[2])], ())
for _ in range(25):
    lookup_file.update(Path(sys.argv[1]), 24, counts)
"""


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.bin"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(token)], env=environment)
        for token in (3, 4)
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    table = LookupTable(read(path, VOCABULARY))
    assert table.followers(gram(1)) == {2: 50}
    assert table.followers(gram(1, 2)) == {3: 25, 4: 25}
    assert os.listdir(tmp_path) == ["dynamic.bin"]
