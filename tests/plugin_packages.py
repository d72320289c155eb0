"""Installed packages that offer drafters, made of a few files on the search path."""

from __future__ import annotations

from pathlib import Path

GOOD = '''
from slipstream.drafters.base import BaseDrafter, Draft

class Repeat(BaseDrafter):
    """The newest token again."""
    name = "repeat"

    def draft(self, requests):
        return [Draft.chain(request.tokens[-1:] * request.n_max, self.name) for request in requests]

def create(options, resources):
    assert options.type
    assert resources.vocabulary > 0
    return Repeat()
'''


def install(
    folder: Path, package: str, entries: dict[str, str], module: str = "", source: str = GOOD
) -> Path:
    """Write a package and its metadata below a folder for the search path.

    Args:
        package: its name as pip shows it.
        entries: name of a drafter -> ``module:attribute``.
        module: name of its only module; default: the package's, with underscores.
    """
    stem = package.replace("-", "_")
    information = folder / f"{stem}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (information / "entry_points.txt").write_text("\n".join(["[slipstream.drafters]", *lines, ""]))
    (folder / f"{module or stem}.py").write_text(source)
    return folder
