/* A look-up that succeeds leaves no error behind, one that fails leaves its own. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	const char *names[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cuInit", "cuNoSuchFunction", "cuMemAlloc_v2"};
	for (int i = 0; i < 5; i++) {
		dlerror();
		void *p = dlsym(cuda, names[i]);
		const char *error = dlerror();
		if ((p == NULL) != (error != NULL) || (error != NULL && strstr(error, names[i]) == NULL)) {
			printf("%s: %p, %s\n", names[i], p, error ? error : "no error");
			return 1;
		}
	}
	return 0;
}
