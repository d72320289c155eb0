"""The run's requests through ``lab.client.client``: the target's token ids, or chat messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slipstream.errors import OptionError
from slipstream.lab.client.asking import Answered, Asked
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.runtimes import Endpoint
from slipstream.measure.workload import WorkloadPrompt

if TYPE_CHECKING:
    from slipstream.lab.client.client import Sent
    from slipstream.lab.freezing.prompt_tokens import PromptCounter


@dataclass(frozen=True)
class ClientReply:
    """A reply as ``lab.client.client`` keeps it."""

    sent: Sent

    @property
    def failed(self) -> bool:
        """Nothing came, or no end of it."""
        return self.sent.raw.ended not in ("whole", "closed") or not self.sent.raw.parts

    def answer(self) -> Answered:
        answer: Answered = self.sent.answer()
        return answer


class ClientSend:
    """
    Args:
        manifest: whose target's tokenizer and template make the ids.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._model = manifest.plan.target.model
        self._ids: dict[str, tuple[int, ...]] = {}

    async def __call__(self, endpoint: Endpoint, asked: Asked) -> ClientReply:
        """One request in the endpoint's dialect.

        Raises:
            OptionError: the request cannot be said in it, such as an output to go on with.
            InputError: the target's tokenizer or template cannot encode the prompt.
        """
        from slipstream.lab.client import client

        llama = endpoint.dialect == "llama"
        if asked.after and not llama:
            found = f"chat messages ({endpoint.dialect})"
            raise OptionError("a server that takes token ids", found, "It cannot be asked this.")
        extra: dict[str, Any] = {} if asked.slot is None else {"id_slot": asked.slot}
        prompt = client.Prompt(
            messages=tuple(asked.prompt.chat_messages()),
            ids=(*self._encoded(asked.prompt), *asked.after) if llama else (),
            tools=tuple(asked.prompt.chat_tools() or ()),
            extra=extra if llama else {},
        )
        sent = await client.send(
            endpoint, prompt, asked.options(), timeout_s=asked.timeout_s, tenant=asked.tenant
        )
        return ClientReply(sent)

    def _encoded(self, prompt: WorkloadPrompt) -> tuple[int, ...]:
        if prompt.id not in self._ids:
            self._ids[prompt.id] = tuple(self._counter.ids(prompt))
        return self._ids[prompt.id]

    @cached_property
    def _counter(self) -> PromptCounter:
        """Tokenizer and template of the target, without its weights."""
        from slipstream.lab.freezing.prompt_tokens import prompt_counter

        return prompt_counter(self._model)
