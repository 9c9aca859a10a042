/* Three parts of one program, by macro: MAIN, FIRST and SECOND. FIRST and SECOND
 * both have a function named which; FIRST asks for the next one after its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "arch.h"

/* As a program linked to an older glibc calls it. */
extern void *old_dlsym(void *, const char *);
__asm__(".symver old_dlsym, dlsym@" OLDEST);

int which(void);
int next(int old);

#ifdef FIRST
int which(void) { return 1; }
int next(int old)
{
	void *p = old ? old_dlsym(RTLD_NEXT, "which") : dlsym(RTLD_NEXT, "which");
	int (*f)(void) = NULL;
	memcpy(&f, &p, sizeof p);
	return f ? f() : -1;
}
#endif
#ifdef SECOND
int which(void) { return 2; }
#endif
#ifdef MAIN
int main(void)
{
	int wrong = 0;
	for (int i = 0; i < 3; i++)
		for (int old = 0; old < 2; old++)
			if (next(old) != 2) {
				printf("look-up %d, old %d: found %d\n", i, old, next(old));
				wrong = 1;
			}
	if (dlsym(RTLD_NEXT, "which") == NULL || dlsym(RTLD_NEXT, "no_such_name") != NULL || dlerror() == NULL)
		wrong = 1;
	puts(wrong ? "wrong" : "fine");
	return wrong;
}
#endif
