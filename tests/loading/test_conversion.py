from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tiny import MERGES, tiny_tokenizer
from transformers import modeling_gguf_pytorch_utils

from tutorial_server.loading.conversion import convert
from tutorial_server.loading.model_folder import check_files
from tutorial_server.loading.reading import read_model, read_tokenizer

HIDDEN, HEADS, FEED, LAYERS = 32, 2, 64, 2  # Q4_1 packs 32 values a block
Q4_1 = gguf.GGMLQuantizationType.Q4_1
SHAPES = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // HEADS, HIDDEN),
    "attn_v": (HIDDEN // HEADS, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FEED, HIDDEN),
    "ffn_up": (FEED, HIDDEN),
    "ffn_down": (HIDDEN, FEED),
}


def add_settings(writer: gguf.GGUFWriter) -> int:
    """Write the sizes of a tiny Llama and its tokenizer; returns how many ids it has."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer.get_vocab()
    writer.add_name("tiny")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(ids, key=lambda token: ids[token]))
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_chat_template(tokenizer.chat_template)
    return len(ids)


def write_tiny_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write a random Llama with 4-bit weights, and return what each of them stands for."""
    writer = gguf.GGUFWriter(path, "llama")
    shapes = {"token_embd": (add_settings(writer), HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in SHAPES.items()}
    random = np.random.default_rng(0)
    expanded = {}
    for name, shape in shapes.items():
        packed = gguf.quants.quantize(random.normal(size=shape).astype(np.float32), Q4_1)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=Q4_1)
        expanded[name] = gguf.quants.dequantize(packed, Q4_1)
    norms = [f"blk.{layer}.{name}" for layer in range(LAYERS) for name in ("attn_norm", "ffn_norm")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expanded


def test_what_is_written_reads_as_the_expanded_weights(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expanded = write_tiny_gguf(tmp_path / "tiny.gguf")
    folder = tmp_path / "folder"
    folder.mkdir()
    convert(tmp_path / "tiny.gguf", folder)

    check_files(folder)
    model = read_model(folder, "tiny", torch.device("cpu"), torch.float32)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    for ours, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.layers.1.self_attn.v_proj", "blk.1.attn_v"),
        ("model.layers.0.self_attn.o_proj", "blk.0.attn_output"),
        ("model.layers.1.mlp.down_proj", "blk.1.ffn_down"),
    ):
        assert np.array_equal(weights[f"{ours}.weight"], expanded[theirs])
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert (model.config.max_position_embeddings, model.config.eos_token_id) == (512, 273)
    assert not hasattr(model.config, "quantization_config")
    tokenizer = read_tokenizer(folder, "tiny")
    assert tokenizer.encode("hello the\n\nthing") == tiny_tokenizer().encode("hello the\n\nthing")
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    assert "GGUF tensors" not in capfd.readouterr().err


def test_the_libraries_are_left_as_they_were(tmp_path: Path) -> None:
    before = gguf.GGUFReader, gguf.get_tensor_name_map, modeling_gguf_pytorch_utils.tqdm
    (tmp_path / "broken.gguf").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a GGUF file"):
        convert(tmp_path / "broken.gguf", tmp_path)
    after = gguf.GGUFReader, gguf.get_tensor_name_map, modeling_gguf_pytorch_utils.tqdm
    assert after == before
