"""schemathesis on a server's OpenAPI document, where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from load_clients import Findings

NEEDED: Final = ("schemathesis", "jsonschema_rs", "hypothesis_graphql", "harfile", "werkzeug")
"""The package and those of its dependencies that are not here for other reasons."""
SETTINGS: Final = Path(__file__).with_name("schemathesis.toml")
REQUEST_S: Final = 90
_MARGIN_S: Final = 300
_LAST: Final = 3000


def missing() -> str | None:
    """Why this part cannot run, in words; None where it can."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    if not absent:
        return None
    return f"left out: {', '.join(absent)} not installed (pip install schemathesis)"


def run_schemathesis(
    url: str, seconds: float, seed: int, findings: Findings
) -> dict[str, Any] | str:
    """What it found, or why it was left out.

    Only ``not_a_server_error`` is checked: a client's mistake must never become a 5xx, other than
    those that it asks for (``schemathesis.toml``).
    """
    if why := missing():
        print(f"schemathesis {why}", file=sys.stderr)
        return why
    words = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS)]
    words += ["run", f"{url}/openapi.json"]
    words += ["--checks", "not_a_server_error", "--max-time", str(max(1, int(seconds)))]
    words += ["--seed", str(seed), "--request-timeout", str(REQUEST_S)]
    # all threads of CPython 3.11 share the depth that its parser counts: two at once break it
    words += ["--workers", "1"]
    words += ["--continue-on-failure", "--no-color", "--phases", "examples,coverage,fuzzing"]
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    try:
        with tempfile.TemporaryDirectory() as folder:  # it keeps files where it runs
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                cwd=folder,
                env=environment,
                timeout=seconds + _MARGIN_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        findings.fail("hang", "schemathesis did not come to an end")
        return "no end"
    findings.done["schema"] += 1
    if done.returncode != 0:
        findings.fail("schemathesis", (done.stdout + done.stderr)[-_LAST:])
    return {"exit_code": done.returncode, "said": done.stdout.splitlines()[-3:]}
