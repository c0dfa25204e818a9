"""The command line: `deplodock VERB`. Each verb is a module of this package, imported when it is called.

torch, egglog and CUDA are imported inside the verbs, so that --help and --version answer at once. Errors that a user is
meant to read end here: they are printed to standard error, or as one object with --json, and become the exit code.
"""
from __future__ import annotations

import importlib
import os
import sys

import click

VERBS = {
    "compile": "print one stage of a program on its way from PyTorch to machine code",
    "saturate": "show the e-graph of a program: all programs that the laws prove equal",
    "run": "compile a program, run it, and check it against float64 and against PyTorch",
    "laws": "list the laws: names, equations, conditions",
    "doctor": "say what is installed, what is missing, and what will not work",
}

EXIT_CODES = """
Exit codes: 0 ok; 1 the program or its compilation failed; 2 usage; 3 wrong numbers; 4 no GPU, or it failed;
130 interrupted.
"""


class Verbs(click.Group):
    """The verbs, imported one by one when they are called; the list of them needs no import."""

    def list_commands(self, ctx):
        return list(VERBS)

    def get_command(self, ctx, name):
        if name not in VERBS:
            return None
        return importlib.import_module(f"deplodock.cli.{name}").command

    def format_commands(self, ctx, formatter):
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx, args):
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib
            near = difflib.get_close_matches(args[0], VERBS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Verbs: {', '.join(VERBS)}."
            raise click.UsageError(f"No such verb: {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx, _, value):
    if value:
        from deplodock.version import __version__
        click.echo(f"deplodock {__version__}")
        ctx.exit()


def _completion(ctx, _, shell):
    if shell:
        from click.shell_completion import get_completion_class
        script = get_completion_class(shell)(ctx.command, {}, "deplodock", "_DEPLODOCK_COMPLETE")
        click.echo(script.source())
        ctx.exit()


@click.command(cls=Verbs, subcommand_metavar="VERB [ARGS]...", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
               epilog=EXIT_CODES)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version.")
@click.option("--completion", type=click.Choice(["bash", "zsh", "fish"]), is_eager=True, expose_value=False,
              callback=_completion, help="Print the completion script of a shell: `eval \"$(deplodock --completion bash)\"`.")
@click.pass_context
def cli(ctx):
    """A compiler from PyTorch to CUDA in which every choice is an equation."""
    from deplodock.cli.options import settings
    ctx.default_map = settings()


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits with its code."""
    sys.exit(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: list[str]) -> int:
    """The exit code of a command line."""
    from deplodock.cli.output import report
    try:
        result = cli.main(arguments or ["--help"], prog_name="deplodock", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except SystemExit:                        # click's, since the reader of our output went away: not our failure
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return report(error)
