/* Preloaded in front of the hook this stands for a kernel whose pages are of 64
 * KiB, as many of aarch64 have: of the hook's system calls those that take pages. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "arch.h"

enum { PAGE = 1 << 16 };

static long (*real)(long, ...);
static unsigned long (*aux)(unsigned long);

static void find(void)
{
	void *p = dlvsym(RTLD_NEXT, "syscall", OLDEST), *q = dlvsym(RTLD_NEXT, "getauxval", "GLIBC_2.16");
	if (q == NULL)
		q = dlvsym(RTLD_NEXT, "getauxval", "GLIBC_2.17");
	memcpy(&real, &p, sizeof p);
	memcpy(&aux, &q, sizeof q);
}

static uintptr_t whole(uintptr_t bytes) { return (bytes + PAGE - 1) & ~(uintptr_t)(PAGE - 1); }

/* Pages at the beginning of one of 64 KiB; the file, if there is one, over them. */
static long mapped(size_t bytes, long protection, long flags, long fd, long offset)
{
	size_t all = whole(bytes) + PAGE;
	long at = real(SYS_mmap, NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == -1)
		return -1;
	uintptr_t from = whole((uintptr_t)at), end = from + whole(bytes);
	if (from > (uintptr_t)at)
		real(SYS_munmap, at, from - (uintptr_t)at);
	if ((uintptr_t)at + all > end)
		real(SYS_munmap, end, (uintptr_t)at + all - end);
	return fd == -1 ? (long)from : real(SYS_mmap, from, bytes, protection, flags | MAP_FIXED, fd, offset);
}

long syscall(long n, ...)
{
	long a[6];
	va_list more;
	va_start(more, n);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(more, long);
	va_end(more);
	if (real == NULL)
		find();
	if (n == SYS_mmap && a[0] == 0)
		return mapped((size_t)a[1], a[2], a[3], a[4], a[5]);
	if (n == SYS_munmap || n == SYS_madvise || n == SYS_mprotect) {
		if (a[0] % PAGE != 0) {
			errno = EINVAL;
			return -1;
		}
		a[1] = (long)whole((uintptr_t)a[1]);
	}
	return real(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

unsigned long getauxval(unsigned long what)
{
	if (aux == NULL)
		find();
	return what == AT_PAGESZ ? PAGE : aux(what);
}
