// For one instruction set (native.cpp): a vector V is LANES numbers of 32 bits. Blocks are read 32 weights at a time, by vectors
// of 256 bits in both.
constexpr int L = LANES;
typedef float V __attribute__((vector_size(4 * L)));
typedef int32_t I __attribute__((vector_size(4 * L)));
typedef float Unaligned __attribute__((vector_size(4 * L), aligned(4), may_alias));
#define UNROLLED _Pragma("GCC unroll 16")

static inline V load(const float* p) { return *(const Unaligned*)p; }
static inline void store(float* p, V v) { *(Unaligned*)p = v; }
static inline V every(float f) { return f - V{}; }
static inline long least(long a, long b) { return a < b ? a : b; }
static inline long padded(long k) { return (k + L - 1) / L * L; }
static inline __m256i bytes(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
#if LANES == 16
static inline V first(const float* p, long n) { return (V)_mm512_maskz_loadu_ps((1 << n) - 1, p); }
static inline __m256 folded(V v) { return _mm512_castps512_ps256((__m512)v) + _mm512_extractf32x8_ps((__m512)v, 1); }
#else
static inline V first(const float* p, long n) {
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return (V)_mm256_maskload_ps(p, below);
}
#endif
static inline __m256 folded(__m256 v) { return v; }
static inline __m128 four(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
static inline float sum(__m256 v) { return _mm_cvtss_f32(four(v, v, v, v)); }
// Numbers i .. i + L - 1 of n at p, zeros after the last.
static inline V part(const float* p, long i, long n) { return i + L <= n ? load(p + i) : first(p + i, n - i); }
// Adds the sums of accumulators a[O][R] to y.
template <int O, int R, typename A> static inline void summed(const A (&a)[O][R], float* y, long ldy, long ldo) {
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int o = 0; o < O; o += 4) {
        const __m128 f = four(folded(a[o][r]), folded(a[(o + 1) % O][r]), folded(a[(o + 2) % O][r]), folded(a[(o + 3) % O][r]));
        for (int j = 0; j < (O < 4 ? O : 4); j++) y[r * ldy + (o + j) * ldo] += f[j];
    }
}
// work(Constant<n>()), for an n from 1 to N.
template <int N> struct Constant { static constexpr int value = N; };
template <int N, typename W> static inline void by(long n, W work) {
    if (n == N) work(Constant<N>());
    else if constexpr (N > 1) by<N - 1>(n, work);
}
// How many of `rows` are multiplied at once, at most `most`: about as many each time.
static inline long some(long rows, long most) {
    const long times = (rows + most - 1) / most;
    return (rows + times - 1) / times;
}

// ---- Products of float32: y[r, o] += x[r] . w[o]. Rows of w that are read at the same time lie far apart: on pages of 4 KB
// one thread gets 24 GB/s of eight far rows where it gets 17 of one after the other, and 11 of two neighbours (Zen 4).

constexpr int TILE = L == 16 ? 6 : 3;  // rows of activations whose products with four rows of weights stay in registers
// Activations in the order in which they are read: tile by tile, vector by vector.
static const float* packed(const float* x, long ldx, long rows, long k) {
    float *made = scratch(ROWS, rows * padded(k)), *to = made;
    for (long r; rows > 0; rows -= r, x += r * ldx) {
        r = some(rows, TILE);
        for (long i = 0; i < k; i += L)
            for (long j = 0; j < r; j++, to += L) store(to, part(x + j * ldx, i, k));
    }
    return made;
}
// O rows of weights, R of activations.
template <int O, int R> static void tile(const float* x, const float* w, long ldw, long k, float* y, long ldy, long ldo) {
    V a[O][R] = {};
    auto step = [&](auto get, long i) {
        UNROLLED for (int o = 0; o < O; o++) {
            const V c = get(w + o * ldw + i);
            UNROLLED for (int r = 0; r < R; r++) a[o][r] += c * load(x + i * R + r * L);
        }
    };
    long i = 0;
    for (; i + L <= k; i += L) {  // what comes next goes to the second cache: the first has no room for it
        UNROLLED for (int o = 0; o < O; o++) _mm_prefetch((const char*)(w + o * ldw + i + k), _MM_HINT_T1);
        step(load, i);
    }
    if (i < k) step([=](const float* p) { return first(p, k - i); }, i);
    summed(a, y, ldy, ldo);
}
// x: as `packed` gives it.
static void floats(const float* x, long rows, const float* w, long ldw, long outputs, long k, float* y, long ldy) {
    const long many = rows == 1 ? 8 : 4, far = outputs / many;
    auto tiles = [&](auto O, const float* w, float* y, long far) {
        const float* p = x;
        for (long r, left = rows; left > 0; left -= r, p += r * padded(k), y += r * ldy)
            by<TILE>(r = some(left, TILE), [&](auto R) { tile<O.value, R.value>(p, w, far * ldw, k, y, ldy, far); });
    };
    for (long o = 0; o < far; o++)
        if (rows == 1) tile<8, 1>(x, w + o * ldw, far * ldw, k, y + o, ldy, far);
        else tiles(Constant<4>(), w + o * ldw, y + o, far);
    for (long o = far * many; o < outputs; o++) tiles(Constant<1>(), w + o * ldw, y + o, 0);
}

// ---- Blocks: 32 weights are d q + m.

struct Group { __m256i q, low, high; __m256 d, m; };  // q also in 16 bits
static inline __m256 half(const uint8_t* p) { int16_t h; memcpy(&h, p, 2); return _mm256_cvtph_ps(_mm_set1_epi16(h)); }
static inline __m256i nibbles(const uint8_t* p) {  // of 16 bytes: the low ones, then the high ones
    const __m128i b = _mm_loadu_si128((const __m128i*)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}
static inline __m256i bits(const uint8_t* p, int from, int mask) {
    return _mm256_and_si256(_mm256_srl_epi16(bytes(p), _mm_cvtsi32_si128(from)), _mm256_set1_epi8((char)mask));
}
static inline __m256i fifth(const uint8_t* p) {  // of 32 bits: 16 in the byte of each that is set
    int32_t all;
    memcpy(&all, p, 4);
    const __m256i own = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(0x8040201008040201), x = _mm256_shuffle_epi8(_mm256_set1_epi32(all), own);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit), _mm256_set1_epi8(16));
}
constexpr bool with_offsets(int F) { return F == Q4_1 || F == Q5_1 || F == Q4_K || F == Q5_K; }
// Group j of the block at p.
template <int F> static inline Group group(const uint8_t* p, int j) {
    Group g;
    g.m = _mm256_setzero_ps(), g.d = half(F == Q6_K ? p + 208 : p);
    if (F == Q8_0) g.q = bytes(p + 2);
    if (F == Q4_0) g.q = _mm256_sub_epi8(nibbles(p + 2), _mm256_set1_epi8(8));
    if (F == Q4_1) g.q = nibbles(p + 4), g.m = half(p + 2);
    if (F == Q5_0) g.q = _mm256_sub_epi8(_mm256_or_si256(nibbles(p + 6), fifth(p + 2)), _mm256_set1_epi8(16));
    if (F == Q5_1) g.q = _mm256_or_si256(nibbles(p + 8), fifth(p + 4)), g.m = half(p + 2);
    if (F == Q4_K || F == Q5_K) {
        const uint8_t* s = p + 4;
        g.q = bits(p + (F == Q4_K ? 16 : 48) + 32 * (j / 2), 4 * (j & 1), 15);
        if (F == Q5_K) g.q = _mm256_or_si256(g.q, _mm256_slli_epi16(bits(p + 16, j, 1), 4));
        g.d *= (float)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        g.m = half(p + 2) * -(float)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4);
    }
    if (F == Q6_K) {
        const __m256i top = _mm256_slli_epi16(bits(p + 128 + 32 * (j / 4), 2 * (j & 3), 3), 4);
        g.q = _mm256_or_si256(bits(p + 64 * (j / 4) + 32 * (j & 1), 4 * (j / 2 & 1), 15), top);
        g.q = _mm256_sub_epi8(g.q, _mm256_set1_epi8(32));
    }
    g.low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(g.q)), g.high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(g.q, 1));
    if (F == Q6_K) {
        const int8_t* s = (const int8_t*)p + 192 + 2 * j;
        g.low = _mm256_mullo_epi16(g.low, _mm256_set1_epi16(s[0])), g.high = _mm256_mullo_epi16(g.high, _mm256_set1_epi16(s[1]));
    }
    return g;
}
static void halves(const Matrix& m, long from, long to, float* y) {  // F16 or BF16
    const uint8_t* p = m.data + 2 * from * m.k;
    const long n = (to - from) * m.k, whole = n & ~7L;
    auto eight = [&](const void* p) {
        const __m128i x = _mm_loadu_si128((const __m128i*)p);
        return m.format == F16 ? _mm256_cvtph_ps(x) : (__m256)_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16);
    };
    for (long i = 0; i < whole; i += 8) _mm256_storeu_ps(y + i, eight(p + 2 * i));
    if (whole == n) return;
    uint8_t some[16] = {};
    memcpy(some, p + 2 * whole, 2 * (n - whole));
    const __m256 last = eight(some);
    memcpy(y + whole, &last, 4 * (n - whole));
}
static void reals(const Matrix& m, long from, long to, float* y) {
    if (m.format >= F16) return halves(m, from, to, y);
    by<Q6_K>(m.format, [=](auto F) {
        const uint8_t* p = m.data + from * (m.k / NUMBERS[F.value]) * BYTES[F.value];
        float* out = y;
        for (const float* end = y + (to - from) * m.k; out < end; p += BYTES[F.value])
            for (int j = 0; j < NUMBERS[F.value] / 32; j++, out += 32) {
                const Group g = group<F.value>(p, j);
                const __m128i part[4] = {_mm256_castsi256_si128(g.low), _mm256_extracti128_si256(g.low, 1),
                                         _mm256_castsi256_si128(g.high), _mm256_extracti128_si256(g.high, 1)};
                for (int i = 0; i < 4; i++)
                    _mm256_storeu_ps(out + 8 * i, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(part[i])) * g.d + g.m);
            }
    });
}

// Activations in integers T, 32 with one scale each. sums: of a group, an eighth.
template <typename T> struct Rows { const T* q; const float *scales, *sums; long k; };
template <typename T> static Rows<T> integers(const float* x, long rows, long k) {
    const float top = sizeof(T) == 1 ? 127.f : 32767.f;
    const long groups = k / 32;
    T* q = (T*)scratch(ROWS, rows * k * (long)sizeof(T) / 4);
    float *scales = scratch(SCALES, 2 * rows * groups), *sums = scales + rows * groups;
    for (long i = 0; i < rows * groups; i++, x += 32, q += 32) {
        float most = 0;
        for (int j = 0; j < 32; j++) most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
        const float scale = most ? top / most : 0;
        int total = 0;
        for (int j = 0; j < 32; j++) total += q[j] = (T)lrintf(x[j] * scale);
        scales[i] = most / top, sums[i] = (float)total * (most / top) / 8;
    }
    return {q - rows * k, scales, sums, k};
}
static inline __m256 dot(const Group& g, const int16_t* x) {
    const __m256i a = _mm256_madd_epi16(g.low, bytes(x)), b = _mm256_madd_epi16(g.high, bytes(x + 16));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(a, b));
}
static inline __m256 dot(const Group& g, const int8_t* x) {
    const __m256i a = _mm256_abs_epi8(g.q), b = _mm256_sign_epi8(bytes(x), g.q);
#if LANES == 16
    return _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), a, b));
#else
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
#endif
}
// O rows of weights that lie `far` bytes apart, R of activations from r on.
template <int F, typename T, int O, int R>
static void dots(const Rows<T>& x, long r, const uint8_t* w, long far, float* y, long ldy, long ldo) {
    const long groups = x.k / 32;
    const T* q = x.q + r * x.k;
    const float *scales = x.scales + r * groups, *sums = x.sums + r * groups;
    __m256 a[O][R] = {};
    for (long at = 0; at < groups; w += BYTES[F])
        for (int j = 0; j < NUMBERS[F] / 32; j++, at++)
            UNROLLED for (int o = 0; o < O; o++) {
                const Group g = group<F>(w + o * far, j);
                UNROLLED for (int i = 0; i < R; i++) {
                    a[o][i] += dot(g, q + i * x.k + 32 * at) * (g.d * scales[i * groups + at]);
                    if (with_offsets(F)) a[o][i] += g.m * sums[i * groups + at];
                }
            }
    summed(a, y, ldy, ldo);
}
constexpr int DOTS = L == 16 ? 6 : 3;
template <typename T> static void integral(const Matrix& m, const Rows<T>& x, long rows, long outputs, long from, float* y, long ldy) {
    by<sizeof(T) == 1 ? Q4_K : Q6_K>(m.format, [&](auto F) {
        const long row = x.k / NUMBERS[F.value] * BYTES[F.value], far = outputs / 4;
        const uint8_t* w = m.data + from * row;
        auto tiles = [&](auto O, const uint8_t* w, float* y, long far) {
            for (long r = 0, n; r < rows; r += n)
                by<DOTS>(n = some(rows - r, DOTS),
                         [&](auto R) { dots<F.value, T, O.value, R.value>(x, r, w, far * row, y + r * ldy, ldy, far); });
        };
        for (long o = 0; o < far; o++) tiles(Constant<4>(), w + o * row, y + o, far);
        for (long o = far * 4; o < outputs; o++) tiles(Constant<1>(), w + o * row, y + o, 0);
    });
}
static void product(const Product& p, const float* x, long rows, bool keep, float* y, long threads) {
    for (long i = 0; i < p.parts; y += p.part[i].n, i++) {
        const Matrix& m = p.part[i];
        if (!keep) for (long r = 0; r < rows; r++) memset(y + r * p.n, 0, 4 * m.n);
        if (m.bias) for (long r = 0; r < rows; r++) for (long o = 0; o < m.n; o++) y[r * p.n + o] += m.bias[o];
        const long step = (least(m.n, m.n / (4 * threads) + 16) + 3) & ~3L, dot = m.format == F32 || m.format >= F16 ? 0 : m.dot;
        auto ints = [&](auto kind) {
            const auto q = integers<decltype(kind)>(x, rows, m.k);
            split(threads, m.n, step, [&](long a, long b) { integral(m, q, rows, b - a, a, y + a, p.n); });
        };
        if (dot == 8 && m.format <= Q4_K) ints(int8_t());
        else if (dot && rows <= 6) ints(int16_t());
        else {  // for more rows weights are made float32 once: exact, and no slower than integers
            const float* q = packed(x, m.k, rows, m.k);
            split(threads, m.n, step, [&](long a, long b) {
                if (m.format == F32) return floats(q, rows, (const float*)m.data + a * m.k, m.k, b - a, m.k, y + a, p.n);
                float* w = scratch(WEIGHTS, 8 * m.k);
                for (long o = a, n; o < b; o += n) {
                    reals(m, o, o + (n = least(8, b - o)), w);
                    floats(q, rows, w, m.k, n, m.k, y + o, p.n);
                }
            });
        }
    }
}

// ---- A layer.

static void rms(const float* x, const float* w, long n, float eps, float* y) {
    V s = {};
    for (long i = 0; i < n; i += L) s += part(x, i, n) * part(x, i, n);
    const float f = 1.f / sqrtf(sum(folded(s)) / n + eps);
    for (long i = 0; i < n; i++) y[i] = x[i] * f * w[i];
}
static inline V exponential(V x) {  // Cephes' polynomial: two units in the last place
    x = x < -87.f ? every(-87.f) : x > 88.f ? every(88.f) : x;
    const V n = (x * 1.44269504f + 12582912.f) - 12582912.f;
    x = x - n * 0.693359375f + n * 2.12194440e-4f;
    V p = every(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = p * x + c;
    p = p * x * x + x + 1.f;
    return p * (V)((__builtin_convertvector(n, I) + 127) << 23);
}
// gate [n] to activation(gate) * up. activation: 0 silu, 1 gelu by tanh, 2 gelu
static void inner(float* gate, const float* up, long n, long activation) {
    if (activation == 2) for (long i = 0; i < n; i++) gate[i] *= .5f * (1.f + erff(gate[i] * 0.70710678f)) * up[i];
    else for (long i = 0; i < n; i += L) {
        const V g = part(gate, i, n), u = part(up, i, n);
        const V z = activation ? (g + g * g * g * 0.044715f) * 1.5957691216f : g;  // gelu by tanh is g sigmoid(z)
        const V made = g / (1.f + exponential(-z)) * u;
        memcpy(gate + i, &made, 4 * least(L, n - i));
    }
}
// The attention of one head of keys for all queries that share it. q, out: [count, heads, head] of one sequence.
static void attention(const Layer& l, const Call& c, long b, long h, const float* q, long ldq, float* out, long ldo) {
    const long G = l.heads / l.kv_heads, D = l.head, S = c.used, rows = c.count * G, wide = padded(S);
    float *p = scratch(SCORES, rows * (wide + 2 * D)), *from = p + rows * wide, *to = from + rows * D;
    for (long r = 0; r < rows; r++) {
        const float* one = q + r / G * ldq + r % G * D;
        for (long i = 0; i < D; i++) from[r * D + i] = one[i] * l.scale;
        if (c.mask) memcpy(p + r * wide, c.mask + b * c.mask_strides[0] + r / G * c.mask_strides[1], 4 * S);
        else memset(p + r * wide, 0, 4 * S);
        for (long s = S; s < wide; s++) p[r * wide + s] = -INFINITY;
    }
    const float* keys = c.keys + b * c.key_strides[0] + h * c.key_strides[1];
    floats(packed(from, D, rows, D), rows, keys, c.key_strides[2], S, D, p, wide);
    for (long r = 0; r < rows; r++) {
        float* z = p + r * wide;
        float most = -3.4028235e38f;
        V total = {};
        for (long s = 0; s < S; s++) most = z[s] > most ? z[s] : most;
        for (long s = 0; s < wide; s += L) {
            const V v = load(z + s) - most, e = v < -87.f ? V{} : exponential(v);
            store(z + s, e), total += e;
        }
        const float all = sum(folded(total)), f = all > 0 ? 1.f / all : 0;
        for (long s = 0; s < wide; s += L) store(z + s, load(z + s) * f);
    }
    const float* values = c.values + b * c.value_strides[0] + h * c.value_strides[1];
    for (long r = 0, n; r < rows; r += n)
        by<4>(n = some(rows - r, 4), [&](auto R) {
            for (long d = 0; d < D; d += L) {
                V a[R.value] = {};
                for (long s = 0; s < S; s++) {
                    const V value = part(values + s * c.value_strides[2], d, D);
                    UNROLLED for (int i = 0; i < R.value; i++) a[i] += value * p[(r + i) * wide + s];
                }
                for (int i = 0; i < R.value; i++) memcpy(to + (r + i) * D + d, &a[i], 4 * least(L, D - d));
            }
        });
    for (long r = 0; r < rows; r++) memcpy(out + r / G * ldo + r % G * D, to + r * D, 4 * D);
}
static void layer(const Layer& l, const Call& c) {
    const long T = c.batch * c.count, W = l.width, H = l.heads, N = l.kv_heads, D = l.head, Q = l.qkv.n, M = l.down.k;
    float *h = scratch(LAYER, T * (W + Q + H * D + 3 * M)), *y = h + T * W, *a = y + T * Q, *u = a + T * H * D, *g = u + T * 2 * M;
    for (long t = 0; t < T; t++) rms(c.x + t * W, l.attn_in, W, l.eps, h + t * W);
    product(l.qkv, h, T, false, y, c.threads);
    for (long t = 0; t < T; t++) {
        const long b = t / c.count, half = l.rotated / 2;
        const float *cos = c.cosines + t * l.rotated, *sin = c.sines + t * l.rotated;
        for (long i = 0; i < H + N; i++) {
            float *x = y + t * Q + i * D, *z = x + (l.neighbours ? 1 : half);
            if (l.q) rms(x, i < H ? l.q : l.k, D, l.eps, x);
            for (long j = 0, at = 0; j < half; j++, at += l.neighbours ? 2 : 1) {
                const float x0 = x[at], z0 = z[at];
                x[at] = x0 * cos[j] - z0 * sin[j], z[at] = z0 * cos[half + j] + x0 * sin[half + j];
            }
        }
        auto kept = [&](float* to, const int64_t* strides, const float* from) {
            to += b * strides[0] + c.rows[t] * strides[2];
            for (long i = 0; i < N; i++) memcpy(to + i * strides[1], from + i * D, 4 * D);
        };
        kept(c.keys, c.key_strides, y + t * Q + H * D), kept(c.values, c.value_strides, y + t * Q + (H + N) * D);
    }
    split(c.threads, c.batch * N, 1, [&](long from, long to) {
        for (long i = from; i < to; i++) {
            const long b = i / N, n = i % N, G = H / N;
            attention(l, c, b, n, y + b * c.count * Q + n * G * D, Q, a + b * c.count * H * D + n * G * D, H * D);
        }
    });
    product(l.o, a, T, true, c.x, c.threads);
    for (long t = 0; t < T; t++) rms(c.x + t * W, l.mlp_in, W, l.eps, h + t * W);
    product(l.up, h, T, false, u, c.threads);
    for (long t = 0; t < T; t++) {
        memcpy(g + t * M, u + t * 2 * M, 4 * M);
        inner(g + t * M, u + t * 2 * M + M, M, l.activation);
    }
    product(l.down, g, T, true, c.x, c.threads);
}
