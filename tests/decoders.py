"""Tokenizers that decode as SentencePiece models do: byte tokens, spaces inside, one stripped."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """Like Llama 2's: what is not in the vocabulary is spelled in byte tokens, so is a newline."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "</s>", "▁", *"abcdehlo"]
    merges = [("▁", "a"), ("▁", "h"), ("l", "o"), ("▁", "▁")]
    pieces += [left + right for left, right in merges]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """Words that carry their space in front; the decoder takes the answer's first one off."""
    pieces = ["<unk>", "</s>", "▁", "▁▁", "▁hello", "▁a", "a", "b", "▁.", ".", "n't", "▁don"]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
