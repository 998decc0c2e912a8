"""Everything about the server that can be set, in one place."""

from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _can_be_sent(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if not (text and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("should be printable ASCII without spaces, to fit into a header")
    return key


class Settings(BaseSettings):
    """What a server is started with: each field is also a variable and a flag.

    `Settings(port=9000)`, `TUTORIAL_SERVER_PORT=9000` and `--port 9000` mean the same;
    what is given in code wins over a flag's absence, a flag over the environment.
    """

    model_config = SettingsConfigDict(
        env_prefix="TUTORIAL_SERVER_", env_ignore_empty=True, frozen=True
    )

    model: Annotated[
        str | None,
        Field(description="hub id, local folder, or smollm2-135m (default: what fits here)"),
    ] = None
    device: Annotated[str | None, Field(description="cpu, cuda, cuda:1, mps …")] = None
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        Field(description="number format of the weights"),
    ] = None
    cache: Annotated[Path, Field(description="folder that holds the converted small model")] = (
        user_cache_path("tutorial_server")
    )

    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(description="port to listen on", ge=0, le=65535)] = 8000
    api_key: Annotated[
        Annotated[SecretStr, AfterValidator(_can_be_sent)] | None,
        Field(
            description="key that clients must send; better a variable, as others see flags"
            " (default: none)"
        ),
    ] = None
    max_body_bytes: Annotated[int, Field(description="largest request body", ge=1)] = 1_000_000
    max_waiting: Annotated[int, Field(description="requests that may wait in line", ge=0)] = 64
    max_running: Annotated[
        int, Field(description="answers at once, where the KV cache has room", ge=1)
    ] = 16
    kv_cache_gb: Annotated[
        float,
        Field(description="memory for the KV cache, in 10^9 bytes", gt=0, allow_inf_nan=False),
    ] = 4.0
    prefill_chunk: Annotated[
        int, Field(description="prompt tokens read between two tokens of running answers", ge=1)
    ] = 128
    request_seconds: Annotated[float, Field(description="time limit for a whole request", gt=0)] = (
        300.0
    )
    shutdown_seconds: Annotated[
        int, Field(description="grace for running answers after Ctrl-C", ge=0)
    ] = 2
