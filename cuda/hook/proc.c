/*
 * proc.c - cuGetProcAddress: the door by which CUDA's runtime finds the driver's
 * functions, and a function that is found through the others itself.
 */
#include "hook.h"

typedef CUresult proc_v1(const char *, void **, int, uint64_t);
typedef CUresult proc_v2(const char *, void **, int, uint64_t, int *);

EXPORT proc_v1 cuGetProcAddress;
EXPORT proc_v2 cuGetProcAddress_v2;

static void *real_proc[2][2]; /* of both versions, of both libcudas: cuGetProcAddress itself */

static proc_v1 second_v1;
static proc_v2 second_v2;
static void *const proc_front[2][2] = {{(void *)cuGetProcAddress, (void *)second_v1}, {(void *)cuGetProcAddress_v2, (void *)second_v2}};

bool gpurec_is_proc_front(const void *p)
{
	return p == proc_front[0][0] || p == proc_front[0][1] || p == proc_front[1][0] || p == proc_front[1][1];
}

bool gpurec_has_proc(bool v2) { return real_proc[v2][0] != NULL; }

void gpurec_fill_proc(void *libcuda, unsigned which)
{
	gpurec_set_once(&real_proc[0][which], gpurec_dlsym(libcuda, "cuGetProcAddress"));
	gpurec_set_once(&real_proc[1][which], gpurec_dlsym(libcuda, "cuGetProcAddress_v2"));
}

EARLY bool gpurec_is_proc(const char *name) { return strcmp(name, "cuGetProcAddress") == 0 || strcmp(name, "cuGetProcAddress_v2") == 0; }

void *gpurec_exchange_proc(bool v2, void *p)
{
	if (p != real_proc[v2][0])
		gpurec_fill_second(p);
	for (unsigned which = 0; which < 2; which++) {
		gpurec_set_once(&real_proc[v2][which], p);
		if (real_proc[v2][which] == p)
			return proc_front[v2][which];
	}
	return p;
}

/* ---- what it answers ------------------------------------------------------------ */

/* Which function a name means from which version of CUDA on. Needed only should
 * a driver answer with something else than the address it exports (none seen:
 * 81 of 81 look-ups on an H200 answered with it). */
static const struct {
	const char *name;
	int version;
	const char *symbol, *per_thread;
} versions[] = {
	{"cuMemAlloc", 2000, "cuMemAlloc", NULL},
	{"cuMemAlloc", 3020, "cuMemAlloc_v2", NULL},
	{"cuMemFree", 2000, "cuMemFree", NULL},
	{"cuMemFree", 3020, "cuMemFree_v2", NULL},
	{"cuMemAllocPitch", 3020, "cuMemAllocPitch_v2", NULL},
	{"cuMemAllocManaged", 6000, "cuMemAllocManaged", NULL},
	{"cuMemAllocHost", 3020, "cuMemAllocHost_v2", NULL},
	{"cuMemHostAlloc", 2020, "cuMemHostAlloc", NULL},
	{"cuMemFreeHost", 2000, "cuMemFreeHost", NULL},
	{"cuMemHostRegister", 6050, "cuMemHostRegister_v2", NULL},
	{"cuMemHostUnregister", 4000, "cuMemHostUnregister", NULL},
	{"cuMemAllocAsync", 11020, "cuMemAllocAsync", "cuMemAllocAsync_ptsz"},
	{"cuMemAllocFromPoolAsync", 11020, "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"},
	{"cuMemFreeAsync", 11020, "cuMemFreeAsync", "cuMemFreeAsync_ptsz"},
	{"cuMemCreate", 10020, "cuMemCreate", NULL},
	{"cuMemRelease", 10020, "cuMemRelease", NULL},
	{"cuMemMap", 10020, "cuMemMap", NULL},
	{"cuMemUnmap", 10020, "cuMemUnmap", NULL},
	{"cuMemRetainAllocationHandle", 11000, "cuMemRetainAllocationHandle", NULL},
	{"cuArrayCreate", 3020, "cuArrayCreate_v2", NULL},
	{"cuArray3DCreate", 3020, "cuArray3DCreate_v2", NULL},
	{"cuArrayDestroy", 2000, "cuArrayDestroy", NULL},
	{"cuMipmappedArrayCreate", 5000, "cuMipmappedArrayCreate", NULL},
	{"cuMipmappedArrayDestroy", 5000, "cuMipmappedArrayDestroy", NULL},
	{"cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset", NULL},
	{"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2", NULL},
	{"cuDevicePrimaryCtxRelease", 7000, "cuDevicePrimaryCtxRelease", NULL},
	{"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2", NULL},
	{"cuCtxDestroy", 4000, "cuCtxDestroy_v2", NULL},
};

/* The newest CUDA whose functions are in the list. What a program asks of a newer
 * one may take other arguments than any that is known here. */
enum { NEWEST_KNOWN = 13020 };

static unsigned find_version(const char *name, int version, uint64_t flags)
{
	if (version > NEWEST_KNOWN)
		return 0;
	const char *symbol = NULL;
	for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++)
		if (versions[i].version <= version && strcmp(versions[i].name, name) == 0)
			symbol = flags & 2 && versions[i].per_thread ? versions[i].per_thread : versions[i].symbol;
	return symbol ? gpurec_find_name(symbol) : 0;
}

/* Exchanges what the driver answered. */
static void *translate(const char *name, int version, uint64_t flags, void *p)
{
	if (name == NULL)
		return p;
	gpurec_fill();
	for (unsigned which = 0; which < 2; which++)
		for (unsigned v2 = 0; v2 < 2; v2++)
			if (p == real_proc[v2][which])
				return proc_front[v2][which];
	if (gpurec_is_proc(name)) /* not the exported one: told apart by the version that was asked for */
		return gpurec_exchange_proc(version >= 12000, p);
	for (unsigned which = 0; which < 2; which++)
		for (unsigned api = 1; api <= HOOKED; api++)
			if (gpurec_real[which][api] == p)
				return gpurec_hooked[api].front[which];
	unsigned api = find_version(name, version, flags);
	if (api)
		return gpurec_exchange(api, p);
	if (version > NEWEST_KNOWN && find_version(name, NEWEST_KNOWN, flags))
		gpurec_note_past(name);
	else
		gpurec_note_unhooked(name);
	return p;
}

enum { SUCCESS = 0, NOT_FOUND = 500 };

static CUresult ask_v1(unsigned which, const char *name, void **to, int version, uint64_t flags)
{
	gpurec_fill();
	proc_v1 *real;
	memcpy(&real, &real_proc[0][which], sizeof real);
	if (real == NULL)
		return NOT_FOUND;
	CUresult r = real(name, to, version, flags);
	int err = errno;
	if (gpurec_config.on && gpurec_tls.depth == 0 && r == SUCCESS && to != NULL && *to != NULL)
		*to = translate(name, version, flags, *to);
	errno = err;
	return r;
}

static CUresult ask_v2(unsigned which, const char *name, void **to, int version, uint64_t flags, int *status)
{
	gpurec_fill();
	proc_v2 *real;
	memcpy(&real, &real_proc[1][which], sizeof real);
	if (real == NULL)
		return NOT_FOUND;
	CUresult r = real(name, to, version, flags, status);
	int err = errno;
	if (gpurec_config.on && gpurec_tls.depth == 0 && r == SUCCESS && to != NULL && *to != NULL)
		*to = translate(name, version, flags, *to);
	errno = err;
	return r;
}

CUresult cuGetProcAddress(const char *name, void **to, int version, uint64_t flags) { return ask_v1(0, name, to, version, flags); }
static CUresult second_v1(const char *name, void **to, int version, uint64_t flags) { return ask_v1(1, name, to, version, flags); }
CUresult cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status) { return ask_v2(0, name, to, version, flags, status); }
static CUresult second_v2(const char *name, void **to, int version, uint64_t flags, int *status) { return ask_v2(1, name, to, version, flags, status); }
