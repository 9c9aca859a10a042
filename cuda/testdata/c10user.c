/* A stand-in for libc10_cuda.so: calls libc10.so's functions as an import. */
#include <stdint.h>

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

void use(void)
{
	struct device cpu = {0, -1}, cuda0 = {1, 0}, cuda3 = {1, 3};
	report((void *)0x7f0000000200, 512, 512, 2097152, cuda0);
	report((void *)0x1000, 64, 64, 64, cpu);
	report((void *)0x7f0000000400, 1024, 1536, 2097152, cuda3);
	report((void *)0x7f0000000200, -512, 1024, 2097152, cuda0);
	oom(1l << 40, 1024, 2097152, cuda0);
}
