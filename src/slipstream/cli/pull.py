"""slipstream pull"""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.output import Json, megabytes, print_json, progress_bar

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def pull(
    model: Annotated[str, typer.Argument(help="catalogue name, or owner/repo:file[@revision]")],
    token: Annotated[
        str | None, typer.Option(envvar="HF_TOKEN", help="Hub token for gated files.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch a model, verify its SHA-256, show its licence, print its path."""
    from slipstream.catalog import pull as fetch

    with progress_bar() as progress:
        pulled = fetch(model, token=token, progress=progress)
    for refusal in pulled.refusals:
        print(f"passed over {refusal}")
    checked = "verified" if pulled.digest_known else "computed (the source announces none)"
    print(f"{pulled.description}\n{megabytes(pulled.bytes)} from {pulled.source}")
    print(f"sha256 {pulled.sha256} ({checked})")
    print(f"licence: {pulled.licence}  terms: {pulled.terms}")
    print(pulled.path)
    if as_json:
        print_json(pulled.to_mapping())
