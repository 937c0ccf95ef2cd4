/* A libcuda.so.1 without a GPU, which writes down who calls what.
 *
 * It follows contexts by thread as CUDA does: a call that needs a context gives 201 (CUDA_ERROR_INVALID_CONTEXT) in a
 * thread that has none. It has no memory, streams or kernels: with a context such calls give 801 (not supported), but
 * for cuStreamSynchronize, which has nothing to wait for. CUDA's runtime wants tables from a driver that are not
 * published (cuGetExportTable), so it ends with 500 (not found).
 *
 * $STUB_LOG: the file that each call is appended to, as "thread call needs|free result": whether it needs a context.
 * $STUB_FAIL: "call=result": what that call gives instead, as "cuDevicePrimaryCtxRetain=2".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_SUPPORTED = 801 };
#ifndef VERSION
#define VERSION 13000 /* what this driver says that it supports: CUDA 13.0 */
#endif

static __thread void *current; /* the context of this thread */
static int initialized, retained;
static char primary; /* its address stands for the primary context */

static int written(const char *call, const char *kind, int result)
{
    const char *file = getenv("STUB_LOG"), *fail = getenv("STUB_FAIL");
    size_t length = strlen(call);
    if (fail && !strncmp(fail, call, length) && fail[length] == '=') result = atoi(fail + length + 1);
    if (file) {
        FILE *log = fopen(file, "a");
        if (log) {
            fprintf(log, "%ld %s %s %d\n", (long)syscall(SYS_gettid), call, kind, result);
            fclose(log);
        }
    }
    return result;
}

static int told(const char *call, int result) { return written(call, "free", result); }
#define FIRST(call) (initialized ? told(call, SUCCESS) : told(call, NOT_INITIALIZED))

/* --- calls that need no context --- */
int cuInit(unsigned flags)
{
    int result = told("cuInit", flags ? INVALID_VALUE : SUCCESS);
    if (!result) initialized = 1;
    return result;
}
int cuDriverGetVersion(int *version) { *version = VERSION; return told("cuDriverGetVersion", SUCCESS); }
int cuDeviceGetCount(int *count) { *count = 1; return FIRST("cuDeviceGetCount"); }
int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? FIRST("cuDeviceGet") : told("cuDeviceGet", 101);
}
int cuDeviceGetName(char *name, int length, int device)
{
    (void)device;
    snprintf(name, length, "stub");
    return FIRST("cuDeviceGetName");
}
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute, (void)device;
    *value = 0;
    return FIRST("cuDeviceGetAttribute");
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = retained;
    return FIRST("cuDevicePrimaryCtxGetState");
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    int result = FIRST("cuDevicePrimaryCtxRetain");
    if (!result) *context = &primary, retained = 1;
    return result;
}
int cuCtxSetCurrent(void *context)
{
    int result = context && (context != &primary || !retained) ? told("cuCtxSetCurrent", INVALID_CONTEXT)
                                                               : FIRST("cuCtxSetCurrent");
    if (!result) current = context;
    return result;
}
int cuCtxPushCurrent_v2(void *context) { return cuCtxSetCurrent(context); }
int cuCtxGetCurrent(void **context) { *context = current; return FIRST("cuCtxGetCurrent"); }
int cuGetErrorName(int error, const char **name)
{
    *name = error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_OF_THE_STUB";
    return SUCCESS;
}
int cuGetErrorString(int error, const char **text)
{
    *text = error == INVALID_CONTEXT ? "invalid device context" : "error of the stub";
    return SUCCESS;
}
int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return told("cuGetExportTable", NOT_FOUND);
}

/* --- calls that need one --- */
static int needing(const char *call, int with)
{
    return written(call, "needs", !initialized ? NOT_INITIALIZED : !current ? INVALID_CONTEXT : with);
}
int cuStreamSynchronize(void *stream) { (void)stream; return needing("cuStreamSynchronize", SUCCESS); }
int cuCtxSynchronize(void) { return needing("cuCtxSynchronize", SUCCESS); }

/* Every other call, whatever its arguments: one function for each name that is asked for. */
#define SLOTS 1024
static char names[SLOTS][64];
static int taken;
static int other(int number) { return needing(names[number], NOT_SUPPORTED); }
#define S1(n) static int slot_##n(void) { return other(0x##n); }
#define S16(n) S1(n##0) S1(n##1) S1(n##2) S1(n##3) S1(n##4) S1(n##5) S1(n##6) S1(n##7) \
               S1(n##8) S1(n##9) S1(n##a) S1(n##b) S1(n##c) S1(n##d) S1(n##e) S1(n##f)
#define S256(n) S16(n##0) S16(n##1) S16(n##2) S16(n##3) S16(n##4) S16(n##5) S16(n##6) S16(n##7) \
                S16(n##8) S16(n##9) S16(n##a) S16(n##b) S16(n##c) S16(n##d) S16(n##e) S16(n##f)
S256(0) S256(1) S256(2) S256(3)
#define T1(n) slot_##n,
#define T16(n) T1(n##0) T1(n##1) T1(n##2) T1(n##3) T1(n##4) T1(n##5) T1(n##6) T1(n##7) \
               T1(n##8) T1(n##9) T1(n##a) T1(n##b) T1(n##c) T1(n##d) T1(n##e) T1(n##f)
#define T256(n) T16(n##0) T16(n##1) T16(n##2) T16(n##3) T16(n##4) T16(n##5) T16(n##6) T16(n##7) \
                T16(n##8) T16(n##9) T16(n##a) T16(n##b) T16(n##c) T16(n##d) T16(n##e) T16(n##f)
static int (*const slots[SLOTS])(void) = { T256(0) T256(1) T256(2) T256(3) };

static void *function_of(const char *call)
{
    Dl_info own;
    void *self = NULL, *found = NULL;
    char versioned[64];
    if (dladdr((void *)cuInit, &own)) self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (self) {
        found = dlsym(self, call);
        snprintf(versioned, sizeof versioned, "%s_v2", call);
        if (!found) found = dlsym(self, versioned);
    }
    for (int number = 0; !found && number < taken; number++)
        if (!strcmp(names[number], call)) found = (void *)slots[number];
    if (!found && taken < SLOTS) {
        snprintf(names[taken], sizeof names[0], "%s", call);
        found = (void *)slots[taken++];
    }
    return found;
}

int cuGetProcAddress_v2(const char *call, void **function, int version, uint64_t flags, int *status)
{
    (void)version, (void)flags;
    *function = function_of(call);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress(const char *call, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(call, function, version, flags, NULL);
}
