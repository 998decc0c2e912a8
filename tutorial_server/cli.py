"""The command `tutorial-server`. Nothing heavy is imported before it is needed."""

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from .config import Settings
from .errors import TutorialServerError
from .flags import add_load_plan, add_settings, flag, read_load_plan, read_settings

if TYPE_CHECKING:
    from .schemas import GenerateRequest

LIMITS = (
    "max_running",
    "max_waiting",
    "max_body_bytes",
    "kv_cache_gb",
    "prefill_chunk",
    "request_seconds",
)  # settings that doctor shows


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, or 2 where a sentence on stderr says what to do."""
    _print_what_the_terminal_can()
    args = _parse(argv)
    try:
        return args.run(args) or 0
    except TutorialServerError as error:
        print(f"tutorial-server: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        sys.stderr.close()
        return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; what `lab` does not know is for JupyterLab."""
    parser = _parser()
    args, unknown = parser.parse_known_args(argv)
    if args.run is _lab:
        args.jupyter_args += unknown
    elif unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _print_what_the_terminal_can() -> None:
    """Show `?` for a character that the terminal lacks, rather than break off an answer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tutorial-server", description="Learn LLM serving by building a server."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    lab = commands.add_parser("lab", help="open the course in JupyterLab")
    lab.add_argument(
        "jupyter_args", nargs="*", help="passed on to JupyterLab, such as --no-browser"
    )
    lab.set_defaults(run=_lab)

    serve = commands.add_parser("serve", help="start the server")
    serve.add_argument("--mine", action="store_true", help="serve with your own solutions")
    add_settings(serve, *Settings.model_fields)
    serve.set_defaults(run=_serve)

    ask = commands.add_parser("ask", help="answer one question here in the terminal")
    ask.add_argument("prompt")
    ask.add_argument("--token-limit", type=int, default=128, metavar="N")
    ask.add_argument("--temperature", type=float, default=0.0, metavar="T")
    ask.add_argument("--top-k", type=int, metavar="K")
    ask.add_argument("--top-p", type=float, metavar="P")
    ask.add_argument("--seed", type=int, metavar="N")
    ask.add_argument("--system", metavar="TEXT", help="system prompt; empty: none of ours")
    add_settings(ask, "model", "device", "dtype", "cache")
    ask.set_defaults(run=_ask)

    check = commands.add_parser("check", help="check your saved solutions, show your progress")
    check.set_defaults(run=_check)

    contract = commands.add_parser("contract", help="check the HTTP contract of anyone's server")
    contract.add_argument("url", metavar="URL", help="the server, as http://127.0.0.1:8000")
    contract.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="time for a check (default 60)"
    )
    contract.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_settings(contract, "api_key")
    contract.set_defaults(run=_contract)

    doctor = commands.add_parser("doctor", help="say what was found here, and what is missing")
    add_settings(doctor, "model", "device", "dtype", "cache", *LIMITS)
    doctor.set_defaults(run=_doctor)

    bench = commands.add_parser("bench", help="compare ways of decoding, in turn in one run")
    bench.add_argument(
        "--tokens", type=int, metavar="N", help="length of an answer: at least 32, with --many 2"
    )
    bench.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="at least 5; shown are their medians"
    )
    bench.add_argument(
        "--many", action="store_true", help="8 requests at once over HTTP instead, 64 tokens each"
    )
    bench.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_settings(bench, "model", "device", "dtype", "cache", "kv_cache_gb")
    bench.set_defaults(run=_bench)

    load = commands.add_parser("load", help="let many clients ask a server at once")
    add_load_plan(load)
    load.add_argument("--json", action="store_true", help="print JSON instead of a table")
    load.set_defaults(run=_load)
    return parser


def _lab(args: argparse.Namespace) -> int:
    from .course import open_lab

    return open_lab(args.jupyter_args)


def _serve(args: argparse.Namespace) -> int:
    settings = read_settings(args)  # before anything heavy is imported: a slip is told at once
    from .serving import serve

    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return serve(settings, mine=args.mine)


def _ask(args: argparse.Namespace) -> int:
    settings = read_settings(args)
    question = _question(args)
    from .ask import ask

    ask(settings, question)
    return 0


def _question(args: argparse.Namespace) -> "GenerateRequest":
    """Hold a question from the terminal to the same rules as one over HTTP."""
    from .schemas import GenerateRequest

    fields = ("prompt", "token_limit", "temperature", "top_k", "top_p", "seed", "system")
    try:
        return GenerateRequest(**{name: getattr(args, name) for name in fields})
    except ValidationError as error:
        first = error.errors()[0]
        raise TutorialServerError(f"{flag(str(first['loc'][0]))}: {first['msg']}.") from None


def _check(args: argparse.Namespace) -> int:
    from .exercises import print_saved

    return 0 if print_saved() else 1


def _contract(args: argparse.Namespace) -> int:
    from .contract import print_contract

    key = read_settings(args).api_key
    secret = key.get_secret_value() if key else None
    return 0 if print_contract(args.url, secret, args.seconds, args.json) else 1


def _doctor(args: argparse.Namespace) -> int:
    from .doctor import report

    print(report(read_settings(args)))
    return 0


def _bench(args: argparse.Namespace) -> int:
    settings = read_settings(args)
    if args.many:
        from .bench_many import bench_many

        return bench_many(settings, args.tokens or 64, args.rounds, args.json)
    from .bench import bench

    return bench(settings, args.tokens or 128, args.rounds, args.json)


def _load(args: argparse.Namespace) -> int:
    plan = read_load_plan(args)
    from .load import print_load

    print_load(plan, args.json)
    return 0
