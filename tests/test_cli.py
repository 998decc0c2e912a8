"""The command: quick help, one sentence for each fault, codes that scripts can rely on."""

import json
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from canned import HEAD, canned, text
from canned import end as stream_end

from tutorial_server.cli import main
from tutorial_server.config import Settings
from tutorial_server.errors import ModelError
from tutorial_server.flags import flag
from tutorial_server.load_plan import LoadPlan
from tutorial_server.schemas import GenerateRequest

COMMANDS = ("lab", "serve", "ask", "check", "contract", "doctor", "bench", "load")
SECONDS_FOR_HELP = 1.5


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUTORIAL_SERVER_PORT", raising=False)


def assert_one_sentence(stderr: str, *parts: str) -> None:
    assert stderr.startswith("tutorial-server: ")
    assert stderr.count("\n") == 1
    assert stderr.rstrip().endswith(".")
    for part in parts:
        assert part in stderr


def run_code(code: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **kwargs
    )


# Help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_what_can_be_said(command: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: tutorial-server {command}")
    if command == "serve":
        for name in Settings.model_fields:
            assert f"--{name.replace('_', '-')} " in shown
    if command in ("ask", "bench", "doctor"):
        assert "--device" in shown
        assert "--port" not in shown


def test_help_lists_the_commands(capsys: Any) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^    {command} +\w", shown, re.MULTILINE)


def test_help_is_instant_and_imports_nothing_heavy() -> None:
    code = f"""
import sys
from tutorial_server.cli import main
for arguments in [[], *([c] for c in {COMMANDS!r})]:
    try:
        main([*arguments, "--help"])
    except SystemExit as done:
        assert done.code == 0
heavy = {{"torch", "transformers", "fastapi", "uvicorn", "numpy", "jupyterlab"}}
print("heavy:", sorted(heavy & set(sys.modules)))
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run_code(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("heavy: []\n")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < SECONDS_FOR_HELP


def test_help_in_a_terminal_that_lacks_characters() -> None:
    done = run_code(
        "from tutorial_server.cli import main; main(['serve', '--help'])",
        env={"PYTHONIOENCODING": "ascii", "HOME": "/"},
    )
    assert done.returncode == 0, done.stderr
    assert "--port" in done.stdout
    assert "TUTORIAL_SERVER_?" in done.stdout


# What is refused


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["serve", "--fly"], ["ask"], ["ask", "a", "--token-limit", "x"]]
)
def test_a_wrong_command_line_is_2(arguments: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == 2
    assert "usage: tutorial-server" in capsys.readouterr().err


WRONG_SETTINGS = {
    "port": ["abc", "70000", "-1", "8000.5", "", "0x1f90"],
    "dtype": ["int8", "float64x", ""],
    "max-waiting": ["-1", "many", "1e3"],
    "max-body-bytes": ["0", "-5", "1MB"],
    "shutdown-seconds": ["-1", "inf"],
    "max-running": ["0", "x"],
    "kv-cache-gb": ["0", "inf", "nan", "4GB"],
    "prefill-chunk": ["0"],
    "request-seconds": ["0", "-1", "nan"],
}
PAIRS = [(name, value) for name, values in WRONG_SETTINGS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), PAIRS)
def test_a_wrong_flag_is_one_sentence_and_2(name: str, value: str, capsys: Any) -> None:
    assert main(["serve", f"--{name}={value}"]) == 2
    assert_one_sentence(capsys.readouterr().err, f"--{name} ", repr(value))


@pytest.mark.parametrize(("name", "value"), [pair for pair in PAIRS if pair[1]])
def test_a_wrong_variable_is_one_sentence_and_2(
    name: str, value: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"TUTORIAL_SERVER_{name.replace('-', '_').upper()}"
    monkeypatch.setenv(variable, value)
    assert main(["serve"]) == 2
    assert_one_sentence(capsys.readouterr().err, variable, repr(value))


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ([""], "--prompt"),
        ([" \t\n"], "--prompt"),
        (["a\udcff"], "--prompt"),
        (["a", "--system", "\udcff"], "--system"),
        (["a", "--token-limit", "0"], "--token-limit"),
        (["a", "--token-limit", "-3"], "--token-limit"),
        (["a", "--temperature", "-1"], "--temperature"),
        (["a", "--temperature", "nan"], "--temperature"),
        (["a", "--temperature", "inf"], "--temperature"),
        (["a", "--top-k", "-1"], "--top-k"),
        (["a", "--top-p", "1.5"], "--top-p"),
        (["a", "--seed", "-1"], "--seed"),
        (["a", "--seed", str(2**63)], "--seed"),
    ],
    ids=str,
)
def test_a_wrong_question_is_one_sentence_and_2(
    arguments: list[str], flag: str, capsys: Any
) -> None:
    assert main(["ask", *arguments]) == 2
    assert_one_sentence(capsys.readouterr().err, flag)


@pytest.mark.parametrize(("flag", "value"), [("--rounds", "4"), ("--tokens", "31")])
def test_a_bench_that_would_say_nothing(flag: str, value: str, capsys: Any) -> None:
    assert main(["bench", flag, value]) == 2
    assert_one_sentence(capsys.readouterr().err, flag)


def test_a_taken_port_is_one_sentence_and_2(capsys: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    captured = capsys.readouterr()
    assert_one_sentence(captured.err, f"port {port}", "Address already in use", "--port")
    assert captured.out == ""


@pytest.mark.parametrize("host", ["999.1.1.1", "no such host", "a" * 80, "192.0.2.1", "::g"])
def test_a_host_that_is_not_here_is_one_sentence_and_2(host: str, capsys: Any) -> None:
    assert main(["serve", "--host", host, "--port", "0"]) == 2
    assert_one_sentence(capsys.readouterr().err, f"Cannot listen on {host} port 0", "--host")


def test_a_model_that_is_not_here_is_one_sentence_and_2(tmp_path: Path, capsys: Any) -> None:
    missing = tmp_path / "missing"
    assert main(["ask", "hello", "--model", str(missing)]) == 2
    captured = capsys.readouterr()
    assert_one_sentence(captured.err, str(missing))
    assert captured.out == ""


# How commands are called


class Fake:
    """Stands for a command's module, so that nothing is loaded."""

    def __init__(self, result: Any = None, error: BaseException | None = None):
        self.calls: list[tuple[Any, ...]] = []
        self.result, self.error = result, error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, kwargs) if kwargs else args)
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fake]:
    def put(module: str, function: str, **kwargs: Any) -> Fake:
        stand_in = Fake(**kwargs)
        made = ModuleType(f"tutorial_server.{module}")
        setattr(made, function, stand_in)
        monkeypatch.setitem(sys.modules, f"tutorial_server.{module}", made)
        return stand_in

    return put


def test_ask_passes_its_question_on(fake: Any) -> None:
    ask = fake("ask", "ask")
    flags = ["--token-limit", "9", "--temperature", "0.5", "--top-k", "3", "--top-p", "0.9"]
    more = ["--seed", "4", "--system", "", "--model", "m", "--device", "cpu", "--cache", "/c"]
    assert main(["ask", "why?", *flags, *more]) == 0
    ((settings, question),) = ask.calls
    assert question == GenerateRequest(
        prompt="why?", token_limit=9, temperature=0.5, top_k=3, top_p=0.9, seed=4, system=""
    )
    assert (settings.model, settings.device, settings.cache) == ("m", "cpu", Path("/c"))


def test_asks_defaults_are_those_of_the_service(fake: Any) -> None:
    ask = fake("ask", "ask")
    assert main(["ask", "why?"]) == 0
    assert ask.calls[0][1] == GenerateRequest(prompt="why?")


def test_serve_reads_flags_before_variables(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = fake("serving", "serve", result=0)
    monkeypatch.setenv("TUTORIAL_SERVER_PORT", "9001")
    monkeypatch.setenv("TUTORIAL_SERVER_MAX_WAITING", "7")
    assert main(["serve", "--port", "9002"]) == 0
    settings = serve.calls[0][0]
    assert (settings.port, settings.max_waiting, settings.host) == (9002, 7, "127.0.0.1")


def test_bench_passes_its_flags_on(fake: Any) -> None:
    bench = fake("bench", "bench", result=0)
    assert main(["bench", "--tokens", "64", "--rounds", "7", "--json"]) == 0
    assert bench.calls[0][1:] == (64, 7, True)
    assert main(["bench"]) == 0
    assert bench.calls[1][1:] == (128, 5, False)


def test_bench_of_many_is_another(fake: Any) -> None:
    bench = fake("bench_many", "bench_many", result=0)
    assert main(["bench", "--many", "--kv-cache-gb", "2"]) == 0
    assert main(["bench", "--many", "--tokens", "9", "--rounds", "6", "--json"]) == 0
    assert [call[1:] for call in bench.calls] == [(64, 5, False), (9, 6, True)]
    assert bench.calls[0][0].kv_cache_gb == 2.0


def test_load_passes_its_plan_on(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load = fake("load", "print_load")
    assert main(["load", "http://127.0.0.1:9"]) == 0
    monkeypatch.setenv("TUTORIAL_SERVER_API_KEY", "k")
    flags = ["--clients", "3", "--requests", "7", "--seconds", "1.5", "--leave", "1/4"]
    more = ["--prompt-tokens", "2:9", "--token-limit", "5", "--seed", "4", "--json"]
    assert main(["load", "http://127.0.0.1:9", *flags, *more]) == 0
    assert load.calls == [
        (LoadPlan("http://127.0.0.1:9"), False),
        (
            LoadPlan(
                "http://127.0.0.1:9",
                clients=3,
                requests=7,
                seconds=1.5,
                leave=0.25,
                prompt_tokens=(2, 9),
                token_limit=(5, 5),
                seed=4,
                api_key="k",
            ),
            True,
        ),
    ]


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["localhost:8000"], "URL"),
        (["http://["], "URL"),
        (["http://a", "--clients", "0"], "--clients"),
        (["http://a", "--requests", "-1"], "--requests"),
        (["http://a", "--seconds", "0"], "--seconds"),
        (["http://a", "--leave", "3/2"], "--leave"),
        (["http://a", "--leave", "1/0"], "--leave"),
        (["http://a", "--prompt-tokens", "9:2"], "--prompt-tokens"),
        (["http://a", "--token-limit", "0"], "--token-limit"),
    ],
    ids=str,
)
def test_a_wrong_load_is_one_sentence_and_2(arguments: list[str], flag: str, capsys: Any) -> None:
    assert main(["load", *arguments]) == 2
    assert_one_sentence(capsys.readouterr().err, f"{flag} should be ")


def test_a_load_on_nobody_is_one_sentence_and_2(capsys: Any) -> None:
    assert main(["load", "http://127.0.0.1:1"]) == 2
    captured = capsys.readouterr()
    assert_one_sentence(captured.err, "Nothing answers at http://127.0.0.1:1")
    assert captured.out == ""


@pytest.mark.parametrize(("flag", "end"), [([], "\n"), (["--json"], "}\n")])
def test_a_load_prints_a_table_or_json(flag: list[str], end: str, capsys: Any) -> None:
    with canned([HEAD, text("a"), stream_end()]) as (url, _):
        assert main(["load", url, "--requests", "2", *flag]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(end)
    assert (json.loads(shown)["complete"] == 2) if flag else shown.startswith("2 requests in ")


def test_a_wrong_key_is_not_shown(capsys: Any) -> None:
    assert main(["serve", "--api-key", "se cret"]) == 2
    shown = capsys.readouterr().err
    assert_one_sentence(shown, "does not do for --api-key")
    assert "se cret" not in shown


def test_lab_passes_its_arguments_on(fake: Any) -> None:
    open_lab = fake("course", "open_lab", result=3)
    for dashes in (["--"], []):
        assert main(["lab", *dashes, "--no-browser", "--port=8899"]) == 3
        assert list(open_lab.calls[-1][0]) == ["--no-browser", "--port=8899"]


def test_only_lab_takes_what_it_does_not_know(
    fake: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    report = fake("doctor", "report")
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--no-browser"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --no-browser" in capsys.readouterr().err
    assert report.calls == []


def test_doctor_prints_its_report(fake: Any, capsys: Any) -> None:
    doctor = fake("doctor", "report", result="all is well")
    assert main(["doctor", "--max-running", "3", "--kv-cache-gb", "0.5"]) == 0
    (settings,) = doctor.calls[0]
    assert (settings.max_running, settings.kv_cache_gb) == (3, 0.5)
    assert capsys.readouterr().out == "all is well\n"


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (ModelError("No such model; take another."), 2, "tutorial-server: No such model; take"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["our own", "Ctrl-C"],
)
def test_how_a_command_ends(
    error: BaseException, code: int, shown: str, fake: Any, capsys: Any
) -> None:
    fake("ask", "ask", error=error)
    assert main(["ask", "why?"]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(shown)
    assert bool(captured.err) == bool(shown)
    assert captured.out == ""


def test_a_fault_of_ours_is_not_hidden(fake: Any) -> None:
    fake("ask", "ask", error=ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        main(["ask", "why?"])


def test_who_stops_reading_sees_no_traceback() -> None:
    code = """
import sys, types
class Question:
    def __init__(self, **fields): pass
def ask(settings, question):
    for _ in range(100_000):
        print("piece", flush=True)
for name, made in (("ask", {"ask": ask}), ("schemas", {"GenerateRequest": Question})):
    module = types.ModuleType(f"tutorial_server.{name}")
    vars(module).update(made)
    sys.modules[module.__name__] = module
from tutorial_server.cli import main
sys.exit(main(["ask", "why?"]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "piece\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 0


def test_settings_describe_every_flag() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert flag(name).startswith("--")
