"""The model with its cover off: the forward pass of the Llama family, over cache slots."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.nn.functional import rms_norm as fused_rms_norm

from .forward_pass import ForwardPass, Span
from .layers import Angles, attend_prompt, attend_rows, gate
from .linear import Linear, fuse
from .loading.machine import free_bytes
from .models import LLM, weight_bytes
from .slots import SlotCache

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Rotate = Callable[[Tensor, Tensor, float], Tensor]
FAMILY = ("llama", "qwen3")
MOST_OF_FREE = 0.5  # of the memory that is free, for packed weights


def why_not(llm: LLM) -> str | None:
    """Say what keeps a model from being opened, or None.

    The forward pass is written for one family; a model outside it is served through
    transformers' own.
    """
    config = llm.model.config
    if config.model_type not in FAMILY:
        return f"its type is {config.model_type}, not {' or '.join(FAMILY)}"
    if config.hidden_act != "silu":
        return f"its MLP opens with {config.hidden_act}, not silu"
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return "some of its layers attend to a window only"
    if config.rope_parameters["rope_type"] not in ("default", "linear", "llama3", "yarn"):
        return f"its rotary positions are of the type {config.rope_parameters['rope_type']}"
    if not _is_plain(llm):
        return "its weights are quantised, adapted, or spread over devices"
    return None


def _is_plain(llm: LLM) -> bool:
    """Whether every weight is there as a matrix, and nothing but a product is made of it."""
    modules = dict(llm.model.named_modules())
    products = [m for name, m in modules.items() if name.endswith(("_proj", "lm_head"))]
    return (
        llm.device.type != "meta"
        and llm.dtype.itemsize > 1  # float8 weights come with scales
        and all(type(module) is nn.Linear for module in products)
        and all((w.device, w.dtype) == (llm.device, llm.dtype) for w in llm.model.parameters())
    )


@dataclass(frozen=True)
class Layer:
    """One layer's weights; projections that read the same input are fused."""

    attention_norm: Tensor  # [E]
    qkv: Linear  # E → (H + 2 K) × D
    head_norms: Tensor | None  # [H + K, D]: Qwen3 norms queries and keys, each head alike
    out: Linear  # H × D → E
    mlp_norm: Tensor  # [E]
    gate_up: Linear  # E → 2 M
    down: Linear  # M → E


class Transformer:
    """The forward pass written out, straight on the loaded weights.

    E is the hidden size, M the MLP's. `rotate` and `attend` can be anyone's; without them
    angles and masks are made once a pass instead of once a layer.
    """

    def __init__(self, llm: LLM, *, rotate: Rotate | None = None, attend: Attend | None = None):
        config, base = llm.model.config, llm.model.model
        self.H = config.num_attention_heads
        self.K = config.num_key_value_heads
        self.D = getattr(config, "head_dim", None) or config.hidden_size // self.H
        self.eps = config.rms_norm_eps
        self.theta = config.rope_parameters["rope_theta"]
        # Packed weights are a copy: the loaded ones stay, for transformers' own forward.
        pack = weight_bytes(llm) < MOST_OF_FREE * free_bytes(llm.device)
        self.layers = [self._open(layer, pack) for layer in base.layers]
        self._embeddings = base.embed_tokens.weight  # [V, E]
        self._norm = base.norm.weight  # [E]
        self._head = fuse([llm.model.lm_head], llm.vocab_size, pack=pack)
        self._frequencies = base.rotary_emb.inv_freq  # [D / 2]
        self._scale = base.rotary_emb.attention_scaling
        self._rotate = rotate
        self._attend_rows = attend

    def _open(self, layer: Any, pack: bool) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm.weight, attention.k_norm.weight
            norms = torch.cat((q.expand(self.H, -1), k.expand(self.K, -1)))  # [H + K, D]
        return Layer(
            attention_norm=layer.input_layernorm.weight,
            qkv=fuse([attention.q_proj, attention.k_proj, attention.v_proj], pack=pack),
            head_norms=norms,
            out=fuse([attention.o_proj], pack=pack),
            mlp_norm=layer.post_attention_layernorm.weight,
            gate_up=fuse([mlp.gate_proj, mlp.up_proj], pack=pack),
            down=fuse([mlp.down_proj], pack=pack),
        )

    @torch.inference_mode()
    def forward(self, work: ForwardPass, cache: SlotCache) -> Tensor:
        """Read N tokens of B rows: logits `[B, V]` for what follows each row's last."""
        turn = self._turn(work.positions)
        x = embedding(work.token_ids, self._embeddings)  # [N, E]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            attended = self._attention(x, layer, keys, values, work, turn)  # [N, H × D]
            x = layer.out(attended, plus=x)
            opened = gate(layer.gate_up(self._normed(x, layer.mlp_norm)))  # [N, M]
            x = layer.down(opened, plus=x)
        return self._head(self._normed(x[work.last], self._norm))  # [B, V]

    def _attention(
        self,
        x: Tensor,
        layer: Layer,
        keys: Tensor,
        values: Tensor,
        work: ForwardPass,
        turn: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """`x [N, E]`, a layer's `keys, values [slots, K, S, D]` → `[N, H × D]`."""
        N, H, K, D = x.shape[0], self.H, self.K, self.D
        heads = layer.qkv(self._normed(x, layer.attention_norm)).view(N, H + 2 * K, D)
        qk, v = heads.split((H + K, K), dim=1)  # [N, H + K, D], [N, K, D]
        if layer.head_norms is not None:
            qk = fused_rms_norm(qk, (D,), eps=self.eps) * layer.head_norms
        q, k = turn(qk).split((H, K), dim=1)  # [N, H, D], [N, K, D]
        keys.view(-1, D).index_copy_(0, work.places, k.reshape(-1, D))
        values.view(-1, D).index_copy_(0, work.places, v.reshape(-1, D))
        seen = [self._attend(q[span.tokens], keys, values, span) for span in work.spans]
        attended = seen[0] if len(seen) == 1 else torch.cat(seen)  # [N, H, D]
        return attended.reshape(N, H * D)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, span: Span) -> Tensor:
        keys = keys[span.slots, :, : span.longest]  # [B, K, S, D]
        values = values[span.slots, :, : span.longest]
        if span.lengths is None:
            return attend_prompt(q, keys[0], values[0], span.seen)  # [T, H, D]
        if self._attend_rows is not None:
            return self._attend_rows(q, keys, values, span.lengths)  # [B, H, D]
        assert span.seen is not None
        return attend_rows(q, keys, values, span.seen)  # [B, H, D]

    def _turn(self, positions: Tensor) -> Callable[[Tensor], Tensor]:
        if (rotate := self._rotate) is not None:
            return lambda x: rotate(x, positions, self.theta)
        return Angles.at(positions, self._frequencies, self._scale).turn

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return fused_rms_norm(x, weight.shape, weight, self.eps)
