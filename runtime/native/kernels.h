// For one instruction set (native.cpp): LANES numbers of 32 bits are a vector.
constexpr int L = LANES;
typedef float V __attribute__((vector_size(4 * L)));
typedef int32_t I __attribute__((vector_size(4 * L)));
typedef float Unaligned __attribute__((vector_size(4 * L), aligned(4), may_alias));
#define UNROLLED _Pragma("GCC unroll 16")

static inline V load(const float* p) { return *(const Unaligned*)p; }
static inline void store(float* p, V v) { *(Unaligned*)p = v; }
static inline V every(float f) { return f - V{}; }
static inline long least(long a, long b) { return a < b ? a : b; }
#if LANES == 16
static inline V half(const uint8_t* p) { int16_t h; memcpy(&h, p, 2); return (V)_mm512_cvtph_ps(_mm256_set1_epi16(h)); }
static inline V first(const float* p, long n) { return (V)_mm512_maskz_loadu_ps((1 << n) - 1, p); }
static inline __m256 folded(V v) {
    return _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
}
#else
static inline V half(const uint8_t* p) { int16_t h; memcpy(&h, p, 2); return (V)_mm256_cvtph_ps(_mm_set1_epi16(h)); }
static inline V first(const float* p, long n) {
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return (V)_mm256_maskload_ps(p, below);
}
static inline __m256 folded(V v) { return (__m256)v; }
#endif
static inline __m128 four(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
static inline float sum(V v) { return _mm_cvtss_f32(four(folded(v), folded(v), folded(v), folded(v))); }

// ---- Products of float32: y[r, o] += x[r] . w[o]. Rows of w that are read at the same time lie far apart: on pages of 4 KB
// one thread gets 24 GB/s of eight far rows where it gets 17 of one after the other, and 11 of two neighbours (Zen 4).

// One row of activations, and S of weights.
template <int S> static void stream(const float* x, const float* w, long ldw, long k, float* y, long ldo) {
    V a[S] = {};
    long i = 0;
    for (; i + L <= k; i += L) {
        const V b = load(x + i);
        UNROLLED for (int s = 0; s < S; s++) a[s] += load(w + s * ldw + i) * b;
    }
    if (i < k) UNROLLED for (int s = 0; s < S; s++) a[s] += first(w + s * ldw + i, k - i) * first(x + i, k - i);
    for (int s = 0; s < S; s += 4) {
        const __m128 f = four(folded(a[s]), folded(a[(s + 1) % S]), folded(a[(s + 2) % S]), folded(a[(s + 3) % S]));
        for (int j = 0; j < least(4, S); j++) y[(s + j) * ldo] += f[j];
    }
}
// Several rows are multiplied in tiles of R, accumulators in registers, for which they are laid out vector by vector, R of each.
static inline long tiled(long rows) {
    constexpr long most = L == 16 ? 6 : 3;
    const long many = (rows + most - 1) / most;
    return (rows + many - 1) / many;
}
static const float* packed(const float* x, long ldx, long rows, long k) {
    if (rows == 1) return x;
    const long wide = (k + L - 1) / L * L;
    float *made = scratch(ROWS, rows * wide), *to = made;
    for (long r; rows > 0; rows -= r, x += r * ldx) {
        r = tiled(rows);
        for (long i = 0; i < k; i += L)
            for (long j = 0; j < r; j++, to += L)
                store(to, i + L <= k ? load(x + j * ldx + i) : first(x + j * ldx + i, k - i));
    }
    return made;
}
// O rows of weights.
template <int O, int R> static void tile(const float* x, const float* w, long ldw, long k, float* y, long ldy, long ldo) {
    V a[O][R] = {};
    auto step = [&](auto get, long i) {
        UNROLLED for (int o = 0; o < O; o++) {
            const V c = get(w + o * ldw + i);
            UNROLLED for (int r = 0; r < R; r++) a[o][r] += c * load(x + i * R + r * L);
        }
    };
    long i = 0;
    for (; i + L <= k; i += L) {
        UNROLLED for (int o = 0; o < O; o++) _mm_prefetch((const char*)(w + o * ldw + i + k), _MM_HINT_T1);  // the next row
        step(load, i);
    }
    if (i < k) step([=](const float* p) { return first(p, k - i); }, i);
    UNROLLED for (int r = 0; r < R; r++) {
        const __m128 f = four(folded(a[0][r]), folded(a[1 % O][r]), folded(a[2 % O][r]), folded(a[3 % O][r]));
        for (int o = 0; o < O; o++) y[r * ldy + o * ldo] += f[o];
    }
}
template <int O> static void tiles(const float* x, long rows, const float* w, long ldw, long k, float* y, long ldy, long ldo) {
    for (long r; rows > 0; rows -= r, x += r * ((k + L - 1) / L * L), y += r * ldy) {
        r = tiled(rows);
        switch (r) {
            case 1: tile<O, 1>(x, w, ldw, k, y, ldy, ldo); break;
            case 2: tile<O, 2>(x, w, ldw, k, y, ldy, ldo); break;
            case 3: tile<O, 3>(x, w, ldw, k, y, ldy, ldo); break;
#if LANES == 16
            case 4: tile<O, 4>(x, w, ldw, k, y, ldy, ldo); break;
            case 5: tile<O, 5>(x, w, ldw, k, y, ldy, ldo); break;
            case 6: tile<O, 6>(x, w, ldw, k, y, ldy, ldo); break;
#endif
        }
    }
}
// x: as `packed` gives it.
static void floats(const float* x, long rows, const float* w, long ldw, long outputs, long k, float* y, long ldy) {
    const long many = rows == 1 ? 8 : 4, far = outputs / many;
    for (long o = 0; o < far; o++)
        if (rows == 1) stream<8>(x, w + o * ldw, far * ldw, k, y + o, far);
        else tiles<4>(x, rows, w + o * ldw, far * ldw, k, y + o, ldy, far);
    for (long o = far * many; o < outputs; o++)
        if (rows == 1) stream<1>(x, w + o * ldw, 0, k, y + o, 0);
        else tiles<1>(x, rows, w + o * ldw, 0, k, y + o, ldy, 0);
}

// ---- Blocks: 32 weights are d q + m.

#if LANES == 16
struct Wide { __m512i v; };  // 32 numbers of 16 bits
static inline Wide wide(__m256i q) { return {_mm512_cvtepi8_epi16(q)}; }
static inline Wide scaled(Wide q, int a, int b) {
    return {_mm512_mullo_epi16(q.v, _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1))};
}
static inline I times(Wide w, const int16_t* x) { return (I)_mm512_madd_epi16(w.v, _mm512_loadu_si512(x)); }
static inline void real(Wide w, V d, V m, float* y) {
    const __m256i part[2] = {_mm512_castsi512_si256(w.v), _mm512_extracti64x4_epi64(w.v, 1)};
    for (int i = 0; i < 2; i++) store(y + 16 * i, (V)_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(part[i])) * d + m);
}
#else
struct Wide { __m256i a, b; };
static inline Wide wide(__m256i q) {
    return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1))};
}
static inline Wide scaled(Wide q, int a, int b) {
    return {_mm256_mullo_epi16(q.a, _mm256_set1_epi16((short)a)), _mm256_mullo_epi16(q.b, _mm256_set1_epi16((short)b))};
}
static inline I times(Wide w, const int16_t* x) {
    const __m256i* p = (const __m256i*)x;
    return (I)_mm256_add_epi32(_mm256_madd_epi16(w.a, _mm256_loadu_si256(p)), _mm256_madd_epi16(w.b, _mm256_loadu_si256(p + 1)));
}
static inline void real(Wide w, V d, V m, float* y) {
    const __m128i part[4] = {_mm256_castsi256_si128(w.a), _mm256_extracti128_si256(w.a, 1),
                             _mm256_castsi256_si128(w.b), _mm256_extracti128_si256(w.b, 1)};
    for (int i = 0; i < 4; i++) store(y + 8 * i, (V)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(part[i])) * d + m);
}
#endif
struct Group { __m256i q; Wide w; V d, m; };
static inline __m256i nibbles(const uint8_t* p) {  // 16 bytes: the low ones, then the high ones
    const __m128i b = _mm_loadu_si128((const __m128i*)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}
static inline __m256i bits(const uint8_t* p, int from, int mask) {
    return _mm256_and_si256(_mm256_srl_epi16(_mm256_loadu_si256((const __m256i*)p), _mm_cvtsi32_si128(from)),
                            _mm256_set1_epi8((char)mask));
}
// Group j of the block at p.
template <int F> static inline Group group(const uint8_t* p, int j) {
    if (F == Q8_0) { const __m256i q = _mm256_loadu_si256((const __m256i*)(p + 2)); return {q, wide(q), half(p), V{}}; }
    if (F == Q4_0) {
        const __m256i q = _mm256_sub_epi8(nibbles(p + 2), _mm256_set1_epi8(8));
        return {q, wide(q), half(p), V{}};
    }
    if (F == Q4_1) { const __m256i q = nibbles(p + 4); return {q, wide(q), half(p), half(p + 2)}; }
    if (F == Q4_K) {
        const uint8_t* s = p + 4;
        const int d = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        const int m = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
        const __m256i q = bits(p + 16 + 32 * (j / 2), 4 * (j & 1), 15);
        return {q, wide(q), half(p) * (float)d, half(p + 2) * (float)-m};
    }
    const uint8_t *low = p + 64 * (j / 4) + 32 * (j & 1), *high = p + 128 + 32 * (j / 4);
    const int8_t* s = (const int8_t*)p + 192 + 2 * j;
    const __m256i top = _mm256_slli_epi16(bits(high, 2 * (j & 3), 3), 4);
    const __m256i q = _mm256_sub_epi8(_mm256_or_si256(bits(low, 4 * (j / 2 & 1), 15), top), _mm256_set1_epi8(32));
    return {q, scaled(wide(q), s[0], s[1]), half(p + 208), V{}};
}
template <int F> static void decoded(const uint8_t* p, long k, float* y) {
    for (long at = 0; at < k; at += NUMBERS[F], p += BYTES[F])
        UNROLLED for (int j = 0; j < NUMBERS[F] / 32; j++) { Group g = group<F>(p, j); real(g.w, g.d, g.m, y + at + 32 * j); }
}
static void reals(const Matrix& m, long from, long to, float* y) {
    const long bytes = m.k / NUMBERS[m.format] * BYTES[m.format];
    for (long i = from; i < to; i++, y += m.k) {
        const uint8_t* p = m.data + i * bytes;
        switch (m.format) {
            case Q8_0: decoded<Q8_0>(p, m.k, y); break;
            case Q4_0: decoded<Q4_0>(p, m.k, y); break;
            case Q4_1: decoded<Q4_1>(p, m.k, y); break;
            case Q4_K: decoded<Q4_K>(p, m.k, y); break;
            case Q6_K: decoded<Q6_K>(p, m.k, y); break;
            default: memcpy(y, p, bytes);
        }
    }
}

// Activations in integers T, 32 with one scale each. sums: of a group, over the lanes of an accumulator.
template <typename T> struct Rows { const T* q; const float *scales, *sums; long k; };
template <typename T> static Rows<T> integers(const float* x, long rows, long k) {
    const float top = sizeof(T) == 1 ? 127.f : 32767.f, lanes = sizeof(T) == 1 ? 8 : L;
    const long groups = k / 32;
    T* q = (T*)scratch(ROWS, rows * k * (long)sizeof(T) / 4 + 8);
    float *scales = scratch(SCALES, 2 * rows * groups), *sums = scales + rows * groups;
    for (long i = 0; i < rows * groups; i++, x += 32, q += 32) {
        __m256 v[4], most = _mm256_setzero_ps();
        __m256i n[4], total = _mm256_setzero_si256();
        for (int j = 0; j < 4; j++) {
            v[j] = _mm256_loadu_ps(x + 8 * j);
            most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.f), v[j]));
        }
        float a = 0;
        for (int j = 0; j < 8; j++) a = most[j] > a ? most[j] : a;
        for (int j = 0; j < 4; j++) {
            n[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], _mm256_set1_ps(a ? top / a : 0)));
            total = _mm256_add_epi32(total, n[j]);
        }
        const __m256i b = _mm256_permute4x64_epi64(_mm256_packs_epi32(n[0], n[1]), 0xd8);
        const __m256i c = _mm256_permute4x64_epi64(_mm256_packs_epi32(n[2], n[3]), 0xd8);
        if (sizeof(T) == 2) { _mm256_storeu_si256((__m256i*)q, b); _mm256_storeu_si256((__m256i*)q + 1, c); }
        else _mm256_storeu_si256((__m256i*)q, _mm256_permute4x64_epi64(_mm256_packs_epi16(b, c), 0xd8));
        const __m256 t = _mm256_cvtepi32_ps(total);
        scales[i] = a / top, sums[i] = _mm_cvtss_f32(four(t, t, t, t)) * (a / top) / lanes;
    }
    return {q - rows * k, scales, sums, k};
}
static inline V dot(const Group& g, const int16_t* x) { return __builtin_convertvector(times(g.w, x), V); }
static inline __m256 dot(const Group& g, const int8_t* x) {
    const __m256i a = _mm256_abs_epi8(g.q), b = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i*)x), g.q);
#if LANES == 16
    return _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), a, b));
#else
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
#endif
}
static inline V plus(V a, V s, V d, float f) { return a + s * (d * f); }
static inline V plus(V a, V m, float f) { return a + m * f; }
#if LANES == 16
static inline __m256 low(V v) { return _mm512_castps512_ps256((__m512)v); }
static inline __m256 plus(__m256 a, __m256 s, V d, float f) { return a + s * (low(d) * f); }
static inline __m256 plus(__m256 a, V m, float f) { return a + low(m) * f; }
static inline __m256 folded(__m256 v) { return v; }
#endif
// O rows of weights that lie `far` bytes apart, R of activations from r on.
template <int F, typename T, int R, int O>
static void dots(Rows<T> x, long r, const uint8_t* w, long far, float* y, long ldy, long ldo) {
    const long groups = x.k / 32;
    const T* q = x.q + r * x.k;
    const float *scales = x.scales + r * groups, *sums = x.sums + r * groups;
    decltype(dot(Group(), q)) a[O][R] = {};
    auto step = [&](long at, int j) {
        UNROLLED for (int o = 0; o < O; o++) {
            const Group g = group<F>(w + o * far, j);
            UNROLLED for (int i = 0; i < R; i++) {
                a[o][i] = plus(a[o][i], dot(g, q + i * x.k + 32 * at), g.d, scales[i * groups + at]);
                if (F == Q4_1 || F == Q4_K) a[o][i] = plus(a[o][i], g.m, sums[i * groups + at]);
            }
        }
    };
    for (long b = 0; b < groups; b += NUMBERS[F] / 32, w += BYTES[F])
        for (int j = 0; j < NUMBERS[F] / 32; j++) step(b + j, j);
    UNROLLED for (int i = 0; i < R; i++) {
        const __m128 s = four(folded(a[0][i]), folded(a[1 % O][i]), folded(a[2 % O][i]), folded(a[3 % O][i]));
        for (long o = 0; o < O; o++) y[i * ldy + o * ldo] += s[o];
    }
}
template <int F, typename T, int O>
static void some(Rows<T> x, long rows, const uint8_t* w, long far, float* y, long ldy, long ldo) {
    for (long r = 0; r < rows; r += 4) {
        float* to = y + r * ldy;
        switch (rows - r) {
            case 1: dots<F, T, 1, O>(x, r, w, far, to, ldy, ldo); break;
            case 2: dots<F, T, 2, O>(x, r, w, far, to, ldy, ldo); break;
            case 3: dots<F, T, 3, O>(x, r, w, far, to, ldy, ldo); break;
            default: dots<F, T, 4, O>(x, r, w, far, to, ldy, ldo);
        }
    }
}
template <int F, typename T> static void blocks(Rows<T> x, long rows, const uint8_t* w, long outputs, float* y, long ldy) {
    const long bytes = x.k / NUMBERS[F] * BYTES[F], far = outputs / 4;
    long o = 0;
    for (; o < far; o++) some<F, T, 4>(x, rows, w + o * bytes, far * bytes, y + o, ldy, far);
    for (o *= 4; o < outputs; o++) some<F, T, 1>(x, rows, w + o * bytes, 0, y + o, ldy, 0);
}
template <typename T> static void integral(const Matrix& m, Rows<T> x, long rows, long from, long to, float* y, long ldy) {
    const uint8_t* p = m.data + from * (m.k / NUMBERS[m.format] * BYTES[m.format]);
    switch (m.format) {
        case Q8_0: return blocks<Q8_0, T>(x, rows, p, to - from, y + from, ldy);
        case Q4_0: return blocks<Q4_0, T>(x, rows, p, to - from, y + from, ldy);
        case Q4_1: return blocks<Q4_1, T>(x, rows, p, to - from, y + from, ldy);
        case Q4_K: return blocks<Q4_K, T>(x, rows, p, to - from, y + from, ldy);
        default: return blocks<sizeof(T) == 2 ? Q6_K : Q4_K, T>(x, rows, p, to - from, y + from, ldy);
    }
}
static void product(const Product& p, const float* x, long rows, bool keep, float* y, long threads) {
    for (long i = 0; i < p.parts; y += p.part[i].n, i++) {
        const Matrix& m = p.part[i];
        if (!keep) for (long r = 0; r < rows; r++) memset(y + r * p.n, 0, 4 * m.n);
        if (m.bias) for (long r = 0; r < rows; r++) for (long o = 0; o < m.n; o++) y[r * p.n + o] += m.bias[o];
        const long step = (least(m.n, m.n / (4 * threads) + 16) + 3) & ~3L;
        const long dot = m.format == F32 ? 0 : m.dot;
        if (dot == 8 && m.format != Q6_K) {
            const auto q = integers<int8_t>(x, rows, m.k);
            split(threads, m.n, step, [&](long a, long b) { integral(m, q, rows, a, b, y, p.n); });
        } else if (dot && rows <= 3) {
            const auto q = integers<int16_t>(x, rows, m.k);
            split(threads, m.n, step, [&](long a, long b) { integral(m, q, rows, a, b, y, p.n); });
        } else {  // for more rows weights are made float32 once: exact, and no slower than integers
            const float* q = packed(x, m.k, rows, m.k);
            split(threads, m.n, step, [&](long a, long b) {
                if (m.format == F32) return floats(q, rows, (const float*)m.data + a * m.k, m.k, b - a, m.k, y + a, p.n);
                float* w = scratch(WEIGHTS, 4 * m.k);
                for (long o = a; o < b; o += 4) {
                    const long some = least(4, b - o);
                    reals(m, o, o + some, w);
                    floats(q, rows, w, m.k, some, m.k, y + o, p.n);
                }
            });
        }
    }
}

// ---- A layer.

static void rms(const float* x, const float* w, long n, float eps, float* y) {  // n is a multiple of 8
    V s = {};
    long i = 0;
    for (; i + L <= n; i += L) s += load(x + i) * load(x + i);
    if (i < n) s += first(x + i, n - i) * first(x + i, n - i);
    const float f = 1.f / sqrtf(sum(s) / n + eps);
    for (i = 0; i < n; i++) y[i] = x[i] * f * w[i];
}
static inline V exponential(V x) {  // Cephes' polynomial: two units in the last place
    x = x < -87.f ? every(-87.f) : x;
    x = x > 88.f ? every(88.f) : x;
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
        const V g = i + L <= n ? load(gate + i) : first(gate + i, n - i), u = i + L <= n ? load(up + i) : first(up + i, n - i);
        const V z = activation ? (g + g * g * g * 0.044715f) * 1.5957691216f : g;  // gelu by tanh is g sigmoid(z)
        const V made = g / (1.f + exponential(-z)) * u;
        if (i + L <= n) store(gate + i, made);
        else memcpy(gate + i, &made, 4 * (n - i));
    }
}
// R rows of weights [used] times values: out [R, head].
template <int R> static void mixed(const float* p, long ldp, const float* v, long ldv, long used, long head, float* out, long ldo) {
    for (long d = 0; d < head; d += L) {
        V a[R] = {};
        for (long s = 0; s < used; s++) {
            const V value = load(v + s * ldv + d);
            UNROLLED for (int r = 0; r < R; r++) a[r] += value * p[r * ldp + s];
        }
        for (int r = 0; r < R; r++) store(out + r * ldo + d, a[r]);
    }
}
// The attention of one head of keys for all queries that share it. q, out: [count, heads, head] of one sequence.
static void attention(const Layer& l, const Call& c, long b, long h, const float* q, long ldq, float* out, long ldo) {
    const long G = l.heads / l.kv_heads, D = l.head, S = c.used, rows = c.count * G, wide = (S + L - 1) / L * L;
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
        V top = every(-3.4028235e38f), total = {};
        for (long s = 0; s < wide; s += L) { const V v = load(z + s); top = v > top ? v : top; }
        float most = top[0];
        for (int i = 1; i < L; i++) most = top[i] > most ? top[i] : most;
        for (long s = 0; s < wide; s += L) {
            const V v = load(z + s) - most, e = v < -87.f ? V{} : exponential(v);
            store(z + s, e), total += e;
        }
        const float all = sum(total), f = all > 0 ? 1.f / all : 0;
        for (long s = 0; s < wide; s += L) store(z + s, load(z + s) * f);
    }
    const float* values = c.values + b * c.value_strides[0] + h * c.value_strides[1];
    for (long r = 0; r < rows; r += 4) switch (rows - r) {
        case 1: mixed<1>(p + r * wide, wide, values, c.value_strides[2], S, D, to + r * D, D); break;
        case 2: mixed<2>(p + r * wide, wide, values, c.value_strides[2], S, D, to + r * D, D); break;
        case 3: mixed<3>(p + r * wide, wide, values, c.value_strides[2], S, D, to + r * D, D); break;
        default: mixed<4>(p + r * wide, wide, values, c.value_strides[2], S, D, to + r * D, D);
    }
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
            float *x = y + t * Q + i * D, *z = x + half;
            if (l.q) rms(x, i < H ? l.q : l.k, D, l.eps, x);
            for (long j = 0; j < half; j++) {
                const float x0 = x[j], z0 = z[j];
                x[j] = x0 * cos[j] - z0 * sin[j], z[j] = z0 * cos[half + j] + x0 * sin[half + j];
            }
        }
        for (long i = 0; i < N; i++) {
            const float* k = y + t * Q + (H + i) * D;
            memcpy(c.keys + b * c.key_strides[0] + i * c.key_strides[1] + c.rows[t] * c.key_strides[2], k, 4 * D);
            memcpy(c.values + b * c.value_strides[0] + i * c.value_strides[1] + c.rows[t] * c.value_strides[2], k + N * D, 4 * D);
        }
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
