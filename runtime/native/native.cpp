// Products with a model's matrices as they lie in its file, and whole layers of a decoder, on x86-64; see __init__.py.
//
// kernels.h is compiled twice, for AVX2 and for AVX-512 with VNNI; `native_isa` chooses. Nothing of the C++ library is used
// inside it: what is instantiated there might be shared with code that runs on every processor.
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

enum Format { F32, Q8_0, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, F16, BF16 };
static const long BYTES[] = {4, 34, 18, 20, 144, 22, 24, 176, 210}, NUMBERS[] = {1, 32, 32, 32, 256, 32, 32, 256, 256};  // of a block

// A matrix [n, k], rows of n outputs one after the other. dot: 0 float32 activations, 16 or 8 for int16 or int8 ones.
struct Matrix { const uint8_t* data; const float* bias; int64_t n, k, format, dot; };
// Matrices of one input, whose outputs stand side by side.
struct Product { int64_t parts, n, k; Matrix part[3]; };
// Norms q and k may be null. rotated: how many numbers of a head are, by pairs (2i, 2i + 1) where `neighbours`, else (i, i + half).
// activation: see `inner` in kernels.h.
struct Layer {
    int64_t width, heads, kv_heads, head, rotated, neighbours, activation;
    float eps, scale;
    const float *attn_in, *mlp_in, *q, *k;
    Product qkv, o, up, down;
};
// States x [batch * count, width]; cosines and sines [batch * count, rotated]; rows of the caches [batch * count]; caches by
// their strides of batch, head and row; a mask to be added [batch, count, used], or null.
struct Call {
    int64_t batch, count, used, threads;
    float* x; const float *cosines, *sines; const int64_t* rows;
    float *keys, *values; int64_t key_strides[3], value_strides[3];
    const float* mask; int64_t mask_strides[2];
};

// Torch's own threads: GOMP_parallel of the OpenMP library that torch has loaded, null where there is none.
static void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;

// work(from, to) over 0 .. count - 1, in parts of `step` that idle threads take.
template <typename W> static void split(long threads, long count, long step, W work) {
    if (threads < 2 || !parallel || count <= step) return work(0, count);
    struct Job { W* work; long count, step, next; } job{&work, count, step, 0};
    parallel([](void* given) {
        Job& job = *(Job*)given;
        for (long from; (from = __atomic_fetch_add(&job.next, job.step, __ATOMIC_RELAXED)) < job.count;)
            (*job.work)(from, from + job.step < job.count ? from + job.step : job.count);
    }, &job, threads, 0);
}

// Memory of a thread that it keeps: one for each use, as they are held at the same time.
enum Use { ROWS, SCALES, WEIGHTS, SCORES, LAYER };
static float* scratch(Use use, long count) {
    static thread_local std::vector<float> kept[5];
    if ((long)kept[use].size() < count) kept[use].resize(count);
    return kept[use].data();
}

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define LANES 8
namespace avx2 {
#include "kernels.h"
}
#undef LANES
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,prefer-vector-width=512")
#define LANES 16
namespace avx512 {
#include "kernels.h"
}
#pragma GCC pop_options

static int isa = 0;
extern "C" {
// The instruction set used from now on: 2 for AVX2, 5 for AVX-512, the best for 0. Gives 0 where this processor has none such.
int native_isa(int wanted) {
    __builtin_cpu_init();
#define HAS __builtin_cpu_supports
    const bool two = HAS("avx2") && HAS("fma") && HAS("f16c");
    const bool five = two && HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl") && HAS("avx512vnni");
    const int found = five && wanted != 2 ? 5 : two && wanted != 5 ? 2 : 0;
    return found && (wanted == 0 || wanted == found) ? isa = found : 0;
}
void native_threads(void* found) { parallel = (decltype(parallel))found; }

// y[rows, p.n] = x[rows, p.k] W' + b, added to what y is where `keep`.
void native_product(const Product* p, const float* x, int64_t rows, int64_t keep, float* y, int64_t threads) {
    (isa == 5 ? avx512::product : avx2::product)(*p, x, rows, keep, y, threads);
}
// Rows from .. to - 1 of a matrix in float32.
void native_reals(const Matrix* m, int64_t from, int64_t to, float* y) { (isa == 5 ? avx512::reals : avx2::reals)(*m, from, to, y); }
void native_layer(const Layer* l, const Call* c) { (isa == 5 ? avx512::layer : avx2::layer)(*l, *c); }
}
