"""Every operator of Torch IR, entered, means what it means to PyTorch: odd sizes, no elements, one element, 0-d."""
import pytest

from rules.definitions import DEFINITIONS
from deplodock.ir.torch import OPERATORS
from tests.enter.checks import check

POINTWISE = """
x = torch.randn(5, 7); x + 1, 2 - x, x * 0.5, x.add(x, alpha=3), torch.rsub(x, x, alpha=2)

x = torch.randn(5, 7); y = torch.rand(7) + .5
(x // y, x % y, x / y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), torch.atan2(x, y))

y = torch.rand(7) + .5; x = torch.randn(5, 7); y ** x, y ** 3, y ** .5, y ** -.5, y ** -1, y ** -2, y ** 2, 2 ** x

x = torch.randn(5, 7)
(x.neg(), x.abs(), x.sign(), x.sin(), x.cos(), x.tan(), x.atan(), x.tanh(), x.sigmoid(), x.erf(), x.relu())

x = torch.rand(5, 7) + .1
(x.reciprocal(), x.sqrt(), x.rsqrt(), x.exp(), torch.exp2(x), torch.expm1(x), x.log(), x.log2(), x.log1p())

x = torch.randn(5, 7) * 4; x.floor(), x.ceil(), x.round(), x.trunc(), x.isnan(), x.isinf(), torch.isfinite(x / 0)

x = torch.randn(5, 7); x.clamp(-1, 1), torch.maximum(x, x * 2), torch.minimum(x, x[0]), F.relu6(x), F.hardtanh(x)

x = torch.rand(5, 7) * 2 - .9; y = torch.randn(7)
(x.asin(), x.acos(), x.sinh(), x.cosh(), x.asinh(), (x + 2).acosh(), x.atanh(), x.erfc(), x.lgamma(), (x + 1).log10(),
 torch.hypot(x, y), torch.copysign(x, y), torch.signbit(y), torch.round(x, decimals=1))

x = torch.randn(5, 7); F.softplus(x), F.leaky_relu(x), F.elu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x)

x = torch.randn(5, 7)
(x > 0, x >= x[0], x < 0.5, x <= x, x.eq(x), x.ne(0), torch.logical_and(x > 0, x < 1), torch.logical_not(x > 0))

x = torch.randn(5, 7)
(torch.where(x > 0, x, 0), torch.where(x > 0, 1.0, 0.0), x.masked_fill(x > 0, -1e9), torch.where(x > 0, x, x[0]))

x = torch.randn(5, 7)
(x.half().float(), x.to(torch.int32), x.bool(), x.double(), x.bfloat16().half(), (x > 0).float(), x.long() + x)

x = torch.randn(()); x + 1, x * x, x.exp()

x = torch.randn(0, 7); x + 1, x * x[:, :1], x > 0

x = torch.randn(1, 1, 7); y = torch.randn(3, 1); x * y, x + y[0]
"""

INTEGERS = """
x = torch.randint(-5, 5, (5, 7)); y = torch.randint(1, 5, (7,))
(x // y, x % y, x / y, x * y + 2, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"))

x = torch.randint(-5, 5, (5, 7)); y = torch.randint(1, 5, (7,))
(x & y, x | y, x ^ y, ~x, x << 1, x >> 1, x ** 2, x.abs(), x.sign(), x.relu())

x = torch.randint(-5, 5, (5, 7))
(x.sum(0), x.amax(1), x.argmax(1), x.float().mean(), x.prod(1), (x > 0).sum(), x.any(), x.to(torch.int8) * 70)

x = torch.randint(-5, 5, (5, 7)); x.to(torch.uint8), x.to(torch.int16) + 1, x @ x.T, x.float() + x
"""

REDUCTIONS = """
x = torch.randn(5, 7, 3)
(x.sum(), x.sum((0, 2)), x.sum(0, keepdim=True), x.mean(1), x.mean(), x.prod(1), x.amax(0), x.amin((0, 1)), x.max())

x = torch.randn(5, 7, 3)
(x.max(1)[0], x.max(1)[1], x.min(0)[1], x.argmin(2), x.argmax(0, keepdim=True), x.argmax(), (x > 1).any(1),
 (x > -1).all())

x = torch.randn(3, 0, 4); x.sum(1), x.prod(1), (x > 0).any(1), (x > 0).all(1), x.mean(), x.sum(0), x.amax(2)

x = torch.randn(5, 7); torch.any(x, ()), torch.all(x > 0, ()), x.sum(()), torch.any(x, None)

x = torch.randn(1, 5, 1); x.sum(0), x.amax(2), x.argmax(0), x.argmax(), x.mean((0, 2)), F.softmax(x, 0)

x = torch.randn(5, 7)
(F.softmax(x, 0), F.softmax(x, -1), F.log_softmax(x, 1), F.softmax(x.T, -1), F.softmax(x, -1, dtype=torch.float64))

x = torch.randn(3, 0); F.softmax(x, -1), F.softmax(x, 0), F.rms_norm(x.T, (3,))

x = torch.randn(2, 3, 5)
(F.layer_norm(x, (3, 5), torch.randn(3, 5)), F.layer_norm(x, (5,)),
 F.layer_norm(x, (5,), torch.randn(5), torch.randn(5), 1e-3))

x = torch.randn(2, 3, 5)
(F.rms_norm(x, (3, 5), torch.randn(3, 5), 1e-3), F.rms_norm(x, (5,)), nn.RMSNorm(5)(x), nn.LayerNorm(5)(x))

x = torch.tensor([[float("-inf")] * 3, [0., 1., float("-inf")]]); F.softmax(x, -1), F.log_softmax(x, -1), x.amax(1)
"""

PRODUCTS = """
x = torch.randn(5, 7); w = torch.randn(7, 3); x @ w, x @ x.T, w.T @ w

(torch.randn(7) @ torch.randn(7), torch.randn(3, 7) @ torch.randn(7), torch.randn(7) @ torch.randn(7, 2),
 torch.randn(2, 1, 3, 7) @ torch.randn(4, 7, 2))

x = torch.randn(5, 1); x @ torch.randn(1, 3), x.T @ x, F.linear(x, torch.randn(4, 1))

torch.randn(5, 0) @ torch.randn(0, 3), torch.randn(0, 4) @ torch.randn(4, 3), torch.randn(2, 3, 0) @ torch.randn(0, 5)

(nn.Linear(7, 5)(torch.randn(3, 2, 7)), nn.Linear(7, 5, bias=False)(torch.randn(7)),
 F.linear(torch.randn(3, 7), torch.randn(1, 7)))

a, b = torch.randn(3, 4), torch.randn(4, 5)
(torch.addmm(torch.randn(5), a, b, beta=.5, alpha=2), torch.addmm(torch.randn(3, 5), a, b, beta=0),
 torch.addmm(torch.randn(3, 5), a, b))

(torch.bmm(torch.randn(2, 3, 4), torch.randn(2, 4, 5)),
 torch.baddbmm(torch.randn(2, 3, 5), torch.randn(2, 3, 4), torch.randn(2, 4, 5)))

(torch.mv(torch.randn(3, 4), torch.randn(4)), torch.outer(torch.randn(3), torch.randn(4)),
 torch.dot(torch.randn(3), torch.randn(3)))

(torch.einsum("ii->i", torch.randn(4, 4)), torch.einsum("ij->", torch.randn(4, 5)),
 torch.einsum("i,j->ij", torch.randn(4), torch.randn(5)), torch.einsum("ij->ji", torch.randn(4, 5)))

(torch.einsum("bhqd,bhkd->bhqk", torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5)),
 torch.einsum("...ij,jk->...ik", torch.randn(2, 3, 4), torch.randn(4, 5)))

(torch.einsum("bij,bjk,kl->bil", torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(5, 2)),
 torch.einsum("ij,ij->i", torch.randn(4, 5), torch.randn(4, 5)),
 torch.einsum("ij,jk,kl->", torch.randn(2, 3), torch.randn(3, 4), torch.randn(4, 2)))

b = torch.rand(3, 4) > .5; i = torch.randint(-9, 9, (3, 4), dtype=torch.int8)
(torch.einsum("ij->j", b), torch.einsum("ij->i", i), torch.einsum("ij,ij->ji", b, torch.randn(3, 4)),
 torch.einsum("ij,ij->ij", i, i.long()))
"""

ATTENTION = """
x = torch.randn(2, 3, 5, 8)
(F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x, is_causal=True))

q = torch.randn(1, 4, 6, 8); k = torch.randn(1, 4, 9, 8); v = torch.randn(1, 4, 9, 3)
F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=.3)

q = torch.randn(1, 4, 9, 8); k = torch.randn(1, 2, 6, 8)
F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

q = torch.randn(1, 4, 1, 8); k = torch.randn(1, 2, 9, 8); F.scaled_dot_product_attention(q, k, k, enable_gqa=True)

q = torch.randn(2, 5, 8); F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q[0], q[1], q[0])

q = torch.randn(2, 3, 5, 8)
(F.scaled_dot_product_attention(q, q, q, attn_mask=torch.randn(2, 1, 5, 5)),
 F.scaled_dot_product_attention(q, q, q, attn_mask=torch.randn(5, 5) > -1))

q = torch.randn(1, 2, 2, 8); k = torch.randn(1, 2, 3, 8)
m = torch.tensor([[float("-inf")] * 3, [0., float("-inf"), 1.]])
(F.scaled_dot_product_attention(q, k, k, attn_mask=m), F.softmax(q @ k.mT + m, -1) @ k)

q = torch.randn(1, 2, 2, 8); m = torch.tensor([[False, False], [True, False]])
F.scaled_dot_product_attention(q, q, q, attn_mask=m)

q = torch.randn(1, 2, 2, 8)
m = torch.tensor([[torch.finfo(torch.float32).min] * 2, [0., torch.finfo(torch.float32).min]])
(F.scaled_dot_product_attention(q, q, q, attn_mask=m), F.softmax(q @ q.mT + m, -1) @ q)
"""

VIEWS = """
x = torch.randn(2, 3, 4, 5)
(x.permute(3, 0, 2, 1), x.transpose(1, 2).reshape(2, 4, 15), x.flatten(1), x.movedim(0, 2), x.unflatten(3, (5, 1)),
 x.mT)

x = torch.randn(2, 3, 4, 5)
(x[:, 1], x[..., ::2], x[:, -1:], x[1:, :, 1:3], x.chunk(2, 2)[1], x.split([1, 3], 2)[1], x.unbind(0)[1],
 x.narrow(3, 1, 3))

x = torch.randn(4, 6, 8); x.reshape(24, 8).reshape(4, 2, 3, 8).permute(0, 2, 1, 3).reshape(12, 16) * 2

x = torch.randn(6, 10); x.reshape(15, 4) + 1, x.reshape(15, 4).sum(1), x.flatten()[3:17]

x = torch.randn(2, 12); x.view(2, 3, 4)[:, 1:].reshape(2, 8), x.view(4, 6) + x.view(6, 4).T

x = torch.randn(1, 1, 7); x.squeeze(), x.unsqueeze(0), x.expand(3, 4, 7) + 1, x.reshape(7, 1), x[0, 0, 3]

x = torch.randn(2, 3, 4); y = torch.randn(2, 5, 4)
(torch.cat([x, y, x], 1), torch.cat([x, x, x], 0), torch.stack([x, x * 2], 0), torch.stack([x, x * 2], -1),
 torch.cat([x, x], -1))

x = torch.randn(2, 3, 4)
(x.repeat(2, 1, 3), x.repeat_interleave(3), x.repeat_interleave(2, 1), torch.cat([x, torch.randn(2, 0, 4)], 1),
 torch.cat([x[:, :0], x], 1))

x = torch.randn(3, 0, 4)
(x.reshape(0, 12), x.transpose(0, 1), torch.cat([x, torch.randn(3, 2, 4)], 1), torch.cat([x, x], 1),
 x.expand(2, 3, 0, 4))

x = torch.randn(2, 6, 8)
(torch.cat([-x[..., 4:], x[..., :4]], -1), torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2))

x = torch.randn(2, 20); q, k, v = x.split([12, 4, 4], -1); q.view(2, 3, 4) @ k.view(2, 4, 1), v

x = torch.randn(3, 24); q, k, v = x.chunk(3, -1)
F.softmax(q.view(3, 2, 4).transpose(0, 1) @ k.view(3, 2, 4).permute(1, 2, 0), -1) @ v.view(3, 2, 4).transpose(0, 1)

x = torch.randn(5, 7)
(x.tril(), x.tril(-1), x.triu(1), x.triu(-2), x.T.tril(2),
 torch.triu(torch.full((5, 5), float("-inf")), 1) + x[:, :5])

(torch.arange(7)[None] <= torch.arange(5)[:, None], torch.arange(3, 20, 4), torch.arange(0., 1., .125),
 torch.arange(5, 0, -1), torch.eye(4, 6))

torch.ones(3, 2), torch.zeros(2, dtype=torch.int32), torch.full((2, 2), 7), torch.zeros(0, 3), torch.ones(())

(nn.Embedding(10, 4)(torch.randint(0, 10, (3, 5))), F.embedding(torch.tensor(1), torch.randn(3, 4)),
 F.embedding(torch.randint(0, 3, (0, 2)), torch.randn(3, 4)))

x = torch.randn(3, 4); x, x.T, x.T.T, x

x = torch.randn(3, 5, 4)
(x.flip(0, -1), x.flip(1) + x, x.roll(2, 1), x.roll((-1, 7), (0, 2)), x.roll(4), x.rot90(1, (0, 2)), x[0].fliplr(),
 x.roll(1, 1)[:, :3], x.roll((1, 2), (0, 0)), torch.randn(0, 3).roll(1, 0), torch.tensor(2.).flip(()))

x = torch.randn(2, 3, 5, 4)
(F.pad(x, (1, 2, 0, 1), value=2.), F.pad(x, (-1, 2)), F.pad(x, (2, 1, 3, 2), "reflect"), F.pad(x[0], (3, 2), "reflect"),
 F.pad(x, (1, 5, 3, 0), "replicate"), F.pad(x, (4, 1, 2, 5), "circular"), F.pad(x[:, :, :0], (0, 0, 1, 1)),
 F.pad(x, (1, 0, -1, 1), "replicate"), F.pad(x[None], (1, 1, 1, 1, 1, 1), "reflect"), F.pad(x > 0, (1, 1), value=True))

x = torch.randn(2, 3, 6, 5)
(x.unfold(2, 3, 2), x.unfold(3, 2, 1).unfold(2, 2, 2), x.unfold(1, 3, 1).sum(-1), F.unfold(x, (2, 3)),
 F.unfold(x, 2, dilation=2, padding=1, stride=(2, 1)), F.unfold(x[0], 3), torch.tensor(1.).unfold(0, 1, 1))

x = torch.randn(2, 12, 12); y = torch.randn(2, 12, 8)
F.fold(x, (4, 5), (2, 2)), F.fold(x[0], (4, 7), (2, 2), dilation=(1, 2), padding=1, stride=(2, 2))

x = torch.randn(3, 5, 4)
(x.diagonal(), x.diagonal(1, 0, 2), x.diagonal(-2, 2, 1), x[0].diag(), x[0].diag(-3), x[0, 0].diag(1), x[0].trace(),
 torch.diag_embed(x[0], 1), x.diagonal(7), x.as_strided((2, 3), (1, 4), 5), x.as_strided((2, 2, 2), (3, 0, 1)))

x = torch.randn(3, 5, 4); y = torch.randn(2, 5, 4)
(x.slice_scatter(y, 0, 1), x.slice_scatter(y, 0, 0, 3, 2), x.select_scatter(y[0], 0, -1), x[0].slice_scatter(x[1]),
 x.diagonal_scatter(y[0, :3].T, 0, 0, 1), x.diagonal_scatter(y[0, :, :2], -1, 0, 2),
 x.index_fill(1, torch.tensor([0, -1]), 2.), F.one_hot(torch.tensor([[0, 2], [1, 1]]), 4))

x = torch.randn(4, 6); y = x.clone()
y[:, 1] = 3; y[1:3] += 1; y.diagonal().zero_(); y[::2, 0] = 7; y.t()[0] = x[:, 1]; y[:2, 2:4].copy_(x[2:, :2]); y

x = torch.randn(2, 8, 3, 4)
(F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :2, :], 2), F.channel_shuffle(x, 4), torch.kron(x[0, 0], x[1, 1]),
 torch.block_diag(x[0, 0], x[0, 1]), x.diff(), torch.meshgrid(x[0, 0, 0], x[0, 0, 1], indexing="xy"), x.tile(2, 1))
"""

INDICES = """
x = torch.randn(5, 7); i = torch.tensor([0, 4, 2, -1]); j = torch.tensor([[3], [0]]); g = torch.randint(0, 5, (3, 7))
(x[i], x[:, j], x[i[:, None], i], x[None][j * 0, :, i % 7], x[None, :, None][:, i, :, j], x.gather(0, g), x.take(g),
 x.gather(1, g[:, :2].int()), x[:0][:, i])

x = torch.randn(5, 7); i = torch.tensor([4, 0]); s = torch.tensor(2.)
(x.index_select(0, i), x.index_select(1, i.int()), x.index_select(0, torch.tensor(3)), x.take_along_dim(i[:, None], 0),
 s.gather(0, i * 0), s.index_select(0, i[1:]), x.gather(0, i.new_zeros(0, 7)), x[i.new_zeros(0)], x[[0, 1]],
 x[torch.arange(3) + 1], F.embedding(i, x))
"""

HALVES = """
x = torch.randn(5, 7).bfloat16(); y = (torch.rand(7) + .5).bfloat16()
(x + y, x * 0.1, x - 3, x / y, y ** 3, y ** .5, x.add(x, alpha=3), x * x * x)

x = torch.randn(5, 7).half(); y = (torch.rand(7) + .5).half()
(x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), torch.atan2(x, y), y ** x)

x = (torch.rand(5, 7) + .1).bfloat16()
(x.neg(), x.abs(), x.sign(), x.reciprocal(), x.sqrt(), x.rsqrt(), x.exp(), x.log(), x.tanh(), x.sigmoid(), x.erf(),
 x.relu())

x = (torch.randn(5, 7) * 4).bfloat16()
(x.floor(), x.ceil(), x.round(), x.trunc(), (x * 1.1).to(torch.int32), x.bool(), x > 0.1, x == x.flatten()[3],
 x.isinf())

x = torch.randn(5, 7).half()
(F.softplus(x), F.leaky_relu(x), F.elu(x), x.clamp(-1, 1), F.gelu(x), F.silu(x), F.gelu(x, approximate="tanh"))

x = torch.randn(5, 7).bfloat16()
(torch.where(x > 0.3, x, float("-inf")), x.float() + x, x.to(torch.float16), x * 1.3 > x + 0.1)

x = torch.randn(5, 7, 3).bfloat16()
(x.sum(), x.sum((0, 2)), x.mean(1), x.amax(0), x.amin((0, 1)), x.max(1)[1], x.argmin(2), (x * 1.1).argmax(0))

x = torch.randn(5, 7).bfloat16()
(F.softmax(x, -1), F.log_softmax(x, 0), F.softmax(x, -1, dtype=torch.float32), F.softmax(x.float(), -1).to(x.dtype))

x = torch.randn(5, 7).half(); w = torch.randn(7).half()
(F.rms_norm(x, (7,)), F.rms_norm(x, (7,), w, 1e-6), F.layer_norm(x, (7,), w, w), F.layer_norm(x, (7,), w))

x = torch.randn(5, 7).bfloat16(); w = torch.randn(3, 7).bfloat16(); b = torch.randn(3).bfloat16()
(x @ w.T, F.linear(x, w, b), torch.addmm(b, x, w.T, beta=.5), torch.einsum("mk,nk->nm", x, w))

x = torch.randn(5, 7).bfloat16(); y = torch.randn(5, 7).bfloat16()
((F.silu(x) * y) @ torch.randn(7, 3).bfloat16(), torch.cat([-x, y], 0), x.reshape(7, 5).T)

q = torch.randn(2, 6, 5, 8).bfloat16(); k = torch.randn(2, 2, 7, 8).bfloat16()
F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

q = torch.randn(2, 6, 5, 8).half(); k = torch.randn(2, 2, 7, 8).half()
F.scaled_dot_product_attention(q, k, k, attn_mask=torch.randn(5, 7) > 0.9, enable_gqa=True, scale=.3)

q = torch.randn(1, 2, 2, 8).bfloat16(); m = torch.tensor([[float("-inf")] * 2, [0., float("-inf")]]).bfloat16()
(F.scaled_dot_product_attention(q, q, q, attn_mask=m), F.scaled_dot_product_attention(q, q, q))

q = torch.randn(1, 2, 5, 8).half(); k = torch.randn(1, 2, 7, 8).half(); m = torch.randn(5, 7).half()
F.softmax(q @ k.mT * 8 ** -.5 + m, -1) @ k

(nn.Embedding(10, 4).bfloat16()(torch.randint(0, 10, (3, 5))), torch.arange(5, dtype=torch.float16),
 torch.full((2,), 0.1, dtype=torch.bfloat16))
"""

WINDOWS = """
x = torch.randn(2, 3, 9); w = torch.randn(4, 3, 3)
F.conv1d(x, w), F.conv1d(x, w, torch.randn(4), 2, 1), F.conv1d(x, w, padding=2, dilation=3), F.conv1d(x[0], w)

x = torch.randn(2, 4, 9); w = torch.randn(6, 2, 4)
F.conv1d(x, w, padding="same", groups=2), F.conv1d(x, w[:, :, :3], torch.randn(6), padding="valid", groups=2)

x = torch.randn(2, 4, 5, 6); d = torch.randn(8, 1, 3, 2)
(F.conv2d(x, torch.randn(3, 4, 1, 1)), F.conv2d(x, torch.randn(3, 4, 3, 3), torch.randn(3), padding=1),
 F.conv2d(x, d, torch.randn(8), (2, 1), (0, 1), groups=4), F.conv2d(x[0], torch.randn(3, 4, 3, 2), padding="same",
 dilation=2))

x = torch.randn(1, 2, 4, 3, 5); F.conv3d(x, torch.randn(3, 2, 2, 3, 2), torch.randn(3), (2, 1, 1), (1, 1, 0))

x = torch.randn(2, 4, 5); w = torch.randn(4, 3, 3)
(F.conv_transpose1d(x, w), F.conv_transpose1d(x, w, torch.randn(3), 2, 1, 1), F.conv_transpose1d(x, w, stride=3,
 dilation=2),
 F.conv_transpose1d(x, w, torch.randn(6), 2, groups=2), F.conv_transpose1d(x[0], w, padding=2))

x = torch.randn(1, 3, 3, 4); F.conv_transpose2d(x, torch.randn(3, 2, 2, 3), torch.randn(2), (2, 3), (0, 1), (1, 2))

x = torch.randn(1, 2, 2, 3, 2); F.conv_transpose3d(x, torch.randn(2, 1, 2, 2, 3), None, 2, 1)

x = torch.randn(2, 3, 8)
(F.max_pool1d(x, 2), F.max_pool1d(x, 3, 2, 1), F.max_pool1d(x, 3, 2, ceil_mode=True), F.max_pool1d(x, 2, 1, 0, 3),
 F.max_pool1d(x[0], 2))

x = torch.randn(2, 3, 7, 8)
(F.max_pool2d(x, 2), F.max_pool2d(x, (3, 2), (2, 3), (1, 0), ceil_mode=True), F.max_pool2d(x, 3, return_indices=True),
 F.max_pool2d(x, 3, 2, 1, return_indices=True), F.max_pool2d(x[0], 2, ceil_mode=True))

x = torch.tensor([[[1., float("nan"), float("nan"), 2, 5, 5, 1, float("-inf"), float("-inf"), float("-inf")]]])
F.max_pool1d(x, 3, 1, 1, return_indices=True), F.max_pool1d(x, 2, 2), F.adaptive_max_pool1d(x, 4, return_indices=True)

x = torch.randn(1, 2, 4, 5, 4)
(F.max_pool3d(x, 2, ceil_mode=True), F.max_pool3d(x, (2, 3, 1), 1, (1, 1, 0), return_indices=True))

x = torch.randn(2, 3, 7, 8)
(F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 3,
 2, 1, True),
 F.avg_pool2d(x, 3, 2, 1, True, False), F.avg_pool2d(x, 2, divisor_override=3), F.avg_pool1d(x[0], 3, 2, 1, True),
 F.avg_pool3d(x, (2, 3, 2), ceil_mode=True))

x = torch.randn(2, 3, 7, 8)
(F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (None, 5)),
 F.adaptive_avg_pool1d(x[0], 3),
 F.adaptive_avg_pool1d(x[0], 11), F.adaptive_avg_pool3d(x, (2, 3, 5)), F.adaptive_max_pool2d(x, (3, 4),
 return_indices=True), F.adaptive_max_pool1d(x[0], 5))

x = torch.rand(2, 3, 8, 6); F.lp_pool2d(x, 2, 2), F.lp_pool1d(x[0], 3, 3)

x = torch.randn(2, 3, 5, 4)
(F.interpolate(x, scale_factor=2), F.interpolate(x, size=(7, 9)), F.interpolate(x, size=(2, 3), mode="nearest-exact"),
 F.interpolate(x, scale_factor=(1.7, 0.6), mode="nearest"), F.interpolate(x[0], size=11), F.interpolate(x[:, :,
 None], scale_factor=2))

x = torch.randn(2, 3, 5, 4)
(F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
 F.interpolate(x, size=(2, 3), mode="bilinear"), F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear"),
 F.interpolate(x[0], size=11, mode="linear"), F.interpolate(x[0], size=1, mode="linear", align_corners=True),
 F.interpolate(x[:, :, None], scale_factor=2, mode="trilinear"))

x = torch.randn(2, 4, 9).bfloat16(); w = torch.randn(4, 4, 3).bfloat16()
(F.conv1d(x, w, torch.randn(4).bfloat16(), padding=1), F.avg_pool1d(x, 3, 2, 1, True, False), F.max_pool1d(x, 3, 2,
 return_indices=True), F.interpolate(x, size=5, mode="linear"))

x = torch.randn(0, 3, 9); F.conv1d(x, torch.randn(4, 3, 3)), F.max_pool1d(x, 2), F.avg_pool1d(x, 2)
"""

GROUPS = (POINTWISE, INTEGERS, REDUCTIONS, PRODUCTS, ATTENTION, VIEWS, INDICES, HALVES, WINDOWS)


@pytest.mark.parametrize("text", [program for group in GROUPS for program in group.strip().split("\n\n")])
def test_means_what_pytorch_means(text):
    check(text)


def test_every_operator_has_a_definition():
    assert DEFINITIONS.keys() - {"heads", "scores", "causal", "masked", "attend"} == OPERATORS.keys()
