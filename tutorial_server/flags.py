"""Settings and plans as flags of the command line, and back."""

import argparse
import math
from dataclasses import fields

from pydantic import ValidationError

from .config import Settings
from .errors import TutorialServerError
from .load_plan import LoadPlan


def add_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Make a flag of each named setting, with what `Settings` says of it."""
    group = parser.add_argument_group("settings, each also a variable TUTORIAL_SERVER_…")
    for name in names:
        field = Settings.model_fields[name]
        default = f" (default {field.default})" if field.default is not None else ""
        group.add_argument(flag(name), metavar="…", help=f"{field.description}{default}")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_settings(args: argparse.Namespace) -> Settings:
    """Read the settings: flags first, then the environment. Raises TutorialServerError."""
    flags = {name: getattr(args, name, None) for name in Settings.model_fields}
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        given = "What was given" if name == "api_key" else repr(first["input"])
        raise TutorialServerError(
            f"{given} does not do for {flag(name)} "
            f"(TUTORIAL_SERVER_{name.upper()}): {first['msg']}."
        ) from None


def add_load_plan(parser: argparse.ArgumentParser) -> None:
    """Make the flags of a load: everything that a plan holds but the patience of a client."""
    parser.add_argument(
        "url",
        metavar="URL",
        help="the server, as http://127.0.0.1:8000; TUTORIAL_SERVER_API_KEY is sent if it is set",
    )
    for name, kind, text in (
        ("clients", int, "clients that ask at once"),
        ("requests", int, "requests in all"),
        ("seconds", float, "time limit for all of it"),
        ("leave", _share, "share of requests whose client leaves in mid-answer, as 1/3"),
        ("prompt_tokens", _span, "about so many tokens a prompt, as LEAST:MOST"),
        ("token_limit", _span, "tokens asked for, as LEAST:MOST"),
        ("seed", int, "what the questions are drawn from"),
    ):
        default = getattr(LoadPlan, name)
        shown = ":".join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(
            flag(name), type=kind, default=default, metavar="…", help=f"{text} (default {shown})"
        )


def read_load_plan(args: argparse.Namespace) -> LoadPlan:
    """Make the plan. Raises TutorialServerError."""
    given = {f.name: getattr(args, f.name) for f in fields(LoadPlan) if hasattr(args, f.name)}
    if key := read_settings(args).api_key:
        given["api_key"] = key.get_secret_value()
    try:
        return LoadPlan(**given)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise TutorialServerError(f"{'URL' if name == 'url' else flag(name)} {rest}.") from None


def _share(text: str) -> float:
    """Read `0.25` or `1/4`; what divides by 0 is no number, and the plan refuses it."""
    over, _, under = text.partition("/")
    return float(over) / (float(under or 1) or math.nan)


def _span(text: str) -> tuple[int, int]:
    """Read `8:64`, or `64` for always as many."""
    least, _, most = text.partition(":")
    return int(least), int(most or least)


_share.__name__, _span.__name__ = "share", "LEAST:MOST"  # what argparse calls a wrong one
