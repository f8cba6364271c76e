"""The command line. Commands are imported when they are run, so that `--help` stays quick."""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from tonnage import __version__
from tonnage.cli import messages, terminal
from tonnage.errors import InputError, TonnageError

INTERNAL_ERROR = 70
"""Exit code of a fault of ours (EX_SOFTWARE of sysexits.h)."""
CLOSED_PIPE = 141
"""Exit code when whoever reads the output has closed it: 128 and the number of SIGPIPE."""

PROGRAM = "tonnage"
COMPLETING = "_TONNAGE_COMPLETE"
"""Environment variable by which a shell asks for completions."""

MOST_ERRORS = 100
"""Lines about an input; whoever gets more reads no further."""

DEBUG = "TONNAGE_DEBUG"
"""Environment variable: anything but empty shows tracebacks."""

COMMANDS = {
    "demo": (
        "tonnage.cli.simulate",
        "demo",
        "The traffic surge on bundled input: live, with a summary and an HTML report.",
    ),
    "simulate": ("tonnage.cli.simulate", "simulate", "Run a scenario in the simulated cluster."),
    "compare": ("tonnage.cli.simulate", "compare", "Run a scenario under several policies; one table of differences."),
    "backtest": ("tonnage.cli.backtest", "backtest", "A scenario's run beside what Prometheus measured."),
    "up": ("tonnage.cli.up", "up", "A scenario's cluster behind a Kubernetes API on this machine: kubectl works."),
    "controller": ("tonnage.cli.controller", "controller", "The controllers on a real cluster: observe, or apply."),
    "agent": (
        "tonnage.cli.agent",
        "agent",
        "The agent of a GPU node: labels, CDI, device plugin; simulated cards too.",
    ),
    "trace": (
        "tonnage.cli.trace",
        "trace",
        "Look at a request log, fit a profile to it, or make a trace of logged prompts.",
    ),
    "route": ("tonnage.cli.route", "route", "Routing policies on a request log: replayed, explained, tuned."),
    "bench": ("tonnage.cli.bench", "bench", "Published claims about engines, measured on the engine model."),
    "kv": ("tonnage.cli.kv", "kv", "KV cache tiers below the GPU: what each is worth on a request log."),
    "size": ("tonnage.cli.size", "size", "Which GPUs a model needs, how fast it is there, and what that costs."),
    "cuda": ("tonnage.cli.cuda", "cuda", "Does an image's CUDA run on a driver and GPU; what does an upgrade break."),
    "mig": ("tonnage.cli.mig", "mig", "MIG layouts: what exists, what fits, how to get from one to another."),
    "plan": ("tonnage.cli.plan", "plan", "Which nodes to launch for pods: Karpenter's plan beside the cheapest one."),
    "savings": ("tonnage.cli.savings", "savings", "What spot, consolidation, schedules and others save on your usage."),
    "scale": ("tonnage.cli.scale", "scale", "Autoscalers: what they do at each step and why; thresholds for a trace."),
    "realloc": (
        "tonnage.cli.realloc",
        "realloc",
        "Move GPUs from one workload to another, and adjust their autoscalers.",
    ),
    "why": (
        "tonnage.cli.why",
        "why",
        "Why a pod or gang is pending, or is placed where it is, and what would change that.",
    ),
    "share": (
        "tonnage.cli.share",
        "share",
        "Ways to share a GPU, side by side: MIG, time-slicing, MPS, a smaller one.",
    ),
    "advise": ("tonnage.cli.advise", "advise", "Device plugin or ResourceClaims for GPUs, and from one to the other."),
    "check": (
        "tonnage.cli.check",
        "check",
        "Read manifests and say what will not run or has no effect, and what helps.",
    ),
    "init": ("tonnage.cli.init", "init", "Write the scenario for a folder of manifests, or for a cluster."),
    "dump": ("tonnage.cli.cluster", "dump", "A cluster's objects, as FILES of other commands."),
    "render": ("tonnage.cli.render", "render", "Manifests for a cluster, from what it has: the agent of GPU nodes."),
    "schema": ("tonnage.cli.schema", "schema", "The JSON schema of what -o json prints."),
    "config": ("tonnage.cli.config", "config", "Defaults of options from the config file: what holds, and from where."),
    "completion": ("tonnage.cli.shell", "completion", "Completion for bash, zsh or fish."),
    "man": ("tonnage.cli.shell", "man", "Manual pages, from the text of --help."),
    "version": ("tonnage.cli.shell", "version", "The version."),
}


class ClosedPipe(Exception):
    """Whoever reads the output has closed it."""


class LazyGroup(click.Group):
    """Knows its commands and their summaries without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, which would take a closed pipe for an error of its own."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ClosedPipe from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {args[0]!r} ({hint})", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Manage the GPUs of a Kubernetes cluster: place, scale, provision, serve, account.

    The same decisions run in a simulated cluster on this machine and on a real one.
    """


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> None:
    """Entry point; ``program`` is the name in help and errors.

    Exits with 0; 1 when what was asked for went wrong; 2 for bad input or usage; 70 for a fault of ours; 130 when
    interrupted; 141 when whoever reads the output has closed it, as a program that SIGPIPE ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without a character is no reason to fail
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments), program)
        sys.stdout.flush()
    except (BrokenPipeError, ClosedPipe):
        # The reader has gone. Python would complain when it flushes what is left at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED_PIPE
    except OSError as error:
        terminal.echo(f"error: {error.filename or 'standard output'}: {error.strerror or error}", err=True)
        code = 1
    sys.exit(code)


def _run(arguments: list[str], program: str) -> int:
    try:
        code = cli.main(
            args=arguments or ["--help"],
            prog_name=program,
            standalone_mode=False,
            default_map=_configured(arguments),
        )
    except click.UsageError as error:
        terminal.echo(_usage(error, program), err=True)
        return 2
    except click.ClickException as error:
        terminal.echo(f"error: {error.format_message()}", err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        terminal.echo("interrupted", err=True)
        return 130
    except TonnageError as error:
        lines = str(error).split("\n")
        for line in lines[:MOST_ERRORS]:
            terminal.echo(f"error: {line}", err=True)
        if len(lines) > MOST_ERRORS:
            terminal.echo(f"error: {len(lines) - MOST_ERRORS} more", err=True)
        if isinstance(error, InputError):
            messages.warnings(error.beside[:MOST_ERRORS])
        return error.exit_code
    except (OSError, ClosedPipe):
        raise
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        what = " ".join(f"{type(error).__name__}: {error}".split())
        terminal.echo(f"internal error: {what}; please report, rerun with {DEBUG}=1 for the traceback", err=True)
        return INTERNAL_ERROR
    return code if isinstance(code, int) else 0


def _configured(arguments: Sequence[str]) -> dict[str, Any] | None:
    """What the config file sets, where a command is run that options are for. Raises InputError."""
    asks = arguments[:1] in ([], ["config"]) or {"-h", "--help", "--version"} & set(arguments)
    if asks or os.environ.get(COMPLETING):
        return None
    from tonnage.cli import config  # costs as much as half of the help

    return None if config.find() is None else config.load(cli).defaults


def _usage(error: click.UsageError, program: str) -> str:
    """One line that names the option or argument, and where to read on; the help text where nothing was asked."""
    context = error.ctx
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())) and context is not None:
        return context.get_help()
    command = context.command_path if context is not None else program
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"error: {message[:1].lower()}{message[1:]} (see {command} --help)"
