"""The ``slipstream`` command: verbs are imported only when they run."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
import typer
from typer.core import TyperGroup
from typer.main import get_command

from slipstream.errors import SlipstreamError

# verb -> (module, one-line help)
VERBS = {
    "pull": ("slipstream.cli.pull", "Fetch a model, verify its SHA-256, show its licence."),
    "run": ("slipstream.cli.run", "Generate from a prompt."),
    "chat": ("slipstream.cli.chat", "Talk to a model with its own template."),
    "inspect": ("slipstream.cli.inspect", "What a file is, what it offers, what it needs."),
    "explain": ("slipstream.cli.explain", "What would run, and why."),
    "bench": ("slipstream.cli.bench", "Measure rows, decoding and speculation."),
}


class LazyGroup(TyperGroup):
    """Lists the verbs without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(  # noqa: ARG002
        self, ctx: click.Context, cmd_name: str
    ) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        if _only_listing():
            return click.Command(cmd_name, help=VERBS[cmd_name][1])
        module: Any = importlib.import_module(VERBS[cmd_name][0])
        command = get_command(module.app)
        command.name = cmd_name
        return command


def _only_listing() -> bool:
    return sys.argv[1:] in ([], ["--help"], ["-h"])


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"slipstream {version('slipstream')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Run GGUF language models with speculative decoding, exactly, and see whether it pays."""


def report(error: SlipstreamError) -> int:
    """Print an error the way every verb does; returns its exit code."""
    print(f"error: expected {error.expected}; found {error.found}", file=sys.stderr)
    print(f"hint: {error.remedy}", file=sys.stderr)
    return error.exit_code


def main() -> None:
    """Entry point: user errors exit 2, failures of the environment 1, Ctrl-C 130."""
    try:
        app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except SlipstreamError as error:
        sys.exit(report(error))


if __name__ == "__main__":
    main()
