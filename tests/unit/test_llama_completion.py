"""``/completion`` and ``/infill`` without an engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from scripted_service import FIM_TEXTS, SEED, Script, ScriptedService, Step, ask, stream_of
from slipstream.options import SamplingOptions
from slipstream.server import llama_completion
from slipstream.server.line_limits import LineLimits
from slipstream.server.order import Order
from slipstream.server.wire import Speculation, WireError


def post(service: ScriptedService, path: str = "/completion", **body: Any) -> httpx.Response:
    return ask(llama_completion.routes(service), "POST", path, body)


def ordered(service: ScriptedService, **body: Any) -> Order:
    """What the engine is asked for."""
    reply = post(service, **{"prompt": "a", **body})
    assert reply.status_code == 200, reply.text
    return service.orders[-1]


def refusal(path: str = "/completion", **body: Any) -> tuple[int, str]:
    service = ScriptedService()
    reply = post(service, path, **body)
    assert service.orders == []
    return reply.status_code, reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_a_whole_reply(path: str) -> None:
    service = ScriptedService()
    reply = post(service, path, prompt="the", n_predict=9).json()
    assert reply["content"] == "Hello"
    assert reply["stop"] is True
    assert (reply["stop_type"], reply["stopping_word"]) == ("eos", "")
    assert reply["tokens"] == []
    assert reply["prompt"] == "the"
    assert reply["model"] == "tiny"
    assert (reply["index"], reply["id_slot"], reply["truncated"]) == (0, -1, False)
    assert reply["tokens_predicted"] == 5
    assert reply["tokens_evaluated"] == len(service.orders[0].prompt)
    assert reply["tokens_cached"] == 1
    assert reply["timings"]["predicted_n"] == 5
    assert reply["timings"]["draft_n_accepted"] == 2
    assert reply["timings"]["queue_ms"] == 250.0
    assert reply["speculative"] == {"type": "suffix", "n_max": None}
    settings = reply["generation_settings"]
    assert (settings["n_predict"], settings["seed"], settings["n_ctx"]) == (9, SEED, 128)
    assert service.orders[0].endpoint == path


def test_a_stream() -> None:
    service = ScriptedService()
    parts = stream_of(post(service, prompt="a", stream=True))
    assert [part["content"] for part in parts] == ["He", "llo", ""]
    assert [part["stop"] for part in parts] == [False, False, True]
    assert [part["tokens_predicted"] for part in parts] == [2, 5, 5]
    assert [len(part["tokens"]) for part in parts] == [2, 3, 0]
    assert set(parts[0]) == {
        "index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"
    }  # fmt: skip
    assert parts[-1]["stop_type"] == "eos"
    assert parts[-1]["timings"]["predicted_n"] == 5


def test_a_stream_and_a_whole_reply_say_the_same() -> None:
    whole = post(ScriptedService(), prompt="a").json()
    parts = stream_of(post(ScriptedService(), prompt="a", stream=True))
    different = {"content", "timings", "generation_settings"}
    assert {k: v for k, v in whole.items() if k not in different} == {
        k: v for k, v in parts[-1].items() if k not in different
    }


def test_text_that_is_held_back_comes_with_a_later_event() -> None:
    script = Script(steps=(Step("ab", held=1), Step("c")), stop="bc")
    parts = stream_of(post(ScriptedService(script), prompt="a", stream=True))
    assert [part["content"] for part in parts] == ["a", "c", ""]
    assert (parts[-1]["stop_type"], parts[-1]["stopping_word"]) == ("word", "bc")


def test_why_it_ended() -> None:
    limit = post(ScriptedService(Script(finish_reason="length")), prompt="a").json()
    assert (limit["stop_type"], limit["truncated"]) == ("limit", False)
    service = ScriptedService(Script(finish_reason="length"))
    service.context = len(service.tokenizer.encode("a")) + 5
    assert post(service, prompt="a").json()["truncated"] is True


def test_timings_per_token() -> None:
    parts = stream_of(post(ScriptedService(), prompt="a", stream=True, timings_per_token=True))
    assert [part["timings"]["predicted_n"] for part in parts] == [2, 5, 5]
    assert parts[0]["timings"]["prompt_n"] == 1


def test_prompts_of_tokens_and_texts() -> None:
    service = ScriptedService()
    post(service, prompt=[5, 6, "the", 7])
    the = service.tokenizer.encode("the", add_special=False)
    assert service.orders[-1].prompt == [5, 6, *the, 7]
    reply = post(service, prompt=[5, 6]).json()
    assert reply["prompt"] == service.tokenizer.decode([5, 6])
    post(service, prompt={"prompt_string": "the"})
    assert service.orders[-1].prompt == service.tokenizer.encode("the")


def test_several_prompts_and_choices() -> None:
    service = ScriptedService()
    replies = post(service, prompt=["a", [5, 6], "b"], n_cmpl=2).json()
    assert [reply["index"] for reply in replies] == [0, 1, 2, 3, 4, 5]
    assert [reply["prompt"] for reply in replies][::2] == [
        "a",
        service.tokenizer.decode([5, 6]),
        "b",
    ]
    assert all(reply["content"] == "Hello" for reply in replies)
    assert [order.choices for order in service.orders] == [2, 2, 2]


def test_several_outputs_in_one_stream() -> None:
    parts = stream_of(post(ScriptedService(), prompt=["a", "b"], n=2, stream=True))
    texts = {i: "".join(p["content"] for p in parts if p["index"] == i) for i in range(4)}
    assert texts == dict.fromkeys(range(4), "Hello")
    assert sum(part["stop"] for part in parts) == 4


@pytest.mark.parametrize(
    "prompt", [[], 5, True, [1, True], [[]][:0], {"a": 1}, [None], [1.5], ["a", {"x": 1}]]
)
def test_prompts_that_are_none(prompt: Any) -> None:
    status, message = refusal(prompt=prompt)
    assert status == 400, message


def test_prompts_beyond_the_limits() -> None:
    assert refusal(prompt=["a"] * 65)[0] == 400
    assert refusal(prompt=[1, *["a"] * 1025])[0] == 400
    status, message = refusal(prompt=[1, 10**30])
    assert status == 400
    assert "token ids from 0" in message
    assert refusal(prompt=[-1])[0] == 400
    assert refusal()[1].startswith("expected `prompt`")


def test_pictures_are_refused() -> None:
    status, _ = refusal(prompt={"prompt_string": "a", "multimodal_data": ["x"]})
    assert status == 422


def test_options_under_llama_cpps_names() -> None:
    sampling = ordered(
        ScriptedService(),
        n_predict=5,
        temperature=0.5,
        top_k=3,
        top_p=0.9,
        min_p=0.1,
        repeat_penalty=1.1,
        repeat_last_n=-1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        seed=4,
        stop=["x", ""],
        ignore_eos=True,
        n_probs=2,
    ).sampling
    assert sampling == SamplingOptions(
        max_tokens=5,
        temperature=0.5,
        top_k=3,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        penalty_window=-1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        seed=4,
        stop=("x",),
        ignore_eos=True,
        logprobs=2,
    )


def test_what_is_left_out_is_the_servers() -> None:
    service = ScriptedService()
    service.sampling = SamplingOptions(temperature=0.7, max_tokens=11)
    assert ordered(service).sampling == service.sampling
    assert ordered(service, temperature=None).sampling == service.sampling


@pytest.mark.parametrize("seed", [-1, 0xFFFFFFFF])
def test_a_seed_that_is_drawn(seed: int) -> None:
    assert ordered(ScriptedService(), seed=seed).sampling.seed is None


def test_a_full_set_of_options_that_ask_for_nothing() -> None:
    service = ScriptedService()
    order = ordered(
        service,
        samplers="edkypmxt",
        dynatemp_range=0,
        dynatemp_exponent=1,
        typical_p=1,
        xtc_probability=0,
        xtc_threshold=0.1,
        dry_multiplier=0,
        dry_base=1.75,
        dry_allowed_length=2,
        dry_penalty_last_n=-1,
        mirostat=0,
        mirostat_tau=5,
        mirostat_eta=0.1,
        n_keep=0,
        cache_prompt=True,
        id_slot=3,
        min_keep=0,
        grammar="",
        lora=[],
        post_sampling_probs=False,
        t_max_prompt_ms=500,
    )
    assert order.sampling == service.sampling


@pytest.mark.parametrize(
    "keys",
    [
        {"dry_multiplier": 0.8},
        {"xtc_probability": 0.5},
        {"typical_p": 0.9},
        {"mirostat": 2},
        {"dynatemp_range": 0.5},
        {"post_sampling_probs": True},
        {"min_keep": 1},
        {"lora": [{"id": 0, "scale": 1.0}]},
        {"n_keep": 5},
    ],
)
def test_samplers_that_are_not_here(keys: dict[str, Any]) -> None:
    status, message = refusal(prompt="a", **keys)
    assert status == 422
    assert next(iter(keys)) in message


def test_an_unknown_key_names_the_nearest() -> None:
    status, message = refusal(prompt="a", n_predit=5)
    assert status == 400
    assert "`n_predict`" in message


def test_samplers_left_out_are_off() -> None:
    order = ordered(
        ScriptedService(),
        samplers=["top_k", "temperature"],
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        min_p=0.1,
        repeat_penalty=1.3,
    )
    assert order.sampling == SamplingOptions(temperature=0.5, top_k=4)
    drawn = ordered(ScriptedService(), samplers=["top_p"], top_p=0.5, temperature=0.2)
    assert drawn.sampling == SamplingOptions(temperature=1.0, top_p=0.5)
    filling = ordered(ScriptedService(), samplers=["top_k", "infill"], top_k=40)
    assert filling.sampling == SamplingOptions(temperature=0.0, top_k=40)


@pytest.mark.parametrize(
    ("samplers", "status"),
    [(["temperature", "top_k"], 422), (["top_k", "top_k"], 422), (["nothing"], 400), ("z", 400)],
)
def test_samplers_in_another_order(samplers: Any, status: int) -> None:
    assert refusal(prompt="a", samplers=samplers)[0] == status


def test_biases() -> None:
    service = ScriptedService()
    the = service.tokenizer.encode("the", add_special=False)
    cases: list[tuple[Any, dict[int, float]]] = [
        ([[5, 1.5], [6, -2]], {5: 1.5, 6: -2.0}),
        ([[5, False]], {5: -100.0}),
        ([["the", 1]], dict.fromkeys(the, 1.0)),
        ({"5": 1, "the": 2}, {5: 1.0, **dict.fromkeys(the, 2.0)}),
        ([], {}),
    ]
    for given, bias in cases:
        assert ordered(service, logit_bias=given).sampling.logit_bias == bias


@pytest.mark.parametrize(
    "bias",
    [5, [5], [[5]], [[5, True]], [[5, "x"]], [[-1, 1]], [[10**30, 1]], [[5, 10**400]], [[None, 1]],
     [["x" * 300, 1]], [[5, 101]]],
)  # fmt: skip
def test_biases_that_are_none(bias: Any) -> None:
    assert refusal(prompt="a", logit_bias=bias)[0] == 400


def test_a_grammar_of_llama_cpp_is_named() -> None:
    status, message = refusal(prompt="a", grammar='root ::= "yes" | "no"')
    assert status == 400
    assert "GBNF" in message
    assert "json_schema" in message
    lark = 'start: "yes" | "no"'
    assert ordered(ScriptedService(), grammar=lark).sampling.grammar == lark


def test_a_json_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = ordered(ScriptedService(), json_schema=schema).sampling.json_schema
    assert found is not None
    assert json.loads(found) == schema


def test_speculation_as_an_object_and_as_dotted_keys() -> None:
    order = ordered(ScriptedService(), speculative={"type": "suffix", "n_max": 4})
    assert order.speculation == Speculation(methods=("suffix",), n_max=4)
    dotted = ordered(ScriptedService(), **{"speculative.n_max": 4, "speculative.p_min": 0.5})
    assert dotted.speculation == Speculation(n_max=4, p_min=0.5)
    assert refusal(prompt="a", **{"speculative": {"n_max": 1}, "speculative.n_max": 2})[0] == 400


def test_probabilities_of_every_token() -> None:
    reply = post(ScriptedService(), prompt="a", n_probs=1).json()
    assert len(reply["completion_probabilities"]) == 5
    first = reply["completion_probabilities"][0]
    assert (first["token"], first["bytes"], first["logprob"]) == ("H", [72], -0.5)
    assert first["top_logprobs"][0]["id"] == first["id"]
    parts = stream_of(post(ScriptedService(), prompt="a", n_probs=1, stream=True))
    assert [len(p["completion_probabilities"]) for p in parts[:-1]] == [2, 3]


def test_tokens_and_what_was_drafted() -> None:
    service = ScriptedService()
    reply = post(service, prompt="a", return_tokens=True, show_drafts=True).json()
    assert service.tokenizer.decode(reply["tokens"]) == "Hello"
    assert reply["from_draft"] == [False, False, True, True, False]


def test_chosen_fields() -> None:
    fields = ["content", "generation_settings/n_predict", "timings/prompt_n", "nothing", "a/b", ""]
    reply = post(ScriptedService(), prompt="a", n_predict=3, response_fields=fields).json()
    assert reply == {"content": "Hello", "n_predict": 3, "prompt_n": 0}


def test_without_the_cache_nothing_is_reused() -> None:
    service = ScriptedService()
    post(service, prompt="a", cache_prompt=False, session="mine")
    post(service, prompt="a", session="mine")
    assert [order.reuse for order in service.orders] == [False, True]
    assert [caller.session for caller in service.callers] == [":mine"] * 2


@pytest.mark.parametrize(
    ("keys", "param"),
    [
        ({"speculative": {"bogus": 1}}, "speculative.bogus"),
        ({"speculative": {"n_max": -1}}, "speculative.n_max"),
        ({"n_cmpl": 1000}, "n_cmpl"),
        ({"logit_bias": [[999999, 1.0]]}, "logit_bias"),
        ({"stop": ["x"] * 65}, "stop"),
    ],
)
def test_the_key_at_fault_is_named(keys: dict[str, Any], param: str) -> None:
    reply = post(ScriptedService(), prompt="a", **keys)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_limits_of_stop_strings_are_told() -> None:
    for stop in (["x"] * 65, ["x" * 1001], [1]):
        _, message = refusal(prompt="a", stop=stop)
        assert "a list of at most 64 texts of 1 to 1000 characters" in message
    assert ordered(ScriptedService(), stop=["x"] * 64).sampling.stop == ("x",) * 64


def test_top_k_of_minus_one_is_off() -> None:
    service = ScriptedService()
    service.sampling = SamplingOptions(top_k=40)
    assert ordered(service, top_k=-1).sampling.top_k == 0
    assert ordered(service, top_k=0).sampling.top_k == 0
    assert refusal(prompt="a", top_k=-2)[0] == 400


def test_a_prompt_that_is_computed_alone() -> None:
    service = ScriptedService(Script(steps=(Step("x"),), finish_reason="length"))
    reply = post(service, prompt="a", n_predict=0).json()
    assert service.orders[0].sampling.max_tokens == 1
    assert (reply["content"], reply["tokens_predicted"], reply["stop_type"]) == ("", 0, "limit")
    assert reply["timings"]["predicted_n"] == 0
    assert reply["generation_settings"]["n_predict"] == 0
    [last] = stream_of(post(service, prompt="a", n_predict=0, stream=True))
    assert (last["content"], last["stop"]) == ("", True)


def test_less_indentation_ends_the_output() -> None:
    script = Script(steps=(Step("a\n    b"), Step("\n"), Step("c"), Step("d")), stuck=True)
    for stream in (False, True):
        service = ScriptedService(script)
        reply = post(service, prompt="a", n_indent=4, stream=stream)
        parts = stream_of(reply) if stream else [reply.json()]
        assert "".join(part["content"] for part in parts) == "a\n    b"
        assert parts[-1]["stop_type"] == "limit"
        assert service.generations[0].cancelled.is_set()


def test_time_ends_the_output_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineLimits, "_late", lambda *_: True)
    service = ScriptedService(Script(steps=(Step("ab\ncd"), Step("e")), stuck=True))
    assert post(service, prompt="a", t_max_predict_ms=5).json()["content"] == "ab\n"


def test_an_output_that_was_cancelled_otherwise_is_an_error() -> None:
    service = ScriptedService(Script(finish_reason="cancelled"))
    assert post(service, prompt="a").status_code == 429


def test_an_error_of_the_engine() -> None:
    error = WireError(kind="DeadlineError", expected="e", found="f", remedy="r")
    first = post(ScriptedService(Script(steps=(), error=error)), prompt="a", stream=True)
    assert first.status_code == 504
    service = ScriptedService(Script(steps=(Step("ab"),), error=error))
    reply = post(service, prompt="a", stream=True)
    assert reply.status_code == 200
    assert "event: error" in reply.text
    assert service.generations[0].cancelled.is_set()
    assert post(service, prompt="a").status_code == 504


def test_a_client_that_leaves_cancels_its_output() -> None:
    service = ScriptedService(Script(stuck=True))
    routes = {route.path: route for route in llama_completion.routes(service)}
    body = json.dumps({"prompt": "a", "stream": False}).encode()

    async def leave() -> None:
        messages = [
            {"type": "http.request", "body": body, "more_body": False},
            {"type": "http.disconnect"},
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            if len(messages) == 1:
                while not service.generations:
                    await asyncio.sleep(0)
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/completion", "headers": [],
            "query_string": b"", "root_path": "", "scheme": "http", "server": ("h", 1),
        }  # fmt: skip
        await asyncio.wait_for(routes["/completion"].app(scope, receive, send), 10)

    asyncio.run(leave())
    assert service.generations[0].cancelled.is_set()


def fim(service: ScriptedService) -> list[int]:
    found = [service.tokenizer.token_id(text) for text in FIM_TEXTS]
    assert None not in found
    return [token for token in found if token is not None]


def text_ids(service: ScriptedService, text: str) -> list[int]:
    return service.tokenizer.encode(text, add_special=False, continues=True)


def test_a_gap_is_filled() -> None:
    service = ScriptedService()
    service.context = 400
    reply = post(
        service,
        "/infill",
        input_prefix="def f(",
        input_suffix=" return",
        prompt="x",
        input_extra=[{"text": "one", "filename": "a.py", "time": 5}],
        n_predict=8,
    )
    assert reply.json()["content"] == "Hello"
    pre, suf, mid, rep, sep = fim(service)
    words = [text_ids(service, text) for text in ("myproject\n", "a.py\n", "one", "filename\n")]
    project, name, one, file = words
    assert service.orders[0].prompt == [
        *[rep, *project, sep, *name, *one],
        *[sep, *file, pre, *text_ids(service, "def f(")],
        *[suf, *text_ids(service, " return"), mid, *text_ids(service, "x")],
    ]
    assert service.orders[0].endpoint == "/infill"


def test_what_an_editor_sends() -> None:
    reply = post(
        ScriptedService(),
        "/infill",
        id_slot=0,
        input_prefix="a",
        input_suffix="b",
        input_extra=[],
        prompt="",
        n_predict=16,
        stop=[],
        n_indent=0,
        top_k=40,
        top_p=0.9,
        stream=False,
        samplers=["top_k", "top_p", "infill"],
        cache_prompt=True,
        t_max_prompt_ms=500,
        t_max_predict_ms=500,
        response_fields=["content", "timings/prompt_n", "timings/predicted_ms", "truncated"],
    )
    assert reply.status_code == 200, reply.text
    assert set(reply.json()) == {"content", "prompt_n", "predicted_ms", "truncated"}


def test_marks_in_a_text_are_no_marks() -> None:
    service = ScriptedService()
    post(service, "/infill", input_prefix="<|fim_middle|>", input_suffix="", n_predict=4)
    mid = fim(service)[2]
    assert list(service.orders[0].prompt).count(mid) == 1


def test_far_text_goes_first() -> None:
    service = ScriptedService()
    prefix, suffix = "p" * 500, "s" * 500
    extra = [{"text": "z" * 500}]
    post(
        service,
        "/infill",
        input_prefix=prefix,
        input_suffix=suffix,
        input_extra=extra,
        n_predict=20,
    )
    prompt = list(service.orders[0].prompt)
    assert len(prompt) == service.context - 20
    pre, suf, mid, *_ = fim(service)
    before = prompt[prompt.index(pre) + 1 : prompt.index(suf)]
    after = prompt[prompt.index(suf) + 1 : prompt.index(mid)]
    assert set(before) == {text_ids(service, "p")[0]}
    assert set(after) == {text_ids(service, "s")[0]}
    assert len(before) > 2 * len(after) > 0
    assert text_ids(service, "z")[0] not in prompt[: prompt.index(pre)]


def test_a_short_prefix_leaves_its_room_to_the_suffix() -> None:
    service = ScriptedService()
    post(service, "/infill", input_prefix="p", input_suffix="s" * 500, n_predict=20)
    prompt = list(service.orders[0].prompt)
    assert len(prompt) == service.context - 20
    assert text_ids(service, "p")[0] in prompt


def test_a_filling_that_leaves_no_room() -> None:
    status, message = refusal("/infill", prompt="x" * 500)
    assert status == 413
    assert "`prompt`" in message


def test_a_model_without_marks() -> None:
    service = ScriptedService(fim=False)
    reply = post(service, "/infill", input_prefix="a", input_suffix="b")
    assert reply.status_code == 422
    assert "fill in the middle" in reply.json()["error"]["message"]


def test_a_prompt_of_infill_is_a_text() -> None:
    assert refusal("/infill", prompt=[1])[0] == 400
    assert refusal("/infill", input_extra=[{"name": "x"}])[0] == 400
