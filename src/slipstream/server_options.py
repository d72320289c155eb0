"""The options of a server: where it listens, who may use it, what a request may take."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from slipstream.errors import OptionError
from slipstream.option_fields import option, validate

CHARACTERS_PER_POSITION: Final = 32
"""Of a prompt that is not refused unread: several times what a token of text spells."""


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, who may use it, and what a request may take."""

    host: Annotated[
        str, option("address to listen on; another than loopback needs keys", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[int, option("port to listen on; 0 = any free one", ge=0, le=65535)] = 8080
    api_key_file: (
        Annotated[
            str, option("file of API keys, one a line; a request must carry one", min_length=1)
        ]
        | None
    ) = None
    allow_public: Annotated[
        bool, option("listen on other addresses than loopback without keys: anyone may use it")
    ] = False
    cors_origins: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...],
        option("origin whose web pages may use the server; * = every one", max_length=64),
    ] = ()
    alias: (
        Annotated[str, option("name of the model in replies", "model_alias", min_length=1)] | None
    ) = None
    queue: Annotated[
        int, option("outputs that may wait for a place; beyond it 429", ge=0, le=65536)
    ] = 64
    body_limit_bytes: Annotated[
        int, option("most bytes of a request's body", ge=1024, le=1 << 27)
    ] = 1 << 24
    body_timeout_s: Annotated[
        float, option("seconds that a request's body may take to arrive", gt=0, le=86400)
    ] = 60.0
    prompt_limit: (
        Annotated[
            int,
            option(
                "most characters of a prompt; unset = "
                f"{CHARACTERS_PER_POSITION} for each position of the context",
                ge=1,
            ),
        ]
        | None
    ) = None
    deadline_s: (
        Annotated[float, option("seconds after which a request ends with an error", gt=0, le=86400)]
        | None
    ) = None
    grace_s: Annotated[
        float, option("seconds that outputs may go on once the server is to end", ge=0, le=86400)
    ] = 30.0
    profile: (
        Annotated[str, option("TOML file: which method a workload's requests get", min_length=1)]
        | None
    ) = None
    metrics: Annotated[bool, option("offer /metrics in Prometheus's text format")] = False

    def __post_init__(self) -> None:
        validate(self)
        for origin in self.cors_origins:
            if origin != "*" and "://" not in origin:
                raise OptionError(
                    "`cors_origins` to be origins such as http://localhost:3000",
                    f"`{origin}`",
                    "Write scheme, host and port, as browsers send them.",
                )

    def longest_prompt(self, context: int) -> int:
        """Characters of the longest prompt that is read.

        Args:
            context: positions of a sequence.
        """
        return self.prompt_limit or CHARACTERS_PER_POSITION * context
