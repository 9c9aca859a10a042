/*
 * oom.c - takes device memory until there is none, gives all of it back, and
 * exits well: running out is normal for a program that can cope.
 *
 * Shows: failed allocations are recorded as failures, with the size that was
 * asked and no live bytes, and the program's own exit status stays 0.
 *
 * Build: cc -O2 -o oom oom.c -ldl
 * Run:   ./oom [MIB]     first size to try, default 256; it is halved at each
 *                        refusal, down to 2 MiB
 *
 * Prints one line. Exit: 0; 1 if the driver answers anything unexpected.
 */
#include "door.h"

#define MIB (1ull << 20)
#define MOST 100000

int main(int argc, char **argv)
{
	static CUdeviceptr taken[MOST];
	uint64_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) * MIB, bytes = 0;
	size_t before, full, after, total;
	int n = 0, refused = 0;
	void *ctx;

	if (size == 0) {
		fprintf(stderr, "usage: oom [MIB]\n");
		return 2;
	}
	if (door_open("procaddress", 0))
		return 1;
	need("cuInit", cu.Init(0));
	need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&ctx, 0));
	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
	need("cuMemGetInfo", cu.MemGetInfo(&before, &total));
	while (size >= 2 * MIB && n < MOST) {
		int res = cu.MemAlloc(&taken[n], size);

		if (res == 2) {
			refused++;
			size /= 2;
			continue;
		}
		need("cuMemAlloc", res);
		bytes += size;
		n++;
	}
	need("cuMemGetInfo", cu.MemGetInfo(&full, &total));
	for (int i = 0; i < n; i++)
		need("cuMemFree", cu.MemFree(taken[i]));
	need("cuMemGetInfo", cu.MemGetInfo(&after, &total));
	printf("oom allocs=%d refused=%d bytes=%llu free_before=%zu free_when_full=%zu free_after=%zu\n", n, refused,
	       (unsigned long long)bytes, before, full, after);
	if (refused == 0 || full >= 4 * MIB || after != before) {
		fprintf(stderr, "oom: the device did not run out, or did not get everything back\n");
		return 1;
	}
	return 0;
}
