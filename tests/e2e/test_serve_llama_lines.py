"""The three classic command lines of llama-server, with only the program's name replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from servers import HOST, PROGRAM, RunningServer, free_port, reference, tiny_backend

PROMPT = [7, 8, 9, 7, 8, 9, 7, 8]
NGRAM_MOD = (
    *("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "24"),
    *("--spec-ngram-mod-n-min", "48", "--spec-ngram-mod-n-max", "64"),
)
DRAFT = ("--spec-type", "draft-simple", "--spec-draft-n-max", "3", "--spec-draft-model")


@pytest.mark.parametrize(
    ("flags", "method"),
    [((), "none"), (NGRAM_MOD, "ngram-mod"), (DRAFT, "draft-simple")],
    ids=["plain", "ngram-mod", "draft-simple"],
)
def test_a_command_line_of_llama_server(tiny: Path, flags: Sequence[str], method: str) -> None:
    port = free_port()
    line = ["-m", str(tiny), "--host", HOST, "--port", str(port), "-c", "256", "-np", "2"]
    line += ["-ngl", "0", "-fa", "on", "-b", "512", "--no-webui", "--jinja", "--metrics", *flags]
    line += [str(tiny)] if method == "draft-simple" else []
    server = RunningServer([*PROGRAM, *line, *tiny_backend()], port=port)
    try:
        assert "-ngl, -fa, -b, --no-webui, --jinja: without effect here" in server.said()
        with server.client() as client:
            body = {"prompt": PROMPT, "n_predict": 24, "temperature": 0, "return_tokens": True}
            reply = client.post("/completion", json={**body, "ignore_eos": True}).json()
            metrics = client.get("/metrics").text
            slots = client.get("/slots").json()
            settings = client.get("/props").json()["default_generation_settings"]
        assert reply["speculative"]["type"] == method
        assert len(slots) == 2
        assert settings["n_ctx"] == 256
        assert settings["speculative"] is (method != "none")
        assert "llamacpp:tokens_predicted_total 24.0" in metrics
    finally:
        assert server.stop() == 0
    whole = reference(tiny, context=256).complete(PROMPT, max_tokens=24, ignore_eos=True)
    assert reply["tokens"] == list(whole.ids)
