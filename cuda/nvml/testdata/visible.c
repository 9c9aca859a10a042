/*
 * visible.c - prints the UUID of each device that the driver shows to this
 * process, in its order, one a line: what CUDA_VISIBLE_DEVICES means to CUDA.
 *
 * Build: cc -o visible visible.c -ldl
 */
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "visible: %s\n", dlerror());
		return 3;
	}
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*count)(int *) = (int (*)(int *))dlsym(lib, "cuDeviceGetCount");
	int (*uuid)(unsigned char *, int) = (int (*)(unsigned char *, int))dlsym(lib, "cuDeviceGetUuid_v2");
	int n = 0;

	if (!init || !count || !uuid)
		return 4;
	int res = init(0);
	if (res == 100) /* CUDA_ERROR_NO_DEVICE: it shows none */
		return 0;
	if (res || count(&n)) {
		fprintf(stderr, "visible: cuInit: error %d\n", res);
		return 5;
	}
	for (int i = 0; i < n; i++) {
		unsigned char u[16];

		if (uuid(u, i))
			return 6;
		for (int k = 0; k < 16; k++)
			printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", u[k]);
		puts("");
	}
	return 0;
}
