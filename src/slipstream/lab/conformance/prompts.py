"""The texts that the checks ask for: most repeat themselves, so that drafters fire."""

from __future__ import annotations

from typing import Final

COPY: Final = (
    "Write this list out again, exactly as it stands, three times:\n"
    "1. red kite, shelf A41\n2. blue heron, shelf B17\n3. grey wagtail, shelf C86\n"
    "4. brown owl, shelf D23\n5. white stork, shelf E59\n6. black grouse, shelf F72"
)
COUNT: Final = "Count from 1 to 200 in digits, with a comma and a space after each number."
STORY: Final = "Tell a long story about a lighthouse keeper and a storm, with many details."
CODE: Final = (
    "Write a Python class Point with x and y, then the classes Point3 and Point4 in the same way, "
    "each with a method that adds two points and one that scales a point."
)
SHORT: Final = "Answer with one word: which colour has the sky on a clear day?"

PLAIN: Final = (COPY, COUNT, CODE, STORY)

_MARKERS: Final = ("walnut-7391", "saffron-2846", "copper-9153", "velvet-4627")


def marked(count: int) -> list[tuple[str, str]]:
    """(marker, prompt) of so many requests, at most four, that belong to different people."""
    return [
        (
            marker,
            f"My secret word is {marker}. Write the sentence 'The secret word is {marker}.' "
            f"{place + 5} times, each on a line of its own, numbered.",
        )
        for place, marker in enumerate(_MARKERS[:count])
    ]


def salted(salt: str) -> str:
    """A prompt that nobody asked before, whose answer repeats little of itself."""
    return f"Tell the story of the ship {salt} and its crew, from its first day at sea to its last."
