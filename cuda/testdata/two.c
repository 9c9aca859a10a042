/* A process with two libcudas, the system's and the one at argv[1], as where a
 * compatibility package is used by one library only: each is found by dlsym and
 * by cuGetProcAddress, and used on a device of its own. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int alloc_fn(uint64_t *, size_t);
typedef int free_fn(uint64_t);
typedef int proc_fn(const char *, void **, int, uint64_t, int *);

static void need(const char *what, int failed)
{
	if (failed) {
		fprintf(stderr, "%s: error %d\n", what, failed);
		exit(1);
	}
}

static void *function(void *lib, const char *name, const char *asked, int version, int by_proc)
{
	void *p = by_proc ? NULL : dlsym(lib, name);
	if (by_proc)
		need(asked, ((proc_fn *)dlsym(lib, "cuGetProcAddress_v2"))(asked, &p, version, 0, NULL));
	need(name, p == NULL);
	return p;
}

int main(int argc, char **argv)
{
	void *lib[2] = {dlopen("libcuda.so.1", RTLD_NOW), dlopen(argv[argc - 1], RTLD_NOW)};
	uint64_t p[2][2];
	if (lib[0] == NULL || lib[1] == NULL || lib[0] == lib[1]) {
		fprintf(stderr, "two: no two libraries\n");
		return 1;
	}
	for (int i = 0; i < 2; i++) {
		void *ctx;
		need("cuInit", ((int (*)(unsigned))function(lib[i], "cuInit", "cuInit", 2000, i))(0));
		need("retain", ((int (*)(void **, int))function(lib[i], "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000, i))(&ctx, i));
		need("current", ((int (*)(void *))function(lib[i], "cuCtxSetCurrent", "cuCtxSetCurrent", 4000, i))(ctx));
	}
	for (int by_proc = 0; by_proc < 2; by_proc++)
		for (int i = 0; i < 2; i++)
			need("cuMemAlloc", ((alloc_fn *)function(lib[i], "cuMemAlloc_v2", "cuMemAlloc", 3020, by_proc))(&p[by_proc][i], (size_t)4096 << (2 * i + by_proc)));
	for (int by_proc = 0; by_proc < 2; by_proc++)
		for (int i = 0; i < 2; i++) {
			/* The other one does not know it. */
			if (((free_fn *)function(lib[1 - i], "cuMemFree_v2", "cuMemFree", 3020, by_proc))(p[by_proc][i]) == 0)
				return 2;
			need("cuMemFree", ((free_fn *)function(lib[i], "cuMemFree_v2", "cuMemFree", 3020, by_proc))(p[by_proc][i]));
		}
	printf("fine\n");
	return 0;
}
