/* A program that asks for libfar.so in vain, and a library (-DASKS) that finds it
 * (-DFAR) by its own search path. */
#include <dlfcn.h>
#include <stdio.h>

int asks(void);

#ifdef FAR
int far;
#elif defined(ASKS)
int asks(void) { return dlopen("libfar.so", RTLD_NOW) != NULL; }
#else
int main(void)
{
	int program = dlopen("libfar.so", RTLD_NOW) != NULL;
	printf("found %d, for the program %d\n", asks(), program);
	return 0;
}
#endif
