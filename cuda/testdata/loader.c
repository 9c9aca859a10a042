/*
 * loader.c - a program and the loader.
 *
 *   loader                      looks names up, and prints what dlerror says of each
 *   loader LIB, with -DLINKED   linked to the driver, opens a library whose
 *                               constructor (-DLIBRARY) waits for a thread that has
 *                               the process's first event
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined LIBRARY

extern int the_event(void);
static void *thread(void *unused)
{
	if (the_event())
		exit(1);
	return unused;
}
__attribute__((constructor)) static void wait_for_it(void)
{
	pthread_t t;
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
}

#elif defined LINKED

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(uint64_t *, size_t);

int the_event(void)
{
	uint64_t p;
	void *context;
	return cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, 4096);
}

int main(int argc, char **argv)
{
	alarm(240);
	if (argc < 2 || cuInit(0) || dlopen(argv[1], RTLD_NOW) == NULL)
		return 1;
	return 0;
}

#else

int main(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuMemAlloc_v9", "cuInit", "cuGetProcAddress_v2", "puts"};
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *p = dlsym(lib, names[i]);
		const char *error = dlerror();
		printf("%s %s %s\n", names[i], p ? "found" : "not found", error ? error : "-");
	}
	return 0;
}

#endif
