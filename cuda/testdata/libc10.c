/* A stand-in for libc10.so: the functions through which PyTorch's allocator
 * reports, by their mangled names. LEGACY: those of PyTorch 1.10 to 1.13.
 * They print what they get, so that a test sees that it still arrives. */
#include <stdint.h>
#include <stdio.h>

#ifdef LEGACY
#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"
#define OOM "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"
#else
#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define OOM "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
#endif

struct device {
	int8_t type, index;
};

void report(void *p, int64_t size, uint64_t allocated, uint64_t reserved, struct device d) __asm__(REPORT);
void oom(int64_t size, uint64_t allocated, uint64_t reserved, struct device d) __asm__(OOM);

void report(void *p, int64_t size, uint64_t allocated, uint64_t reserved, struct device d)
{
	printf("report %p %ld %lu %lu %d:%d\n", p, (long)size, (unsigned long)allocated, (unsigned long)reserved, d.type, d.index);
}

void oom(int64_t size, uint64_t allocated, uint64_t reserved, struct device d)
{
	printf("oom %ld %lu %lu %d:%d\n", (long)size, (unsigned long)allocated, (unsigned long)reserved, d.type, d.index);
}
