// What an inner join of N + N rows (int64 key, int64 payload; 30 % of the right rows match) could take on this GPU,
// without RAPIDS: a hash join of our own that keeps key and payload together in slots of 16 bytes, and writes its result
// while it probes (no row numbers, no counting pass; duplicate keys are allowed as long as the result fits).
//
//   nvcc -O3 -std=c++17 -arch=sm_90 [-DWITH_RADIX_PASS] join_limit.cu -o join_limit && ./join_limit 25000000
//
// Prints one JSON object: milliseconds, medians of 9 after 2 warm-ups. `joins` has an entry for each way to probe and
// size of the table; each result is verified: its rows, and the sums of its three columns. Status 0; 3 if CUDA fails or
// the memory does not suffice (with a JSON object that has `error`); 4 if a result is wrong.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#ifdef ON_CPU
#include "cuda_on_cpu.h"
#else
#define LAUNCH(kernel, grid, block, ...) kernel<<<(unsigned)(grid), (block)>>>(__VA_ARGS__)
#define ALL_LANES 0xffffffffu
constexpr int LANES = 32;
#endif
#ifdef WITH_RADIX_PASS
#include <cub/device/device_radix_sort.cuh>
#endif

using u64 = unsigned long long;
constexpr u64 EMPTY = ~0ull;
constexpr int BLOCK = 256, REPEATS = 9, WARM_UPS = 2;
constexpr int STAGED_ROWS = 128;  // rows of the result that a warp collects before it writes them together

static void fail(const char *what, const char *why) {
    printf("{\"error\": \"%s: %s\"}\n", what, why);
    exit(3);
}
#define TRY(call) do { cudaError_t status = (call); if (status != cudaSuccess) fail(#call, cudaGetErrorString(status)); } while (0)

__host__ __device__ inline u64 mix(u64 k) {
    k ^= k >> 33; k *= 0xff51afd7ed558ccdull;
    k ^= k >> 33; k *= 0xc4ceb9fe1a85ec53ull;
    return k ^ k >> 33;
}

// The slot at which the search for a key begins, of any number of slots: the high word of hash × slots.
__device__ inline u64 first_slot(u64 key, u64 slots) { return __umul64hi(mix(key), slots); }
__device__ inline u64 next_slot(u64 at, u64 slots) { return at + 1 == slots ? 0 : at + 1; }

__global__ void clear(ulonglong2 *table, u64 slots) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < slots; i += (u64)gridDim.x * blockDim.x)
        table[i] = make_ulonglong2(EMPTY, 0);
}

__global__ void build(const u64 *keys, const u64 *payload, u64 rows, ulonglong2 *table, u64 slots) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= rows) return;
    u64 key = keys[i];
    for (u64 at = first_slot(key, slots);; at = next_slot(at, slots))
        if (table[at].x == EMPTY && atomicCAS(&table[at].x, EMPTY, key) == EMPTY) { table[at].y = payload[i]; return; }
}

struct Result { u64 *key, *left, *right, *count; };

// Every warp writes the matches of one step of its 32 searches at once: one addition to the counter for each step.
__global__ void probe_at_once(const u64 *keys, const u64 *payload, u64 rows, const ulonglong2 *table, u64 slots, Result to) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    bool live = i < rows;
    u64 key = live ? keys[i] : 0, left = live ? payload[i] : 0, at = first_slot(key, slots);
    while (__any_sync(ALL_LANES, live)) {
        ulonglong2 slot = live ? table[at] : make_ulonglong2(EMPTY, 0);
        bool match = live && slot.x == key;
        live = live && slot.x != EMPTY;
        at = next_slot(at, slots);
        unsigned matched = __ballot_sync(ALL_LANES, match);
        if (!matched) continue;
        int lane = threadIdx.x % LANES, leader = __ffs(matched) - 1;
        u64 base = 0;
        if (lane == leader) base = atomicAdd(to.count, (u64)__popc(matched));
        base = __shfl_sync(ALL_LANES, base, leader);
        if (match) {
            u64 row = base + __popc(matched & ((1u << lane) - 1));
            to.key[row] = key; to.left[row] = left; to.right[row] = slot.y;
        }
    }
}

// Every warp collects matches in shared memory, and writes them in runs: fewer additions to the counter, whole sectors.
__global__ void probe_staged(const u64 *keys, const u64 *payload, u64 rows, const ulonglong2 *table, u64 slots, Result to) {
    __shared__ u64 staged[BLOCK / LANES][3][STAGED_ROWS];
    int lane = threadIdx.x % LANES, held = 0;
    u64 (*mine)[STAGED_ROWS] = staged[threadIdx.x / LANES];
    auto flush = [&] {
        __syncwarp();
        u64 base = 0;
        if (lane == 0) base = atomicAdd(to.count, (u64)held);
        base = __shfl_sync(ALL_LANES, base, 0);
        for (int row = lane; row < held; row += LANES) {
            to.key[base + row] = mine[0][row]; to.left[base + row] = mine[1][row]; to.right[base + row] = mine[2][row];
        }
        __syncwarp();
        held = 0;
    };
    u64 warps = (u64)gridDim.x * (BLOCK / LANES), warp = blockIdx.x * (u64)(BLOCK / LANES) + threadIdx.x / LANES;
    for (u64 first = warp * LANES; first < rows; first += warps * LANES) {
        u64 i = first + lane;
        bool live = i < rows;
        u64 key = live ? keys[i] : 0, left = live ? payload[i] : 0, at = first_slot(key, slots);
        while (__any_sync(ALL_LANES, live)) {
            ulonglong2 slot = live ? table[at] : make_ulonglong2(EMPTY, 0);
            bool match = live && slot.x == key;
            live = live && slot.x != EMPTY;
            at = next_slot(at, slots);
            unsigned matched = __ballot_sync(ALL_LANES, match);
            if (match) {
                int row = held + __popc(matched & ((1u << lane) - 1));
                mine[0][row] = key; mine[1][row] = left; mine[2][row] = slot.y;
            }
            held += __popc(matched);
            if (held > STAGED_ROWS - LANES) flush();
        }
    }
    if (held) flush();
}

__global__ void read_randomly(const u64 *index, const ulonglong2 *from, u64 rows, u64 *sink) {  // one sector of 32 bytes each
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < rows && from[2 * index[i]].x == 42) *sink = i;
}

__global__ void generate(u64 *left, u64 *right, u64 *left_payload, u64 *right_payload, u64 *index, u64 rows, u64 matching, u64 odd) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= rows) return;
    u64 key = (i * odd + 12345) % rows;
    left[i] = (i * odd) % rows;
    right[i] = key < matching ? key : rows + key;
    left_payload[i] = i;
    right_payload[i] = 3 * i + 1;
    index[i] = mix(i) % (rows / 2);
}

__global__ void add_up(Result of, u64 rows, u64 *sums) {
    u64 key = 0, left = 0, right = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < rows; i += (u64)gridDim.x * blockDim.x) {
        key += of.key[i] * (of.left[i] + 1);  // a key beside another row's payload changes this sum
        left += of.left[i] * (of.right[i] + 1);
        right += of.right[i];
    }
    atomicAdd(sums, key); atomicAdd(sums + 1, left); atomicAdd(sums + 2, right);
}

template <class F> double median(F run) {
    std::vector<float> found;
    cudaEvent_t begin, end;
    TRY(cudaEventCreate(&begin)); TRY(cudaEventCreate(&end));
    for (int i = 0; i < WARM_UPS + REPEATS; i++) {
        float milliseconds;
        TRY(cudaEventRecord(begin)); run(); TRY(cudaEventRecord(end)); TRY(cudaEventSynchronize(end));
        TRY(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= WARM_UPS) found.push_back(milliseconds);
    }
    TRY(cudaGetLastError());
    std::sort(found.begin(), found.end());
    return found[found.size() / 2];
}

int main(int argc, char **argv) {
    u64 rows = argc > 1 ? strtoull(argv[1], nullptr, 10) : 25000000, matching = rows * 3 / 10, odd = 982451653ull;
    if (rows < 1000 || rows > 900000000) fail("rows", "must be between 1,000 and 900,000,000");
    u64 most_slots = 2 * rows, grid = (rows + BLOCK - 1) / BLOCK;
    size_t free_bytes = 0, total_bytes = 0, needed = 8 * 8 * rows + 16 * most_slots + 16 * rows + (64 << 20);
    TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (needed > free_bytes) {
        char why[96];
        snprintf(why, sizeof why, "%.1f GB are needed, %.1f GB are free", needed * 1e-9, free_bytes * 1e-9);
        fail("memory", why);
    }
    cudaDeviceProp gpu;
    TRY(cudaGetDeviceProperties(&gpu, 0));
    u64 wide = (u64)gpu.multiProcessorCount * 8;  // blocks that fill the GPU: 2,048 threads a multiprocessor

    u64 *left, *right, *left_payload, *right_payload, *index, *sums;
    ulonglong2 *table;
    Result out;
    for (u64 **each : {&left, &right, &left_payload, &right_payload, &index, &out.key, &out.left, &out.right})
        TRY(cudaMalloc((void **)each, 8 * rows));
    TRY(cudaMalloc((void **)&out.count, 8)); TRY(cudaMalloc((void **)&sums, 24)); TRY(cudaMalloc((void **)&table, 16 * most_slots));
    LAUNCH(generate, grid, BLOCK, left, right, left_payload, right_payload, index, rows, matching, odd);
    TRY(cudaDeviceSynchronize());
    LAUNCH(clear, wide, BLOCK, table, most_slots);

    double copied = median([&] { cudaMemcpyAsync(out.key, left, 8 * rows, cudaMemcpyDeviceToDevice); });
    double reads = median([&] { LAUNCH(read_randomly, grid, BLOCK, index, table, rows, sums); });
    printf("{\"gpu\": \"%s\", \"rows\": %llu, \"copy_ms\": %.4f, \"copy_bytes_per_second\": %.4g, \"random_32_byte_reads_per_second\": %.4g, ",
           gpu.name, rows, copied, 16e3 * rows / copied, 1e3 * rows / reads);
#ifdef WITH_RADIX_PASS
    size_t bytes = 0;
    void *scratch;
    TRY(cub::DeviceRadixSort::SortPairs(nullptr, bytes, left, out.key, left_payload, out.left, rows, 0, 8));
    TRY(cudaMalloc(&scratch, bytes));
    printf("\"radix_pass_ms\": %.4f, ", median([&] { cub::DeviceRadixSort::SortPairs(scratch, bytes, left, out.key, left_payload, out.left, rows, 0, 8); }));
    TRY(cudaFree(scratch));
#else
    printf("\"radix_pass_ms\": null, ");
#endif

    // What the result must be: left row i has the key i × odd mod N, and right row j has that of i where i = j + d.
    std::vector<u64> partner(matching);
    for (u64 j = 0; j < rows; j++) if (u64 key = (j * odd + 12345) % rows; key < matching) partner[key] = 3 * j + 1;
    u64 expected[3] = {0, 0, 0};
    for (u64 i = 0; i < rows; i++)
        if (u64 key = (i * odd) % rows; key < matching) {
            expected[0] += key * (i + 1); expected[1] += i * (partner[key] + 1); expected[2] += partner[key];
        }

    printf("\"joins\": [");
    bool all = true, first = true;
    for (int percent : {150, 200})
        for (bool staged : {false, true}) {
            u64 slots = rows / 100 * percent;
            double cleared = median([&] { LAUNCH(clear, wide, BLOCK, table, slots); });
            double built = median([&] {
                LAUNCH(clear, wide, BLOCK, table, slots);
                LAUNCH(build, grid, BLOCK, right, right_payload, rows, table, slots);
            });
            double probed = median([&] {
                cudaMemsetAsync(out.count, 0, 8);
                if (staged) LAUNCH(probe_staged, wide, BLOCK, left, left_payload, rows, table, slots, out);
                else LAUNCH(probe_at_once, grid, BLOCK, left, left_payload, rows, table, slots, out);
            });
            u64 count = 0, found[3] = {0, 0, 0};
            TRY(cudaMemcpy(&count, out.count, 8, cudaMemcpyDeviceToHost));
            if (count == matching) {
                TRY(cudaMemset(sums, 0, 24));
                LAUNCH(add_up, wide, BLOCK, out, count, sums);
                TRY(cudaMemcpy(found, sums, 24, cudaMemcpyDeviceToHost));
            }
            bool right_result = count == matching && std::equal(found, found + 3, expected);
            all = all && right_result;
            printf("%s{\"probe\": \"%s\", \"slots\": %llu, \"clear_ms\": %.4f, \"build_ms\": %.4f, \"probe_ms\": %.4f, \"join_ms\": %.4f, \"rows_per_second\": %.4g, \"result_rows\": %llu, \"verified\": %s}",
                   first ? "" : ", ", staged ? "staged" : "at once", slots, cleared, built - cleared, probed, built + probed,
                   2e3 * rows / (built + probed), count, right_result ? "true" : "false");
            first = false;
        }
    printf("], \"verified\": %s}\n", all ? "true" : "false");
    return all ? 0 : 4;
}
