// CUDA's extensions of C++ in host memory: enough for kernels that use warps, shared memory of a warp and atomics.
// The lanes of a warp are contexts that change hands where all of them have to meet; blocks are shared among two threads.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <ucontext.h>
#include <utility>

#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(threads)
struct Place { unsigned x; };
static thread_local Place blockIdx, blockDim, gridDim, threadIdx;

namespace warp {
constexpr unsigned LANES = 32, STACK = 1 << 16;
struct Lane { ucontext_t context; unsigned long long given; bool done; unsigned thread; char stack[STACK]; };
struct State { ucontext_t home; Lane lanes[LANES]; unsigned long long seen[LANES]; unsigned current; void (*body)(void *); void *data; };
static thread_local State *state;

inline void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    abort();
}
inline void meet(unsigned mask, unsigned long long value) {  // goes on when all lanes are here; `seen` has their values
    if (mask != 0xffffffff) fail("not all lanes are asked to meet");
    Lane &lane = state->lanes[state->current];
    lane.given = value;
    swapcontext(&lane.context, &state->home);
}
inline void enter() {
    state->body(state->data);
    Lane &lane = state->lanes[state->current];
    lane.done = true;
    swapcontext(&lane.context, &state->home);
}
inline void run(unsigned first, void (*body)(void *), void *data) {
    state->body = body;
    state->data = data;
    for (unsigned n = 0; n < LANES; n++) {
        Lane &lane = state->lanes[n];
        getcontext(&lane.context);
        lane.context.uc_stack.ss_sp = lane.stack;
        lane.context.uc_stack.ss_size = STACK;
        lane.context.uc_link = nullptr;
        lane.done = false;
        lane.thread = first + n;
        makecontext(&lane.context, enter, 0);
    }
    for (unsigned ended = 0; ended < LANES;) {
        for (unsigned n = 0; n < LANES; n++) {
            if (state->lanes[n].done) continue;
            state->current = n;
            threadIdx.x = state->lanes[n].thread;
            swapcontext(&state->home, &state->lanes[n].context);
            ended += state->lanes[n].done;
        }
        for (unsigned n = 0; n < LANES; n++) state->seen[n] = state->lanes[n].given;
        if (ended % LANES) fail("lanes wait for lanes that have ended");
    }
}
}  // namespace warp

inline void __syncwarp() { warp::meet(0xffffffff, 0); }
inline unsigned __ballot_sync(unsigned mask, bool yes) {
    warp::meet(mask, yes);
    unsigned found = 0;
    for (unsigned n = 0; n < warp::LANES; n++) found |= (unsigned)(warp::state->seen[n] != 0) << n;
    return found;
}
inline bool __any_sync(unsigned mask, bool yes) { return __ballot_sync(mask, yes) != 0; }
template <class T> T __shfl_sync(unsigned mask, T value, unsigned lane) { warp::meet(mask, value); return (T)warp::state->seen[lane]; }
inline unsigned __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long expected, unsigned long long value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <class... A, size_t... N>
void call(void (*kernel)(A...), const uint64_t *values, std::index_sequence<N...>) { kernel((A)values[N]...); }

template <class... A> unsigned count(void (*)(A...)) { return sizeof...(A); }

template <class... A> void emulate(void (*kernel)(A...), unsigned blocks, unsigned threads, const uint64_t *values) {
    struct Job { void (*kernel)(A...); const uint64_t *values; } job{kernel, values};
    auto body = [](void *data) {
        Job &job = *(Job *)data;
        call(job.kernel, job.values, std::index_sequence_for<A...>());
    };
    auto work = [&](unsigned first) {
        warp::state = new warp::State;
        for (unsigned block = first; block < blocks; block += 2) {
            blockIdx.x = block, blockDim.x = threads, gridDim.x = blocks;
            for (unsigned lane = 0; lane < threads; lane += warp::LANES) warp::run(lane, body, &job);
        }
        delete warp::state;
    };
    std::thread other(work, 1);
    work(0);
    other.join();
}
