extern "C" __global__ void __launch_bounds__(64, 1) k_row_argmax(const float* __restrict__ x, i64* __restrict__ y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x;
  const int m_0 = block * 2;
  // best: f32[m:2] = -inf
  float best[1];
  best[0] = -DD_INF;
  // place: i64[m:2] = 0
  i64 place[1];
  place[0] = 0;
  // for k_0 in 0..77 step 32:
  #pragma unroll 1
  for (int k_0 = 0; k_0 < 77; k_0 += 32) {
    // x_r: f32[k:32,m:2] = load x[m, k] at m m_0 < 5, k k_0 < 77
    float x_r[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldg4_if(&x_r[r], x + (k_0 + m_0 * 77 + ((lane & 15) + warp * 77) + r * 16), m_0 + warp < 5 && k_0 + ((lane & 15) + r * 16) < 77);
    // masked: f32[k:32,m:2] = mask x_r where k < 77 else -inf  unless 0 <= -k_0+45
    float masked[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      masked[r] = x_r[r];
    if (!(0 <= -k_0 + 45)) {
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        masked[r] = k_0 + ((lane & 15) + r * 16) < 77 ? masked[r] : (-DD_INF);
    }
    // at: i64[k:32] = index k at k k_0 < 77
    i64 at[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      at[r] = k_0 + ((lane & 15) + r * 16);
    // best, place = reduce.thread argmax masked, at
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool better = masked[r] > best[0] || (masked[r] != masked[r] && !(best[0] != best[0])) || ((masked[r] == best[0] || (masked[r] != masked[r] && best[0] != best[0])) && at[r] < place[0]);
      best[0] = better ? masked[r] : best[0];
      place[0] = better ? at[r] : place[0];
    }
  }
  // best, place = reduce.warp argmax over k lanes 0,1,2,3
  const float other = dd_shfl_xor(best[0], 1);
  const i64 other_1 = dd_shfl_xor(place[0], 1);
  const bool better_1 = other > best[0] || (other != other && !(best[0] != best[0])) || ((other == best[0] || (other != other && best[0] != best[0])) && other_1 < place[0]);
  best[0] = better_1 ? other : best[0];
  place[0] = better_1 ? other_1 : place[0];
  const float other_2 = dd_shfl_xor(best[0], 2);
  const i64 other_3 = dd_shfl_xor(place[0], 2);
  const bool better_2 = other_2 > best[0] || (other_2 != other_2 && !(best[0] != best[0])) || ((other_2 == best[0] || (other_2 != other_2 && best[0] != best[0])) && other_3 < place[0]);
  best[0] = better_2 ? other_2 : best[0];
  place[0] = better_2 ? other_3 : place[0];
  const float other_4 = dd_shfl_xor(best[0], 4);
  const i64 other_5 = dd_shfl_xor(place[0], 4);
  const bool better_3 = other_4 > best[0] || (other_4 != other_4 && !(best[0] != best[0])) || ((other_4 == best[0] || (other_4 != other_4 && best[0] != best[0])) && other_5 < place[0]);
  best[0] = better_3 ? other_4 : best[0];
  place[0] = better_3 ? other_5 : place[0];
  const float other_6 = dd_shfl_xor(best[0], 8);
  const i64 other_7 = dd_shfl_xor(place[0], 8);
  const bool better_4 = other_6 > best[0] || (other_6 != other_6 && !(best[0] != best[0])) || ((other_6 == best[0] || (other_6 != other_6 && best[0] != best[0])) && other_7 < place[0]);
  best[0] = better_4 ? other_6 : best[0];
  place[0] = better_4 ? other_7 : place[0];
  // store y[m] at m m_0 < 5 <- place
  if (lane == 0 && m_0 + warp < 5)
    dd_stg8(y + (m_0 + warp), place);
}
