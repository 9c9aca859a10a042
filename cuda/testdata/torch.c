/* Opens a library that uses libc10.so, out of the global scope as Python does. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	void (*use)(void) = lib ? (void (*)(void))dlsym(lib, "use") : NULL;
	if (use == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	use();
	return 0;
}
