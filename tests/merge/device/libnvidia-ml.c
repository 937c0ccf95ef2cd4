/* A libnvidia-ml.so.1 of one GPU without the GPU: what UCX and UCXX ask of NVIDIA's management library. */

enum { SUCCESS = 0, NOT_SUPPORTED = 3 };
static char gpu; /* its address stands for the one GPU */

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { (void)error; return "error of the fake library"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { (void)index; *device = &gpu; return SUCCESS; }
static int sizes_of_memory(unsigned long long *sizes, unsigned long long total, unsigned long long free, unsigned long long used)
{
    sizes[0] = total, sizes[1] = free, sizes[2] = used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *sizes)
{
    (void)device;
    return sizes_of_memory(sizes, 80ull << 30, 79ull << 30, 1ull << 30);
}
int nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long *sizes)
{
    (void)device;
    return sizes_of_memory(sizes, 128ull << 30, 128ull << 30, 0);
}

#define UNSUPPORTED(name) int name(void) { return NOT_SUPPORTED; }
UNSUPPORTED(nvmlDeviceGetFieldValues) UNSUPPORTED(nvmlDeviceGetGpuFabricInfo) UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
UNSUPPORTED(nvmlDeviceGetMigMode) UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2) UNSUPPORTED(nvmlDeviceGetPciInfo_v3)
