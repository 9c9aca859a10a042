/* What ends.py calls: memory taken by a daemon that is in C while the interpreter
 * ends, and by the thread that ends it. */
#include <dlfcn.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sem_t goes, gone;

void take(size_t size)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit"), (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
	int (*current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"), (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
	uint64_t p;
	if (init(0) || retain(&context, 0) || current(context) || alloc(&p, size))
		_exit(5);
}

/* The daemon's: it never goes back to Python. */
void wait(void)
{
	while (sem_wait(&goes) != 0)
		;
	take(1);
	sem_post(&gone);
	for (;;)
		pause();
}

/* While the interpreter ends: has the daemon take memory, when what it freed of
 * that thread is something else's. */
void wake(void)
{
	for (size_t bytes = 16; bytes <= 4096; bytes += 16)
		for (int i = 0; i < 10; i++)
			memset(malloc(bytes), 0xa5, bytes);
	sem_post(&goes);
	while (sem_wait(&gone) != 0)
		;
}
