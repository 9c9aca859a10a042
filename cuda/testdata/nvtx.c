/* Runs nvtx_client of each library named: each has a state of its own. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		void *lib = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		void (*client)(void) = lib ? (void (*)(void))dlsym(lib, "nvtx_client") : NULL;
		if (client == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		client();
	}
	return 0;
}
