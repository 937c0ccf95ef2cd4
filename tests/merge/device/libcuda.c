/* A libcuda.so.1 of one GPU without the GPU: what UCX's cuda_copy and cuda_ipc ask of CUDA's driver API.
 *
 * Device memory is shared host memory, mapped twice: at the device's addresses, where the CPU may touch nothing, so
 * that whoever takes a device pointer for host memory crashes as on a real GPU; and at a second place, through which
 * this driver's copies go. Another process opens a block by its memory handle. There are no kernels, no memory pools,
 * no virtual memory calls, and no CUDA runtime; all streams are one, whose copies a thread does in their order.
 *
 * $FAKE_GPU_LOG: the file to which each call that allocates, frees, exports or opens memory is appended, as "pid call".
 * $FAKE_GPU_COPY_MS: how long each copy on a stream takes at least; without it, copies are done when a call returns.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
       INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801 };
enum { CONTEXT = 1, MEMORY_TYPE = 2, SYNC_MEMOPS = 6, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9,
       IPC_CAPABLE = 10, START = 11, SIZE = 12, MAPPED = 13, POOL = 17 }; /* CU_POINTER_ATTRIBUTE_… */
enum { PCI_BUS = 33, PCI_DEVICE = 34, MAJOR = 75 };                       /* CU_DEVICE_ATTRIBUTE_… */
#define MEMORY_OF_DEVICE 2u
#define DEEPEST 64
#define BLOCKS 4096
#define WAITING 256 /* copies on the stream */

static int initialized, retained;
static char primary; /* its address stands for the primary context */
static __thread void *contexts[DEEPEST];
static __thread int depth;
#define CURRENT (depth ? contexts[depth - 1] : NULL)

/* --- memory --- */
struct block { uintptr_t device; char *host; size_t size; int file; unsigned long long id; };
struct handle { int pid, file; size_t size; char rest[64 - 16]; };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[BLOCKS];
static unsigned long long made;

static void note(const char *call)
{
    const char *path = getenv("FAKE_GPU_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, "%d %s\n", (int)getpid(), call);
    fclose(log);
}

static struct block block_of(uintptr_t address)
{
    struct block found = {0};
    pthread_mutex_lock(&guard);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].size && address - blocks[i].device < blocks[i].size) found = blocks[i];
    pthread_mutex_unlock(&guard);
    return found;
}

static int add_block(uintptr_t *address, int file, size_t size)
{
    void *device = mmap(NULL, size, PROT_NONE, MAP_SHARED, file, 0);
    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int status = OUT_OF_MEMORY;
    if (device == MAP_FAILED || host == MAP_FAILED) return OUT_OF_MEMORY;
    pthread_mutex_lock(&guard);
    for (int i = 0; i < BLOCKS && status; i++)
        if (!blocks[i].size) {
            blocks[i] = (struct block){(uintptr_t)device, host, size, file, ++made};
            *address = (uintptr_t)device;
            status = SUCCESS;
        }
    pthread_mutex_unlock(&guard);
    return status;
}

static int drop_block(uintptr_t address)
{
    struct block found = {0};
    pthread_mutex_lock(&guard);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].size && blocks[i].device == address) {
            found = blocks[i];
            blocks[i].size = 0;
        }
    pthread_mutex_unlock(&guard);
    if (!found.size) return INVALID_VALUE;
    munmap((void *)found.device, found.size);
    munmap(found.host, found.size);
    close(found.file);
    return SUCCESS;
}

/* Where the CPU may touch the byte at this address, on the device or not. */
static char *touchable(uintptr_t address)
{
    struct block found = block_of(address);
    return found.size ? found.host + (address - found.device) : (char *)address;
}

static int copy(uintptr_t target, uintptr_t source, size_t size)
{
    if (!CURRENT) return INVALID_CONTEXT;
    memcpy(touchable(target), touchable(source), size);
    return SUCCESS;
}

/* --- the stream: what was asked for, and how much of it is done --- */
struct work { uintptr_t target, source; size_t size; };
static struct work queue[WAITING];
static unsigned long asked, done;
static pthread_mutex_t stream = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *do_copies(void *milliseconds)
{
    struct timespec nap = {(long)milliseconds / 1000, (long)milliseconds % 1000 * 1000000};
    struct work next;
    pthread_mutex_lock(&stream);
    for (;;) {
        while (done == asked) pthread_cond_wait(&changed, &stream);
        next = queue[done % WAITING];
        pthread_mutex_unlock(&stream);
        nanosleep(&nap, NULL);
        memcpy(touchable(next.target), touchable(next.source), next.size);
        pthread_mutex_lock(&stream);
        done++;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static void wait_for(unsigned long ticket)
{
    pthread_mutex_lock(&stream);
    while (done < ticket) pthread_cond_wait(&changed, &stream);
    pthread_mutex_unlock(&stream);
}

static int copy_later(uintptr_t target, uintptr_t source, size_t size)
{
    static pthread_t thread;
    const char *text = getenv("FAKE_GPU_COPY_MS");
    int status = SUCCESS;
    if (!text) return copy(target, source, size);
    if (!CURRENT) return INVALID_CONTEXT;
    pthread_mutex_lock(&stream);
    if (!asked && pthread_create(&thread, NULL, do_copies, (void *)atol(text))) status = OUT_OF_MEMORY;
    if (asked - done == WAITING) status = OUT_OF_MEMORY;
    if (!status) {
        queue[asked++ % WAITING] = (struct work){target, source, size};
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&stream);
    return status;
}

int cuMemAlloc_v2(uintptr_t *address, size_t size)
{
    int file;
    note("cuMemAlloc");
    if (!CURRENT) return INVALID_CONTEXT;
    size = (size + 4095) & ~(size_t)4095;
    file = memfd_create("device memory", 0);
    return file < 0 || ftruncate(file, size) ? OUT_OF_MEMORY : add_block(address, file, size);
}
int cuMemFree_v2(uintptr_t address)
{
    note("cuMemFree");
    wait_for(asked);
    return drop_block(address);
}
int cuMemGetAddressRange_v2(uintptr_t *start, size_t *size, uintptr_t address)
{
    struct block found = block_of(address);
    if (!found.size) return NOT_FOUND;
    if (start) *start = found.device;
    if (size) *size = found.size;
    return SUCCESS;
}
int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t size, void *s) { (void)s; return copy_later(to, from, size); }
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t size, void *s) { (void)s; return copy_later(to, from, size); }
int cuMemcpyHtoDAsync_v2(uintptr_t to, uintptr_t from, size_t size, void *s) { (void)s; return copy_later(to, from, size); }
int cuMemcpyDtoHAsync_v2(uintptr_t to, uintptr_t from, size_t size, void *s) { (void)s; return copy_later(to, from, size); }
int cuMemcpyHtoD_v2(uintptr_t to, uintptr_t from, size_t size) { return copy(to, from, size); }
int cuMemcpyDtoH_v2(uintptr_t to, uintptr_t from, size_t size) { return copy(to, from, size); }

int cuIpcGetMemHandle(struct handle *handle, uintptr_t address)
{
    struct block found = block_of(address);
    note("cuIpcGetMemHandle");
    if (!found.size) return INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    handle->pid = getpid(), handle->file = found.file, handle->size = found.size;
    return SUCCESS;
}
int cuIpcOpenMemHandle_v2(uintptr_t *address, struct handle handle, unsigned flags)
{
    char path[64];
    int file;
    (void)flags;
    note("cuIpcOpenMemHandle");
    if (!CURRENT) return INVALID_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.file);
    file = open(path, O_RDWR | O_CLOEXEC);
    return file < 0 ? INVALID_VALUE : add_block(address, file, handle.size);
}
int cuIpcCloseMemHandle(uintptr_t address)
{
    note("cuIpcCloseMemHandle");
    wait_for(asked);
    return drop_block(address);
}
int cuMemHostRegister_v2(void *address, size_t size, unsigned flags)
{
    (void)address, (void)size, (void)flags;
    return SUCCESS;
}
int cuMemHostUnregister(void *address) { (void)address; return SUCCESS; }

static int attribute_of(struct block found, void *value, int attribute)
{
    switch (attribute) {
    case CONTEXT: *(void **)value = found.size ? &primary : NULL; return SUCCESS;
    case MEMORY_TYPE: *(unsigned *)value = found.size ? MEMORY_OF_DEVICE : 0; return SUCCESS;
    case BUFFER_ID: *(unsigned long long *)value = found.id; return SUCCESS;
    case DEVICE_ORDINAL: *(int *)value = found.size ? 0 : -2; return SUCCESS;
    case IPC_CAPABLE: *(int *)value = found.size != 0; return SUCCESS;
    case START: *(uintptr_t *)value = found.device; return SUCCESS;
    case SIZE: *(size_t *)value = found.size; return SUCCESS;
    case IS_MANAGED: case SYNC_MEMOPS: *(unsigned *)value = 0; return SUCCESS;
    case MAPPED: case POOL: *(void **)value = NULL; return SUCCESS;
    default: return INVALID_VALUE;
    }
}
int cuPointerGetAttribute(void *value, int attribute, uintptr_t address)
{
    struct block found = block_of(address);
    return found.size ? attribute_of(found, value, attribute) : INVALID_VALUE;
}
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uintptr_t address)
{
    for (unsigned i = 0; i < count; i++) attribute_of(block_of(address), values[i], attributes[i]);
    return SUCCESS;
}
int cuPointerSetAttribute(const void *value, int attribute, uintptr_t address)
{
    (void)value, (void)attribute;
    return block_of(address).size ? SUCCESS : INVALID_VALUE;
}
int cuMemRetainAllocationHandle(void *handle, void *address) { (void)handle, (void)address; return INVALID_VALUE; }

/* --- device and contexts --- */
int cuInit(unsigned flags) { initialized = !flags; return flags ? INVALID_VALUE : SUCCESS; }
int cuDriverGetVersion(int *version) { *version = 13020; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 1; return initialized ? SUCCESS : NOT_INITIALIZED; }
int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return !initialized ? NOT_INITIALIZED : ordinal ? INVALID_DEVICE : SUCCESS;
}
int cuDeviceGetName(char *name, int length, int device) { (void)device; snprintf(name, length, "fake"); return SUCCESS; }
int cuDeviceGetUuid_v2(char *uuid, int device) { (void)device; memset(uuid, 7, 16); return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *size, int device) { (void)device; *size = (size_t)80 << 30; return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == MAJOR ? 9 : attribute == PCI_DEVICE ? 6 : attribute == PCI_BUS ? 0 : 0;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0, *active = retained > 0;
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    if (!initialized) return NOT_INITIALIZED;
    retained++, *context = &primary;
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; retained -= retained > 0; return SUCCESS; }
int cuCtxPushCurrent_v2(void *context)
{
    if (depth == DEEPEST) return INVALID_VALUE;
    contexts[depth++] = context;
    return SUCCESS;
}
int cuCtxPopCurrent_v2(void **context)
{
    if (!depth) return INVALID_CONTEXT;
    if (context) *context = CURRENT;
    depth--;
    return SUCCESS;
}
int cuCtxSetCurrent(void *context)
{
    if (!initialized) return NOT_INITIALIZED;
    depth -= depth > 0;
    return context ? cuCtxPushCurrent_v2(context) : SUCCESS;
}
int cuCtxGetCurrent(void **context) { *context = CURRENT; return initialized ? SUCCESS : NOT_INITIALIZED; }
int cuCtxGetDevice(int *device) { *device = 0; return CURRENT ? SUCCESS : INVALID_CONTEXT; }
int cuCtxGetId(void *context, unsigned long long *id) { (void)context; *id = 1; return SUCCESS; }
int cuCtxSetFlags(unsigned flags) { (void)flags; return SUCCESS; }
int cuCtxSynchronize(void) { return CURRENT ? SUCCESS : INVALID_CONTEXT; }

/* --- streams and events --- */
int cuEventCreate(unsigned long **event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return CURRENT ? SUCCESS : INVALID_CONTEXT;
}
int cuEventDestroy_v2(unsigned long *event) { free(event); return SUCCESS; }
int cuEventRecord(unsigned long *event, void *any) { (void)any; *event = asked; return SUCCESS; }
int cuEventQuery(unsigned long *event)
{
    int status;
    pthread_mutex_lock(&stream);
    status = done < *event ? NOT_READY : SUCCESS;
    pthread_mutex_unlock(&stream);
    return status;
}
int cuStreamCreate(void **made_stream, unsigned flags)
{
    (void)flags;
    *made_stream = malloc(1);
    return CURRENT ? SUCCESS : INVALID_CONTEXT;
}
int cuStreamDestroy_v2(void *any) { free(any); return SUCCESS; }
int cuStreamSynchronize(void *any)
{
    (void)any;
    if (!CURRENT) return INVALID_CONTEXT;
    wait_for(asked);
    return SUCCESS;
}
int cuStreamAddCallback(void *any, void (*call)(void *, int, void *), void *data, unsigned flags)
{
    (void)flags;
    wait_for(asked);
    call(any, SUCCESS, data);
    return SUCCESS;
}

/* --- the rest --- */
int cuGetErrorName(int error, const char **name) { (void)error; *name = "CUDA_ERROR_OF_THE_FAKE"; return SUCCESS; }
int cuGetErrorString(int error, const char **text)
{
    *text = error ? "error of the fake driver" : "no error";
    return SUCCESS;
}
int cuGetExportTable(const void **table, const void *id) { (void)id; *table = NULL; return NOT_FOUND; }

static int unsupported(void) { return NOT_SUPPORTED; }
#define UNSUPPORTED(name) int name(void) { return NOT_SUPPORTED; }
UNSUPPORTED(cuMemAddressFree) UNSUPPORTED(cuMemAddressReserve) UNSUPPORTED(cuMemAllocManaged)
UNSUPPORTED(cuMemCreate) UNSUPPORTED(cuMemExportToShareableHandle) UNSUPPORTED(cuMemGetAllocationGranularity)
UNSUPPORTED(cuMemGetAllocationPropertiesFromHandle) UNSUPPORTED(cuMemGetHandleForAddressRange)
UNSUPPORTED(cuMemImportFromShareableHandle) UNSUPPORTED(cuMemMap) UNSUPPORTED(cuMemPoolDestroy)
UNSUPPORTED(cuMemPoolExportPointer) UNSUPPORTED(cuMemPoolExportToShareableHandle)
UNSUPPORTED(cuMemPoolImportFromShareableHandle) UNSUPPORTED(cuMemPoolImportPointer) UNSUPPORTED(cuMemPoolSetAccess)
UNSUPPORTED(cuMemRangeGetAttribute) UNSUPPORTED(cuMemRelease) UNSUPPORTED(cuMemSetAccess) UNSUPPORTED(cuMemUnmap)

int cuGetProcAddress_v2(const char *call, void **function, int version, uint64_t flags, int *status)
{
    char versioned[128];
    Dl_info own;
    void *self = dladdr((void *)cuInit, &own) ? dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    (void)version, (void)flags;
    snprintf(versioned, sizeof versioned, "%s_v2", call);
    *function = self ? dlsym(self, call) : NULL;
    if (!*function && self) *function = dlsym(self, versioned);
    if (!*function) *function = (void *)unsupported;
    if (status) *status = 0;
    return SUCCESS;
}
int cuGetProcAddress(const char *call, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(call, function, version, flags, NULL);
}
