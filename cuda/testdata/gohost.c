/*
 * gohost.c - a C program with Go in a library: opens it and calls its run on a
 * thread of its own.
 *
 *	gohost LIBRARY KIND...
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void (*run)(char *);

static void *thread(void *kinds)
{
	run(kinds);
	return NULL;
}

int main(int argc, char **argv)
{
	char kinds[1000] = "";
	pthread_t t;
	for (int i = 2; i < argc; i++)
		snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s ", argv[i]);
	void *lib = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	*(void **)&run = lib ? dlsym(lib, "run") : NULL;
	if (run == NULL) {
		fprintf(stderr, "gohost: %s\n", dlerror());
		return 1;
	}
	return pthread_create(&t, NULL, thread, kinds) || pthread_join(t, NULL);
}
