"""Programs that use every row of the table of operators, by theme. Each output of each is compared with PyTorch."""

VALUES = """x = torch.randn(4, 8); y = torch.randn(4, 8); p = torch.rand(4, 8) + 0.5
i = torch.randint(-9, 9, (4, 8)); b = x > 0"""

PROGRAMS = {
    "unary": VALUES + """
-x, abs(x), torch.sign(x), torch.sgn(i), torch.reciprocal(p), torch.sqrt(p), torch.rsqrt(p), torch.exp(x), \
torch.exp2(x), torch.expm1(x), torch.log(p), torch.log2(p), torch.log1p(p), torch.sin(x), torch.cos(x), \
torch.tan(x), torch.atan(x), torch.tanh(x), torch.sigmoid(x), torch.erf(x), torch.floor(x), torch.ceil(x), \
torch.trunc(x), torch.round(x * 4), torch.square(x), torch.isnan(x), torch.isinf(x), torch.isfinite(x), ~b, ~i, \
torch.exp(i), torch.special.expit(x), +x, torch.log10(p), torch.asin(x), torch.acos(x), torch.sinh(x), \
torch.cosh(x), torch.asinh(x), torch.acosh(p), torch.atanh(x), torch.erfc(x), torch.lgamma(p), torch.signbit(x), \
torch.signbit(i), torch.angle(x), torch.sgn(b), torch.round(x, decimals=2), torch.round(x * 99, decimals=-1)""",
    "arithmetic": VALUES + """
x + y, x - y, x * y, x / p, x // p, x % p, torch.fmod(x, p), p ** x, x ** 2, 2 ** x, 3 - x, 1 / p, x + 2 * y, \
torch.add(x, y, alpha=3), torch.sub(x, 2, alpha=0.5), torch.rsub(x, y, alpha=2), \
torch.div(x, p, rounding_mode='floor'), torch.div(x, p, rounding_mode='trunc'), \
torch.div(x, 0.3, rounding_mode='floor'), 7 % p, x % 3, torch.fmod(x, 0.7), x // 2, torch.atan2(x, y), \
torch.maximum(x, y), torch.minimum(x, y), torch.max(x, y), torch.outer(x[0], y[0]), \
torch.addcmul(x, y, p, value=0.5), torch.lerp(x, y, 0.3), torch.hypot(x, y), torch.copysign(x, y), \
torch.copysign(x, -2.0), torch.fmax(x, y.log()), torch.fmin(x, y.log()), torch.fmax(i, i * 0), torch.ldexp(x, i)""",
    "integers": VALUES + """
i + i, i * 3, i - 1, i // 4, i % 5, torch.div(i, 4, rounding_mode='trunc'), i / 4, i & 6, i | 1, i ^ 5, i << 2, \
i >> 1, torch.bitwise_and(i, i + 1), torch.bitwise_or(i, i + 1), torch.bitwise_xor(i, i + 1), \
torch.bitwise_left_shift(i.abs(), i.abs() % 3), torch.bitwise_right_shift(i, i.abs() % 3), \
i.__lshift__(i.abs() % 3), i.__rshift__(i.abs() % 3), i.__and__(i + 1), i.__or__(i + 2), i.__xor__(i + 3), i ** 2, \
b + b, b * b, b + True, i * 0.5, i * b, i.to(torch.uint8) + 3, i.to(torch.int8) * 2, abs(i), -i, i.to(torch.int32) + i""",
    "comparisons": VALUES + """
x == y, x != y, x < y, x <= y, x > y, x >= y, x == 0, x != 0, i < 3, x <= 0.5, i > 2.5, x >= 0, \
torch.logical_and(x, b), torch.logical_or(b, i), torch.logical_xor(b, x > 1), torch.logical_not(x), b & (y > 0), \
b | (y > 0), b ^ (y > 0), i == x, torch.where(b, x, y), torch.where(b, x, 0.0), torch.where(b, 1, 0), \
torch.where(b, 0.5, x), x.masked_fill(b, float('-inf')), x.masked_fill(b, torch.tensor(2.0)), torch.where(b, x, i)""",
    "activations": VALUES + """
F.relu(x), F.silu(x), F.gelu(x), F.gelu(x, approximate='tanh'), F.softplus(x), F.softplus(x, 2.0, 0.5), \
F.leaky_relu(x, 0.1), F.elu(x, 0.7), F.selu(x), F.celu(x, 0.5), F.hardtanh(x), F.relu6(x * 4), F.hardswish(x), \
F.hardsigmoid(x), F.mish(x), F.logsigmoid(x), torch.clamp(x, -1, 1), torch.clamp(x, min=0), x.clamp(max=y), \
torch.clamp_min(x, 0.1), torch.clamp_max(x, 0.1), torch.clamp_min(x, y), torch.clamp_max(x, y), \
F.prelu(x, torch.tensor([0.2])), F.prelu(x, p[0]), F.prelu(x[0], torch.tensor(0.3)), F.glu(x), F.glu(x, 0), \
F.threshold(x, 0.1, -2), F.hardshrink(x), F.softshrink(x, 0.3), F.rrelu(x), F.tanhshrink(x), F.softsign(x), F.softmin(x, 0)""",
    "casts": VALUES + """
x.half(), x.bfloat16() + y, x.to(torch.int32), i.float(), b.to(torch.int64), i.bool(), x.double() * 2, \
x.half() + y.bfloat16(), x + torch.tensor(2.0, dtype=torch.float64), x.half() * torch.tensor(1.5), x.type_as(i), \
x.clone(), x.contiguous(), x.detach(), F.dropout(x, 0.5, training=False), nn.Dropout(0.3)(x), \
torch.zeros(4, 8).copy_(x), torch.tensor([1.0, 2.0]), nn.Identity()(x), x.bool(), torch.ops.aten.alias(x), \
torch.ops.aten.lift_fresh_copy(x)""",
    "folds": VALUES + """
x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.mean(), x.mean(-1, keepdim=True), p.prod(), p.prod(1), x.amax(), \
x.amax(0), x.amin((0, 1)), x.max(), x.min(), x.max(1), x.min(0, keepdim=True), x.argmax(), x.argmax(1), \
x.argmin(0, keepdim=True), x.argmin(), b.any(), b.any(0), b.all(), b.all(1), torch.any(x, (0, 1)), \
torch.all(b, (0, 1)), i.sum(), b.sum(), x.sum(dtype=torch.float64), x.half().sum(), i.prod(1), i.amax(1), x.var(), \
x.std(0), x.norm(), torch.var_mean(x, 1), torch.std_mean(x, correction=0), i.to(torch.uint8).any(1), \
*(torch.linalg.vector_norm(x, o, 1) for o in (0, 1, 3, -1, float('inf'), -float('inf'))), torch.dist(x, y, 3), \
torch.cdist(x, y, p=1.0), x.nansum(1), torch.count_nonzero(i), torch.logsumexp(x, 1), x.half().mean(dtype=torch.float32)""",
    "norms": """
x = torch.randn(2, 4, 8); w = torch.randn(8); h = x.half()
x.softmax(-1), F.log_softmax(x, 0), F.softmax(h, -1, dtype=torch.float32), F.softmax(h, 1), \
F.layer_norm(x, (8,), w, w), F.layer_norm(x, (4, 8)), F.rms_norm(x, (8,), w), F.rms_norm(x, (8,), eps=1e-5), \
F.rms_norm(h, (8,), w.half()), nn.LayerNorm(8)(x), nn.RMSNorm(8)(x), torch.softmax(torch.tensor(3.0), 0), \
F.layer_norm(h, (8,), w.half(), None), F.group_norm(x.mT, 2, w, w), F.group_norm(h.mT, 4), F.instance_norm(x), \
nn.InstanceNorm1d(4, affine=True)(x), F.instance_norm(x.mT, w, w.exp(), use_input_stats=False), \
nn.BatchNorm1d(8)(x.mT), F.batch_norm(h.mT, w, w.exp(), w), nn.BatchNorm1d(8, track_running_stats=False)(x.mT)""",
    "losses": """
x = torch.randn(6, 3); p, q = torch.rand(6, 3), torch.rand(6, 3); w = torch.rand(3); t = torch.tensor([0, 2, 1, -100, 2, 0])
F.mse_loss(x, p), F.l1_loss(x, p, reduction='sum'), F.smooth_l1_loss(x, p, beta=.5), F.smooth_l1_loss(x, p, beta=0.), \
F.huber_loss(x, p, reduction='none'), F.binary_cross_entropy(p, q, w), F.kl_div(x, q, reduction='batchmean'), \
F.binary_cross_entropy_with_logits(x, p, w, pos_weight=w), F.kl_div(x, p.log(), log_target=True, reduction='sum'), F.nll_loss(x, t, w), \
F.nll_loss(x, t, reduction='none'), F.cross_entropy(x, t), F.cross_entropy(x, t, w, label_smoothing=.2), \
F.cross_entropy(x.T[None, :, :3], t[:3][None]), F.cross_entropy(x[0], t[1]), F.cross_entropy(x, p, w), \
F.cross_entropy(x, p, label_smoothing=.2), F.cross_entropy(x, t.abs() % 3, w, ignore_index=2, reduction='sum', label_smoothing=.1), \
F.cosine_similarity(x, p), F.normalize(x), F.one_hot(t.abs() % 3, 3), \
F.cosine_embedding_loss(x, p, torch.ones(6)), F.poisson_nll_loss(x, p)""",
    "products": """
a = torch.randn(3, 4); b = torch.randn(4, 5); v = torch.randn(4)
s = torch.randn(2, 3, 4); t = torch.randn(2, 4, 5); c = torch.randn(5); d = torch.randn(2, 1, 3, 4)
a @ b, torch.mm(a, b), torch.bmm(s, t), s @ b, a @ t, a @ v, v @ b, v @ v, torch.dot(v, v), torch.mv(a, v), s @ v, \
v @ t, d @ t, F.linear(s, a), F.linear(a, b.T, c), F.linear(v, a), nn.Linear(4, 6)(s), torch.addmm(c, a, b), \
torch.addmm(c, a, b, beta=0.5, alpha=2), torch.baddbmm(c, s, t, alpha=0.5), torch.einsum('ij,jk->ik', a, b), \
torch.einsum('bij,bjk', s, t), torch.einsum('...ij,jk->...ik', s, b), torch.einsum('ij->ji', a), \
torch.einsum('ii->i', b[:, :4]), torch.einsum('ij->', a), torch.einsum('i,j', v, c), torch.einsum('b...k,k', s, v), \
torch.matmul(a.half(), b.half())""",
    "attention": """
q = torch.randn(2, 4, 5, 8); k = torch.randn(2, 2, 7, 8); v = torch.randn(2, 2, 7, 6)
m = torch.randn(5, 7); g = torch.rand(2, 1, 5, 7) > 0.3; u = torch.randn(2, 4, 5, 8)
F.scaled_dot_product_attention(q, k, v, enable_gqa=True), \
F.scaled_dot_product_attention(q, k, v, m, scale=0.3, enable_gqa=True), \
F.scaled_dot_product_attention(q, k, v, g, enable_gqa=True), \
F.scaled_dot_product_attention(q, u, u, is_causal=True), F.scaled_dot_product_attention(q[0], u[0], u[0]), \
nn.MultiheadAttention(8, 2)(u[0], u[0], u[0]), F.scaled_dot_product_attention(q, u, u, torch.zeros(5, 5, dtype=torch.bool)), \
F.scaled_dot_product_attention(q, u, u, torch.ones(5, 5, dtype=torch.bool)), F.scaled_dot_product_attention(q, u, u, torch.zeros(5, 5))""",
    "windows": """
x = torch.randn(2, 4, 9); y = torch.randn(2, 4, 5, 6); z = torch.randn(1, 2, 4, 5, 3); a = torch.ops.aten
w = torch.randn(4, 2, 3); c2 = nn.Conv2d(4, 4, 3, 2, 1); c3 = nn.Conv3d(2, 3, 2)
F.conv1d(x, torch.cat((w, w), 1)), F.conv1d(x, w, torch.randn(4), 2, 1, groups=2), F.conv1d(x, w, padding=2, \
dilation=3, groups=2), F.conv1d(x[0], w, padding='same', groups=2), F.conv1d(x, w, padding='valid', groups=2), \
c2(y), c2(y[0]), nn.Conv2d(4, 8, (3, 2), padding='same', groups=4)(y), c3(z), nn.Conv3d(2, 2, 3, padding='same')(z), \
F.conv_transpose1d(x, w, torch.randn(2), 2, 1, 1), F.conv_transpose1d(x[0], w, padding=2, dilation=2), \
nn.ConvTranspose2d(4, 3, (2, 3), (2, 3), (0, 1), (1, 2))(y), nn.ConvTranspose2d(4, 2, 3, 2, groups=2)(y), \
nn.ConvTranspose3d(2, 1, 2, 2, 1)(z), a.convolution(x, w, None, [1], [1], [1], False, [0], 2), a.convolution(x, w, \
None, [2], [1], [1], True, [1], 1)""",
    "pooling": """
x = torch.randn(2, 4, 9); y = torch.randn(2, 4, 5, 6); z = torch.randn(1, 2, 4, 5, 3); a = torch.ops.aten
n = torch.tensor([[[1., float('nan'), float('nan'), 2, 5, 5, 1, float('-inf'), float('-inf'), float('-inf')]]])
F.max_pool1d(x, 2), F.max_pool1d(x, 3, 2, 1, 2, True), F.max_pool1d(n, 3, 1, 1, return_indices=True), \
F.max_pool2d(y, 2), F.max_pool2d(y[0], (3, 2), (2, 3), (1, 0), ceil_mode=True), F.max_pool2d(y, 3, 2, 1, \
return_indices=True), F.max_pool3d(z, 2, ceil_mode=True), F.max_pool3d(z, (2, 3, 1), 1, (1, 1, 0), \
return_indices=True), F.avg_pool1d(x, 3, 2, 1, True), F.avg_pool2d(y, 3, 2, 1, True, False), F.avg_pool2d(y, 2, \
divisor_override=3), F.avg_pool2d(y[0], 3, 2, 1), F.avg_pool3d(z, (2, 3, 2), ceil_mode=True), \
F.adaptive_avg_pool1d(x, 4), F.adaptive_avg_pool2d(y, (3, 4)), F.adaptive_avg_pool2d(y, 1), F.adaptive_avg_pool2d(y, \
(None, 9)), F.adaptive_avg_pool3d(z, (2, 3, 3)), F.adaptive_max_pool1d(n, 4, return_indices=True), \
F.adaptive_max_pool2d(y, (3, 4), return_indices=True), F.adaptive_max_pool3d(z, 2), F.lp_pool2d(y.abs(), 2, 2)""",
    "interpolation": """
x = torch.randn(2, 4, 9); y = torch.randn(2, 4, 5, 6); z = torch.randn(1, 2, 4, 5, 3); a = torch.ops.aten
F.interpolate(x, 11), F.interpolate(y, scale_factor=2), F.interpolate(y, scale_factor=(1.7, 0.6)), F.interpolate(z, \
size=2), F.interpolate(x, 11, mode='nearest-exact'), F.interpolate(y, (2, 8), mode='nearest-exact'), \
F.interpolate(z, scale_factor=1.5, mode='nearest-exact'), F.interpolate(x, 11, mode='linear'), F.interpolate(x, 1, \
mode='linear', align_corners=True), F.interpolate(y, (7, 9), mode='bilinear', align_corners=True), F.interpolate(y, \
scale_factor=(1.7, 0.6), mode='bilinear'), F.interpolate(z, scale_factor=2, mode='trilinear'), \
nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)(y), a.upsample_nearest1d(x, [5]), \
a.upsample_nearest2d(y, [3, 7]), a.upsample_nearest3d(z, [2, 7, 1]), a._upsample_nearest_exact1d(x, [5], 0.6), \
a._upsample_nearest_exact2d(y, [3, 7]), a._upsample_nearest_exact3d(z, [2, 7, 1]), a.upsample_linear1d(x, [5], \
False), a.upsample_trilinear3d(z, [2, 7, 1], False)""",
    "views": """
x = torch.randn(2, 3, 8); y = torch.randn(2, 3, 8)
x.view(6, 8), x.reshape(2, -1), x.reshape(-1), x.flatten(1), x.unflatten(2, (2, 4)), x[None], x.unsqueeze(-1), \
x[:1].squeeze(), x[:1].squeeze(0), x[:1, :1].squeeze((0, 1)), x.transpose(1, 2), x.transpose(0, 2).reshape(4, 12), \
x[0].t(), x[0].T, x.mT, x.permute(2, 0, 1), torch.movedim(x, 0, 2), torch.movedim(x, (0, 1), (2, 0)), \
x[0].adjoint(), x.swapaxes(0, 1), x[:, :1].expand(2, 3, 8), x[:, :1].expand_as(x), \
torch.broadcast_to(x[0, 0], (3, 8)), x[:, 1:], x[..., ::3], x[:, -2:], x[:, 5:], x.narrow(1, 1, 2), x.split(3, 2), \
x.split((1, 7), -1), x.chunk(3, -1), torch.tensor_split(x, 3, 2), x[1], x[:, -1], x.select(2, 3), x.unbind(1), \
torch.cat((x, y), 1), torch.cat((x, y.half()), -1), torch.cat((torch.zeros(0), x.view(-1))), torch.stack((x, y), 1), \
torch.stack((x,)), torch.hstack((x, y)), x.repeat(1, 2, 1), x.repeat(2, 1, 1, 1), x.repeat_interleave(2, 1), \
x.repeat_interleave(3), torch.tile(x, (2, 1)), x.view_as(y), x[1, 2, 3], x[:, None, 1:2]""",
    "views that compute": """
x = torch.randn(2, 8, 4); y = torch.randn(1, 8, 4); i = torch.tensor([1, -2])
x.flip(0, 2), x.roll(1, 1), x.roll(5), torch.rot90(x), F.pad(x, (1, 2), value=3.), F.pad(x, (1, 0, 2, 1)), \
F.pad(x, (2, 1), 'reflect'), F.pad(x, (2, 5), 'replicate'), F.pad(x, (4, 1), 'circular'), x.unfold(1, 3, 2), \
F.unfold(x, (2, 2), padding=1), F.fold(x, (3, 3), 2), \
x.diagonal(1, 1, 2), x.as_strided((3, 2), (1, 8), 2), x.slice_scatter(y, 0, 1), x.select_scatter(y[0], 0, 1), \
x.diagonal_scatter(y[0, :2].T, 0, 0, 1), x.index_fill(1, i, 2.), x.index_fill(0, i[:1], torch.tensor(3.)), \
F.one_hot(i.abs(), 5), F.pixel_shuffle(x[:, :, None], 2), torch.diag_embed(y), torch.constant_pad_nd(x, (1, 0))""",
    "indices": """
x = torch.randn(5, 7); i = torch.tensor([0, 4, -2]); g = torch.randint(0, 5, (3, 7))
x[i], x[:, i], x[i, None, i], x[:, None][i, :, i], x.index_select(1, i + 2), x.gather(0, g), x.take(g), \
x.take_along_dim(g, 0), x[i.int()], x[[1, 2]], torch.tensor(2.).index_select(0, torch.tensor(0)), \
torch.ops.aten.index(x, [g, torch.tensor(2)]), torch.ops.aten.index(x[None], [torch.tensor(0), i, torch.tensor(-1)]), \
x.long().to(torch.uint16).index_select(1, i + 2), x.long().to(torch.uint64).index_select(1, i + 2)""",
    "embedding": "e = nn.Embedding(10, 4); i = torch.randint(0, 10, (2, 3)); e(i), F.embedding(i, torch.randn(12, 4))",
    "made inside": """
x = torch.randn(4, 4)
torch.arange(5), torch.arange(1, 9, 2), torch.arange(2, 4, 0.5), torch.arange(4.0) + x, torch.full((2, 2), 3.5), \
torch.full((2,), 7), torch.zeros(3), torch.ones(3, dtype=torch.bool), torch.zeros_like(x), torch.ones_like(x), \
torch.full_like(x, 2), x.new_zeros(2), x.new_ones(2), x.new_full((2,), 3), torch.eye(3), \
torch.eye(2, 4, dtype=torch.float64), torch.triu(x), torch.tril(x, -1), x.clone().fill_(2), x.clone().zero_(), \
torch.scalar_tensor(2.5), torch.ones(3, 3, dtype=torch.bool).tril(), torch.full((4, 4), float('-inf')).triu(1) + x, \
torch.linspace(0, 1, 5), torch.ones_like(x.new_empty(2)), x.new_empty_strided((2, 3), (1, 2)).fill_(1)""",
    "no elements, no dimensions": """
z = torch.randn(0, 8); s = torch.randn(()); w = torch.randn(8, 0)
z + 1, z.sum(0), z.sum(), z.mean(1), z @ w, w @ z, F.linear(z, w.T), z.softmax(-1), z.reshape(8, 0), z.T, \
torch.cat((z, z)), z[:, :3], s + 1, s.sum(), s.amax(), s.argmax(), s.max(0), s.softmax(0), s.reshape(1, 1), \
s.expand(3), s * z, torch.stack((s, s)), F.rms_norm(z, (8,)), s.unsqueeze(0), z.split(3), z.split(3, 1), \
torch.split(z, 5, dim=0), z.long().softmax(0), F.log_softmax(z.int(), 1), z.to(torch.uint16).amax(1), \
F.adaptive_avg_pool1d(z.long()[None], 2), F.scaled_dot_product_attention(w, torch.randn(3, 0), torch.randn(3, 2))""",
    "writes": """
x = torch.randn(4, 4); y = x.clone()
y += 1; y.mul_(2); x.add_(y); F.relu_(y); x + y""",
    "loops": """
l = nn.ModuleList(nn.Linear(4, 4) for _ in range(2)); x = torch.randn(3, 4)
for m in l:
    x = x + torch.tanh(m(x))
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4) * 2)
        self.register_buffer('shift', torch.arange(4.0))
    def forward(self, x): return {'scaled': x * self.scale, 'both': [x + self.shift, x]}
Block()(x)""",
    "half": """
x = torch.randn(4, 8).bfloat16(); w = nn.Linear(8, 8).bfloat16(); h = torch.randn(4, 8).half()
w(x), x + 1, x * 0.1, F.silu(x) * x, F.gelu(x), x.float().pow(2).mean(-1, keepdim=True), torch.add(x, x, alpha=0.3), \
x.sum(-1), x.softmax(-1), h @ h.T, h / 3, x @ x.T, torch.addmm(x[:, :4], x, x.T, alpha=0.5), x.clamp(-0.1, 0.1), \
x > 0.1, F.softplus(h), F.elu(x), h.exp()""",
    "autocast": """
x = torch.randn(4, 8); w = nn.Linear(8, 8)
with torch.autocast('cpu', dtype=torch.bfloat16):
    y = torch.tanh(w(x)) + x
y""",
    "overloads for numbers": """
x = torch.randn(4, 8); i = torch.randint(0, 9, (4, 8)); a = torch.ops.aten
a.add.Scalar(x, 2, 3), a.sub.Scalar(x, 2), a.mul.Scalar(x, 3), a.div.Scalar(x, 3), \
a.div.Scalar_mode(x, 0.3, rounding_mode='floor'), a.floor_divide.Scalar(i, 2), a.bitwise_and.Scalar(i, 6), \
a.bitwise_or.Scalar(i, 6), a.bitwise_xor.Scalar(i, 6), a.bitwise_left_shift.Tensor_Scalar(i, 2), \
a.bitwise_right_shift.Tensor_Scalar(i, 2), a.alias(x)""",
}
