"""The server of ``lying_runtime``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from lying_replies import ACCEPTED, COMMIT, DRAFTED, event, from_chat, from_llama, whole


class Server:
    def __init__(self, words: list[str], lies: frozenset[str], facts: Mapping[str, Any]) -> None:
        self.words, self.lies, self.facts = words, lies, facts
        self.requests = 0
        self.counters: dict[str, int] = dict.fromkeys(("drafted", "accepted", "steps", "tokens"), 0)
        debug = {"-v", "--verbose", "--log-verbose"} & {*words}
        self.verbosity = 5 if debug else int(self.flag("-lv", "3"))
        self.ballast = bytearray(int(facts["ballast_mib"]) << 20)
        self.methods = [m for m in self.flag("--spec-type", "none").split(",") if m != "none"]
        if "ignored-flags" in lies:
            self.methods = []

    def flag(self, name: str, otherwise: str) -> str:
        return self.words[self.words.index(name) + 1] if name in self.words else otherwise

    def lying(self, *names: str) -> bool:
        """Whether it tells one of these lies by now."""
        told = bool(self.lies & set(names)) and self.requests > self.facts["after"]
        return told and bool(self.methods or not self.facts["drafting_alone"])

    @property
    def context(self) -> int:
        """Of a slot."""
        asked = int(self.flag("-c", "4096")) // max(int(self.flag("-np", "1")), 1)
        return asked // 2 if "short-context" in self.lies else asked

    def log(self, text: str, level: int = 3) -> None:
        if level <= self.verbosity:
            print(f"0.00.00{level}.000 I {text}", file=sys.stderr, flush=True)

    def say_start(self) -> None:
        """As llama-server does, in trace; Metal's lines in debug."""
        self.log(f"cmn  common_param: common_params_print_info: verbosity = {self.verbosity}")
        slots = f"n_slots = {self.flag('-np', '1')}, n_ctx_slot = {self.context}"
        self.log(f"srv    load_model: initializing, {slots}, kv_unified = 'false'")
        threads = self.flag("-t", "2")
        self.log(f"cmn: system_info: n_threads = {threads} (n_threads_batch = {threads}) / 2", 4)
        if not self.methods:
            self.log("spec common_specu: no implementations specified for speculative decoding", 4)
        for method in self.methods:
            self.log(f"spec common_specu: adding speculative implementation '{method}'", 4)
            self.log(f"spec common_specu: - {self.parameters(method)}", 4)
        self.log("srv    load_model: done", 4)
        if self.facts["metal"]:
            device = "ggml_metal_device_init:"
            self.log(f"{device} GPU name:   Apple M3 Max", 3)
            self.log(f"{device} GPU family: MTLGPUFamilyApple9  (1009)", 3)
            self.log(f"{device} simdgroup matrix mul. = true", 3)
            self.log(f"{device} has tensor            = false", 3)
            self.log("load_tensors: offloaded 31/31 layers to GPU", 3)

    def say_pipelines(self) -> None:
        """What a first request compiles."""
        if self.facts["metal"]:
            who = "ggml_metal_library_compile_pipeline:"
            for name in ("kernel_mul_mv_q4_0_f32", "kernel_mul_mv_mma_q4_0_f32", "kernel_rms_norm"):
                self.log(f"{who} compiling pipeline: base = '{name}', name = '{name}_nsg=4'", 5)
                self.log(
                    f"{who} loaded {name}_nsg=4    0x1040cadd0 | th_max = 1024 | th_width = 32", 5
                )

    def parameters(self, method: str) -> str:
        if method == "ngram-mod":
            names = [
                (n, f"--spec-ngram-mod-{n.replace('_', '-')}")
                for n in ("n_match", "n_max", "n_min")
            ]
            defaults = {"n_match": "24", "n_max": "64", "n_min": "48"}
        elif method.startswith("ngram"):
            kind = method.removeprefix("ngram-")
            names = [
                (n, f"--spec-ngram-{kind}-{n.replace('_', '-')}") for n in ("size_n", "size_m")
            ]
            defaults = {"size_n": "12", "size_m": "48"}
        else:
            names = [
                (n, f"--spec-draft-{n.replace('_', '-')}") for n in ("n_max", "n_min", "p_min")
            ]
            defaults = {"n_max": "3", "n_min": "0", "p_min": "0.000000"}
        return ", ".join(f"{name}={self.flag(flag, defaults[name])}" for name, flag in names)

    # what is asked with GET

    def get(self, path: str) -> tuple[int, str]:
        if path == "/health":
            ill = "never-ready" in self.lies
            return (
                (503, '{"error": {"message": "Loading model"}}')
                if ill
                else (200, '{"status": "ok"}')
            )
        if path == "/metrics" and "no-metrics" not in self.lies:
            return 200, self.metrics()
        values = {"/props": self.props, "/slots": self.slots, "/v1/models": self.models}
        if path in values and not (
            self.facts["metrics"] == "vllm" and path in ("/props", "/slots")
        ):
            return 200, json.dumps(values[path]())
        return 404, '{"error": {"message": "File Not Found"}}'

    def props(self) -> dict[str, Any]:
        if "router" in self.lies:
            return {"role": "router", "model_path": "none", "build_info": "b1-fake"}
        return {
            "default_generation_settings": {"n_ctx": self.context, "params": {}},
            "total_slots": int(self.flag("-np", "1")),
            "model_path": "/models/other.gguf" if "wrong-model" in self.lies else self.model,
            "build_info": f"b1-{COMMIT[:7]}",
        }

    @property
    def model(self) -> str:
        return self.flag("-m", str(self.facts["served"]))

    def slots(self) -> list[Any]:
        slot: dict[str, Any] = {"id": 0, "speculative": bool(self.methods)}
        if self.requests:
            slot["params"] = {"speculative.types": ",".join(["none", *self.methods])}
        return [slot]

    def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": self.model, "object": "model"}]}

    def metrics(self) -> str:
        mark = "vllm:" if self.facts["metrics"] == "vllm" else "llamacpp:"
        labels = '{model_name="m",engine="0"}' if mark == "vllm:" else ""
        names = {
            "drafted": "num_draft_tokens",
            "accepted": "num_accepted_tokens",
            "steps": "num_drafts",
        }
        lines = [
            f"{mark}spec_decode_{n}_total{labels} {self.counters[k]}" for k, n in names.items()
        ]
        steps = self.counters["accepted"] // ACCEPTED
        per_place = f"{mark}spec_decode_num_accepted_tokens_per_pos_total"
        lines += [f'{per_place}{{position="{place}"}} {steps}' for place in range(ACCEPTED)]
        lines.append(f"{mark}{'num_requests_running' if labels else 'requests_processing'} 0")
        return "\n".join(["# HELP x y", *lines, ""])

    # what is asked with POST

    def words_of(self, body: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
        """(id, text) of each token, without end: of all tokens before it."""
        asked = body.get("messages") or body.get("prompt")
        context = list(asked) if isinstance(asked, list) else [asked]
        seed = body.get("seed") if body.get("temperature") else None
        state = hashlib.sha256(json.dumps(seed).encode())
        for part in context:
            state.update(json.dumps(part).encode())
        place = 0
        while True:
            other = state.copy()
            other.update(b"x" if self.strays(place, len(context)) else b"")
            token = int.from_bytes(other.digest()[:4], "big") % 9000 + 10
            yield token, f" w{token}"
            state.update(json.dumps(token).encode())
            place += 1

    def strays(self, place: int, before: int) -> bool:
        """Whether a token is another than plain decoding's."""
        drafting = bool(self.methods) and place >= 40
        many = place == 0 and before >= 40
        return (drafting and self.lying("diverge", "rows")) or (many and self.lying("rows"))

    def drafting(self, tokens: int) -> dict[str, int]:
        steps = tokens // (ACCEPTED + 1) if self.methods else 0
        accepted = 0 if "noise" in self.lies else steps * ACCEPTED
        each = int(self.flag("--spec-ngram-mod-n-max", "64")) if self.facts["whole"] else DRAFTED
        return {"drafted": steps * each, "accepted": accepted, "steps": steps, "tokens": tokens}

    def count(self, tokens: int) -> dict[str, int]:
        """Counts of a request, added to the counters."""
        if "reset" in self.lies and self.requests % 3 == 0:
            self.counters = dict.fromkeys(self.counters, 0)
        counts = self.drafting(tokens)
        for name, value in counts.items():
            self.counters[name] += value
        return counts

    def timings(self, counts: Mapping[str, int], prompt: int, decode_s: float) -> dict[str, Any]:
        tokens = counts["tokens"]
        found: dict[str, Any] = {
            "cache_n": 5 if self.lying("cached") else 0,
            "prompt_n": prompt - (5 if self.lying("cached") else 0),
            "prompt_ms": 1.0,
            "prompt_per_second": 1000.0 * prompt,
            "predicted_n": tokens + (5 if self.lying("wrong-counts") else 0),
            "predicted_ms": decode_s * 1e3,
            "predicted_per_second": (tokens - 1) / decode_s if decode_s > 0 else 0.0,
        }
        if counts["drafted"]:
            accepted = counts["drafted"] + 7 if self.lying("wrong-drafts") else counts["accepted"]
            found |= {"draft_n": counts["drafted"], "draft_n_accepted": accepted}
        return found

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Pieces of the body of a reply."""
        chat = path == "/v1/chat/completions"
        most = int(body.get("max_tokens") or body.get("n_predict") or 16)
        pause_s = self.facts["token_s"] / (self.facts["speedup"] if self.methods else 1.0)
        begun = time.perf_counter()
        if chat:
            yield event(
                {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]}
            )
        while self.lying("endless-pings"):
            await asyncio.sleep(0.01)
            yield b": ping\n\n"
        for place, (token, text) in enumerate(self.words_of(body)):
            if place >= most and not self.lying("endless"):
                break
            if place == 10 and self.lying("stall"):
                await asyncio.sleep(self.facts["stall_s"])
            await asyncio.sleep(pause_s)
            yield from_chat(token, text, body) if chat else from_llama(token, text, place, body)
            if place == 4:
                for fault in self.mid_faults():
                    yield fault
                if self.lying("torn", "error-event"):
                    return
        counts = self.count(most)
        timings = self.timings(counts, self.prompt_tokens(body), time.perf_counter() - begun)
        for last in self.ending(chat, body, timings):
            yield last

    def mid_faults(self) -> Iterator[bytes]:
        if self.lying("garbage"):
            yield b"data: {this is no JSON\n\n"
        if self.lying("huge-line"):
            yield b'data: {"content": "' + b"x" * (16 << 20) + b'"}\n\n'
        if self.lying("error-event"):
            yield event({"error": {"code": 500, "message": "a fault in the middle"}})

    def prompt_tokens(self, body: Mapping[str, Any]) -> int:
        asked = body.get("prompt", body.get("messages"))
        return len(asked) if isinstance(asked, list) else len(str(asked).split())

    def ending(
        self,
        chat: bool,
        body: Mapping[str, Any],
        timings: Mapping[str, Any],
    ) -> Iterator[bytes]:
        told = timings["predicted_n"]
        if chat:
            yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
            usage = {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": told}
            own = {} if self.facts["metrics"] == "vllm" else {"timings": timings}
            yield event({"choices": [], "usage": usage, **own})
            yield b"data: [DONE]\n\n"
            return
        temperature = 0.8 if self.lying("other-temperature") else body.get("temperature", 0.8)
        settings = {
            "temperature": temperature,
            "n_predict": body.get("n_predict"),
            "seed": body.get("seed"),
        }
        yield event(
            {
                "content": "", "tokens": [], "stop": True, "stop_type": "limit",
                "tokens_predicted": told, "tokens_evaluated": self.prompt_tokens(body),
                "generation_settings": settings, "timings": timings,
            }
        )  # fmt: skip

    # the wire

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split("\r\n")[0].split(" ")
            size = [
                line for line in head.lower().split("\r\n") if line.startswith("content-length")
            ]
            data = await reader.readexactly(int(size[0].split(":")[1]) if size else 0)
            if method == "GET":
                whole(writer, *self.get(path))
            else:
                await self.post(path, json.loads(data), writer)
            await writer.drain()
        writer.close()

    async def post(self, path: str, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        self.say_pipelines()
        if self.lying("crash") and self.requests >= 7:
            os._exit(9)
        if path not in ("/completion", "/v1/chat/completions"):
            return whole(writer, 404, '{"error": {"message": "File Not Found"}}')
        if self.lying("http-400"):
            return whole(writer, 400, '{"error": {"code": 400, "message": "no such setting"}}')
        if self.lying("http-500"):
            return whole(writer, 500, '{"error": {"code": 500, "message": "a fault"}}')
        kind = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\nKeep-Alive: timeout=5\r\n\r\n".encode())
        async for data in self.stream(path, body):
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        if not self.lying("torn"):
            writer.write(b"0\r\n\r\n")
        return None


async def serve(server: Server) -> None:
    listening = await asyncio.start_server(
        server.connected, server.flag("--host", "127.0.0.1"), int(server.flag("--port", "8080"))
    )
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    server.say_start()
    async with listening:
        await over.wait()
    server.log("srv    operator(): operator(): cleaning up before exit...")
    os._exit(0)  # streams without end would hold it
