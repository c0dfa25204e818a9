"""What a verb says and where: results to standard output, everything else to standard error.

While a verb runs, what the user's program prints goes to standard error as well, so that standard output holds the result
alone. Progress is shown after two seconds: a live line on a terminal, else a plain one.
"""
from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import click

from deplodock.errors import DeplodockError, UsageError

SCHEMA = 1
"""Version of every JSON object that is printed. It changes when a field is renamed, removed or changes its meaning."""
PATIENCE = 2.0
"""Seconds of silence that a user is left with."""


class Output:
    """A context: within it sys.stdout is standard error, and `result` and `object` write to the real one."""

    def __init__(self, quiet: bool, verbose: int, color: str, wants_json: bool):
        self.quiet, self.verbose, self.wants_json = quiet, verbose, wants_json
        self.stdout, self.color = sys.stdout, _color(color, sys.stdout)
        self.error_color = _color(color, sys.stderr)

    def __enter__(self) -> Output:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Format("%(levelname)s: %(message)s"))
        self.logger = logging.getLogger("deplodock")
        self.logger.handlers[:] = [handler]
        self.logger.setLevel(logging.ERROR if self.quiet else logging.INFO)
        self.logger.propagate = False
        sys.stdout = sys.stderr
        return self

    def __exit__(self, _, error, trace) -> None:
        sys.stdout = self.stdout
        if isinstance(error, Exception):
            kind, text, code, _ = describe(error)
            self.object("error", error=kind, message=text, exit_code=code)
            if self.verbose >= 2 and not isinstance(error, (DeplodockError, click.ClickException)):
                import traceback
                traceback.print_exception(error)
        self.logger.handlers[:] = []
        self.logger.propagate = True

    # ---- results ----

    def result(self, text: str) -> None:
        """Text of the result, to standard output."""
        if not self.wants_json:
            with writing("standard output"):
                click.echo(text, file=self.stdout, color=self.color)

    def object(self, kind: str, **fields) -> None:
        """The result as JSON: {"schema": .., "kind": .., fields}."""
        if self.wants_json:
            with writing("standard output"):
                json.dump({"schema": SCHEMA, "kind": kind, **fields}, self.stdout, indent=2, allow_nan=False, default=str)
                self.stdout.write("\n")
                self.stdout.flush()

    def table(self, columns: list[str], rows: list[list[str]], numbers: tuple[int, ...] = ()) -> None:
        """A table as aligned text; `numbers` are the columns set flush right."""
        if self.wants_json or not rows:
            return
        widths = [max(len(str(r[i])) for r in [columns, *rows]) for i in range(len(columns))]

        def line(row):
            cells = [str(c).rjust(w) if i in numbers else str(c).ljust(w) for i, (c, w) in enumerate(zip(row, widths))]
            return "  ".join(cells).rstrip()

        self.result(click.style(line(columns), bold=True))
        for row in rows:
            self.result(line(row))

    # ---- the rest ----

    def say(self, text: str, level: int = 0) -> None:
        """A remark, to standard error: level 0 unless -q, 1 with -v, 2 with -vv."""
        if not self.quiet and self.verbose >= level:
            click.echo(text, file=sys.stderr, color=self.error_color)

    def warn(self, text: str) -> None:
        self.logger.warning(text)

    @contextmanager
    def step(self, name: str):
        """A part of the work. After two seconds it is named, on a terminal with the seconds it has taken."""
        if self.quiet:
            yield
            return
        done, start, live = threading.Event(), time.perf_counter(), sys.stderr.isatty()

        def watch():
            if done.wait(PATIENCE):
                return
            if not live:
                sys.stderr.write(f"{name} ..\n")
                return
            while not done.wait(0.1):
                sys.stderr.write(f"\r{name} .. {time.perf_counter() - start:.0f} s")
                sys.stderr.flush()
            sys.stderr.write("\r\033[K")

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@contextmanager
def writing(where: Path | str):
    """UsageError for a place that cannot be written to. A closed pipe is no error: see execute()."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(title=f"cannot write {where}", expected="a place that can be written to", found=error.strerror,
                         advice="choose another one, or make room there") from error


class _Format(logging.Formatter):
    def format(self, record):
        record.levelname = record.levelname.lower()
        return super().format(record)


def _color(wish: str, stream) -> bool:
    if wish == "auto":
        return stream.isatty() and not os.environ.get("NO_COLOR")
    return wish == "always"


def describe(error: Exception) -> tuple[str, str, int, str]:
    """An error's kind, message, exit code, and a hint that follows it."""
    match error:
        case click.UsageError():
            hint = f"\nTry `{error.ctx.command_path} --help`." if error.ctx else ""
            return "UsageError", error.format_message(), error.exit_code, hint
        case click.ClickException():
            return type(error).__name__, error.format_message(), error.exit_code, ""
        case DeplodockError():
            return type(error).__name__, str(error), error.exit_code, ""
    hint = "\nThis is a bug of deplodock. -vv prints where it happened; please report it with that."
    return type(error).__name__, f"{type(error).__name__}: {error}", 1, hint


def report(error: Exception) -> int:
    """Prints an error that ends the command line to standard error, and returns its exit code."""
    _, text, code, hint = describe(error)
    print(f"error: {text}{hint}", file=sys.stderr)
    return code
