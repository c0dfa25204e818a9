"""One decoder layer of TinyLlama-1.1B as a plain nn.Module, computed step by step as its authors' model code does.

Norms in fp32 with a rounding before the weight, rotary embeddings by rotate-half, fewer key heads than query heads, a
causal mask, SwiGLU. Attention is either spelled out (`eager`: repeated key heads, additive mask, softmax in fp32) or
PyTorch's own operator (`sdpa`). Source of the computation: transformers, models/llama/modeling_llama.py.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a layer; the defaults are TinyLlama-1.1B's."""
    hidden: int = 2048
    intermediate: int = 5632
    heads: int = 32
    kv_heads: int = 4
    head: int = 64
    eps: float = 1e-5


SMALL = Sizes(hidden=48, intermediate=80, heads=6, kv_heads=2, head=8)
"""A layer that tests can evaluate element by element."""


class RMSNorm(nn.Module):
    def __init__(self, hidden: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x):
        wide = x.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + self.eps)
        return self.weight * wide.to(x.dtype)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def repeat_kv(x, repeats: int):
    batch, heads, length, size = x.shape
    x = x[:, :, None].expand(batch, heads, repeats, length, size)
    return x.reshape(batch, heads * repeats, length, size)


class Attention(nn.Module):
    def __init__(self, sizes: Sizes, kind: str):
        super().__init__()
        self.sizes, self.kind = sizes, kind
        self.q_proj = nn.Linear(sizes.hidden, sizes.heads * sizes.head, bias=False)
        self.k_proj = nn.Linear(sizes.hidden, sizes.kv_heads * sizes.head, bias=False)
        self.v_proj = nn.Linear(sizes.hidden, sizes.kv_heads * sizes.head, bias=False)
        self.o_proj = nn.Linear(sizes.heads * sizes.head, sizes.hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        shape = (batch, length, -1, self.sizes.head)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        out = self.attend(q, k, v).transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(out)

    def attend(self, q, k, v):
        scale = self.sizes.head ** -0.5
        if self.kind == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        repeats = self.sizes.heads // self.sizes.kv_heads
        k, v = repeat_kv(k, repeats), repeat_kv(v, repeats)
        length = q.shape[2]
        mask = torch.full((length, length), torch.finfo(q.dtype).min, dtype=q.dtype, device=q.device).triu(1)
        scores = torch.matmul(q, k.transpose(2, 3)) * scale + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(weights, v)


class MLP(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.up_proj = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """hidden states [batch, length, hidden], cos and sin [batch, length, head] -> [batch, length, hidden].

    attention: "eager" or "sdpa".
    """

    def __init__(self, sizes: Sizes = Sizes(), attention: str = "eager"):
        super().__init__()
        self.input_layernorm = RMSNorm(sizes.hidden, sizes.eps)
        self.self_attn = Attention(sizes, attention)
        self.post_attention_layernorm = RMSNorm(sizes.hidden, sizes.eps)
        self.mlp = MLP(sizes)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token numbers i64[batch, length] -> logits [batch, length, vocabulary]: embedding, layers, final norm, head."""

    def __init__(self, sizes: Sizes = Sizes(), layers: int = 22, vocabulary: int = 32000, attention: str = "sdpa"):
        super().__init__()
        self.sizes = sizes
        self.embed_tokens = nn.Embedding(vocabulary, sizes.hidden)
        self.layers = nn.ModuleList(DecoderLayer(sizes, attention) for _ in range(layers))
        self.norm = RMSNorm(sizes.hidden, sizes.eps)
        self.lm_head = nn.Linear(sizes.hidden, vocabulary, bias=False)
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(0, sizes.head, 2, dtype=torch.float32) / sizes.head), False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        angles = torch.arange(tokens.shape[1], device=tokens.device).float()[:, None] * self.inv_freq.float()
        angles = torch.cat((angles, angles), dim=-1)[None]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def rotary(length: int, head: int, dtype: torch.dtype, base: float = 10000.0) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of positions 0 .. length - 1, [1, length, head] each, computed in fp32."""
    frequencies = base ** -(torch.arange(0, head, 2, dtype=torch.float32) / head)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)[None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def layer(sizes: Sizes = Sizes(), length: int = 128, dtype: torch.dtype = torch.float32, batch: int = 1,
          attention: str = "eager", seed: int = 0) -> tuple[DecoderLayer, tuple[torch.Tensor, ...]]:
    """A layer with random weights, norm weights around 1, and example inputs for it."""
    generator = torch.Generator().manual_seed(seed)
    module = drawn(DecoderLayer(sizes, attention), generator)
    x = torch.randn(batch, length, sizes.hidden, generator=generator).to(dtype)
    return module.to(dtype), (x, *rotary(length, sizes.head, dtype))


def model(sizes: Sizes = SMALL, layers: int = 3, vocabulary: int = 50, length: int = 13, dtype: torch.dtype = torch.float32,
          attention: str = "sdpa", seed: int = 0) -> tuple[Decoder, tuple[torch.Tensor, ...]]:
    """A whole model with random weights, and example inputs for it."""
    generator = torch.Generator().manual_seed(seed)
    module = drawn(Decoder(sizes, layers, vocabulary, attention), generator)
    return module.to(dtype), (torch.randint(vocabulary, (1, length), generator=generator),)


def drawn(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """A module in evaluation mode with random weights, those of norms around 1."""
    with torch.no_grad():
        for p in module.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1 + 0.1 * noise if p.ndim == 1 else noise * p.shape[1] ** -0.5)
    return module.eval()
