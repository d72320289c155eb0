"""A llama-server that loads nothing: it answers /health and /completion as the peers do.

It counts the draft tokens that it was started for and refuses ``--spec-type suffix``.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

ARGUMENTS = sys.argv[1:]


def value(flag: str) -> str | None:
    return ARGUMENTS[ARGUMENTS.index(flag) + 1] if flag in ARGUMENTS else None


class Handler(BaseHTTPRequestHandler):
    answered = 0

    def do_GET(self) -> None:
        self.reply({"status": "ok"})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["prompt"] == [0]:
            print("a fault in the middle", flush=True)
            os._exit(7)
        assert request["temperature"] == 0
        assert request["cache_prompt"] is False
        Handler.answered += 1
        count = request["n_predict"]
        timings = {"predicted_n": count, "predicted_ms": 100.0, "prompt_ms": 5.0}
        if value("--spec-type") is not None:
            timings |= {"draft_n": 8, "draft_n_accepted": 6, "predicted_ms": 50.0}
        self.reply(
            {
                "content": f"{len(request['prompt'])} ids, {Handler.answered}",
                "tokens_predicted": count,
                "timings": timings,
            }
        )

    def reply(self, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if value("--spec-type") == "suffix":
    raise SystemExit("error: unknown speculative type: suffix")
HTTPServer((value("--host") or "", int(value("--port") or 0)), Handler).serve_forever()
