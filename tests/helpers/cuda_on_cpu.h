// Runs CUDA kernels of `benchmarks/on_gpu/join_limit.cu` on the CPU, a thread after the other, in warps of one lane.
#pragma once
#include <chrono>
#include <cstring>
#define __host__
#define __device__
#define __global__ static
#define __shared__ static
constexpr int LANES = 1;
constexpr unsigned ALL_LANES = 1;
struct ulonglong2 { unsigned long long x, y; };
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
struct Place { unsigned x; };
static Place blockIdx, threadIdx, blockDim, gridDim;
#define LAUNCH(kernel, grid, block, ...) do { \
    gridDim.x = (unsigned)(grid); blockDim.x = (unsigned)(block); \
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) \
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) kernel(__VA_ARGS__); \
} while (0)
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long old, unsigned long long now) { auto was = *at; if (was == old) *at = now; return was; }
static inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long more) { auto was = *at; *at += more; return was; }
static inline bool __any_sync(unsigned, bool value) { return value; }
static inline unsigned __ballot_sync(unsigned, bool value) { return value; }
static inline unsigned long long __shfl_sync(unsigned, unsigned long long value, int) { return value; }
static inline int __popc(unsigned value) { return __builtin_popcount(value); }
static inline int __ffs(unsigned value) { return __builtin_ffs((int)value); }
static inline void __syncwarp() {}
using cudaError_t = int;
constexpr int cudaSuccess = 0, cudaMemcpyDeviceToDevice = 0, cudaMemcpyDeviceToHost = 1;
static inline const char *cudaGetErrorString(int) { return "out of memory"; }
static inline int cudaMalloc(void **at, size_t size) { *at = malloc(size); return *at ? 0 : 2; }
static inline int cudaMemcpy(void *to, const void *from, size_t size, int) { memcpy(to, from, size); return 0; }
static inline int cudaMemcpyAsync(void *to, const void *from, size_t size, int) { memcpy(to, from, size); return 0; }
static inline int cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return 0; }
static inline int cudaMemsetAsync(void *to, int value, size_t size) { memset(to, value, size); return 0; }
static inline int cudaDeviceSynchronize() { return 0; }
static inline int cudaGetLastError() { return 0; }
static inline int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    const char *given = getenv("FREE_BYTES");
    *free_bytes = *total = given ? strtoull(given, nullptr, 10) : size_t(1) << 40;
    return 0;
}
struct cudaDeviceProp { int multiProcessorCount; char name[32]; };
static inline int cudaGetDeviceProperties(cudaDeviceProp *gpu, int) { gpu->multiProcessorCount = 4; strcpy(gpu->name, "CPU"); return 0; }
using cudaEvent_t = std::chrono::steady_clock::time_point;
static inline int cudaEventCreate(cudaEvent_t *) { return 0; }
static inline int cudaEventRecord(cudaEvent_t &at) { at = std::chrono::steady_clock::now(); return 0; }
static inline int cudaEventSynchronize(cudaEvent_t) { return 0; }
static inline int cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { *ms = std::chrono::duration<float, std::milli>(to - from).count() + 1e-6f; return 0; }
