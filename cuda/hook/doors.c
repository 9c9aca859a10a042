/*
 * doors.c - the three ways by which a program comes to a driver function:
 *
 *   exported    a library linked to libcuda binds to the wrapper of that name
 *   dlsym       the answer of the real dlsym is exchanged for its wrapper
 *   cuGetProcAddress   the same, for what the real one answers: proc.c
 *
 * Everywhere the real look-up comes first, with the caller's own handle, and its
 * answer is exchanged only when it is a function of libcuda that is wrapped. So
 * the ABI (v1 or v2) and the stream flavour (_ptsz) are right by construction,
 * what the driver lacks stays lacking, and a name that another library happens
 * to export is left alone.
 *
 * dlsym's RTLD_NEXT and RTLD_DEFAULT mean something relative to the caller. A
 * wrapper that called the real dlsym would be the caller itself, and an
 * interposer would find itself for ever. Hence the few lines of assembly: ask
 * gpurec_door, then jump, leaving the caller's return address in place.
 */
#include "hook.h"

#include <dlfcn.h>
#include <link.h>

/* In glibc 2.34 these moved from libdl into libc under a new version. The old
 * version is in both, so that a hook built there runs on older systems. */
extern void *old_dlvsym(void *, const char *, const char *);
extern void *old_dlopen(const char *, int);
extern int old_dladdr(const void *, Dl_info *);
__asm__(".symver old_dlvsym, dlvsym@" OLDEST);
__asm__(".symver old_dlopen, dlopen@" OLDEST);
__asm__(".symver old_dladdr, dladdr@" OLDEST);

/* Used by the assembly. gpurec_door answers NULL for "jump to the real one",
 * NOTHING for "there is none", else what dlsym returns. */
__attribute__((visibility("hidden"))) void *gpurec_real_dlsym;
__attribute__((visibility("hidden"), used)) void *gpurec_door(void *handle, const char *name);

#define NOTHING ((void *)1)

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl gpurec_dlsym_door\n"
        ".hidden gpurec_dlsym_door\n"
        ".type gpurec_dlsym_door, @function\n"
        "gpurec_dlsym_door:\n"
        "	.cfi_startproc\n"
        "	endbr64\n"
        "	push %rdi\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	push %rsi\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	sub $8, %rsp\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	call gpurec_door\n"
        "	add $8, %rsp\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	pop %rsi\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	pop %rdi\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	test %rax, %rax\n"
        "	jz 1f\n"
        "	cmp $1, %rax\n"
        "	jne 2f\n"
        "	xor %eax, %eax\n"
        "2:	ret\n"
        "1:	jmp *gpurec_real_dlsym(%rip)\n"
        "	.cfi_endproc\n"
        ".size gpurec_dlsym_door, . - gpurec_dlsym_door\n");
#else /* run under emulation, not on hardware yet */
__asm__(".text\n"
        ".globl gpurec_dlsym_door\n"
        ".hidden gpurec_dlsym_door\n"
        ".type gpurec_dlsym_door, %function\n"
        "gpurec_dlsym_door:\n"
        "	.cfi_startproc\n"
        "	hint #34\n" /* bti c */
        "	stp x29, x30, [sp, #-32]!\n"
        "	.cfi_def_cfa_offset 32\n"
        "	.cfi_offset 29, -32\n"
        "	.cfi_offset 30, -24\n"
        "	mov x29, sp\n"
        "	stp x0, x1, [sp, #16]\n"
        "	bl gpurec_door\n"
        "	mov x16, x0\n"
        "	ldp x0, x1, [sp, #16]\n"
        "	ldp x29, x30, [sp], #32\n"
        "	.cfi_def_cfa_offset 0\n"
        "	.cfi_restore 29\n"
        "	.cfi_restore 30\n"
        "	cbz x16, 1f\n"
        "	cmp x16, #1\n"
        "	csel x0, xzr, x16, eq\n"
        "	ret\n"
        "1:	adrp x16, gpurec_real_dlsym\n"
        "	ldr x16, [x16, :lo12:gpurec_real_dlsym]\n"
        "	br x16\n"
        "	.cfi_endproc\n"
        ".size gpurec_dlsym_door, . - gpurec_dlsym_door\n");
#endif

/* Under its versions in glibc too: in front of us, other tools look for the next
 * dlsym by these. A reference without a version takes the newest. */
__asm__(".globl gpurec_dlsym_old\n.type gpurec_dlsym_old, %function\n.set gpurec_dlsym_old, gpurec_dlsym_door\n"
        ".globl gpurec_dlsym_new\n.type gpurec_dlsym_new, %function\n.set gpurec_dlsym_new, gpurec_dlsym_door\n"
        ".symver gpurec_dlsym_old, dlsym@" OLDEST "\n"
        ".symver gpurec_dlsym_new, dlsym@@GLIBC_2.34\n");

typedef void *dlsym_fn(void *, const char *);
static dlsym_fn *as_dlsym(void *f)
{
	dlsym_fn *typed;
	memcpy(&typed, &f, sizeof f);
	return typed;
}

/* The C library's own, passed by other tools': they have no version. */
EARLY static dlsym_fn *libc_dlsym(void)
{
	static void *found;
	void *f = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
	/* The oldest first, which every glibc has and which is the same function: a
	 * version that is missing would be reported through malloc, and a preloaded
	 * malloc that asks dlsym for the real one would come back here. */
	static const char *const versions[] = {OLDEST, "GLIBC_2.17", "GLIBC_2.34"};
	for (unsigned i = 0; f == NULL && i < sizeof versions / sizeof versions[0]; i++)
		f = old_dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	__atomic_store_n(&found, f, __ATOMIC_RELEASE);
	return as_dlsym(f);
}

/* The next one: another tool's, which the program would have without us. */
EARLY static dlsym_fn *real_dlsym(void)
{
	void *f = __atomic_load_n(&gpurec_real_dlsym, __ATOMIC_ACQUIRE);
	if (f == NULL) {
		dlsym_fn *libc = libc_dlsym();
		f = libc ? libc(RTLD_NEXT, "dlsym") : NULL;
		if (f == NULL)
			memcpy(&f, &libc, sizeof f);
		__atomic_store_n(&gpurec_real_dlsym, f, __ATOMIC_RELEASE);
	}
	return as_dlsym(f);
}

void *gpurec_dlsym(void *handle, const char *name)
{
	dlsym_fn *f = real_dlsym();
	return f ? f(handle, name) : NULL;
}

/* By the C library's: to another tool's, RTLD_NEXT would mean behind that tool. */
EARLY void *gpurec_next(const char *name)
{
	dlsym_fn *f = libc_dlsym();
	return f ? f(RTLD_NEXT, name) : NULL;
}

void *gpurec_dlopen(const char *name, int flags) { return old_dlopen(name, flags); }

/* ---- real and wrapped ---------------------------------------------------------- */

void *gpurec_real[2][HOOKED + 1];
struct asked gpurec_asked_of[2];
bool gpurec_two;
static void *libcuda; /* its handle: kept open, as wrappers that were handed out call into it */

/* cuInit and curand both begin with cu; the driver's own names go on in capitals. */
EARLY static bool is_driver_name(const char *s) { return s[0] == 'c' && s[1] == 'u' && s[2] >= 'A' && s[2] <= 'Z'; }

unsigned gpurec_find_name(const char *name)
{
	for (unsigned i = 1; i <= HOOKED; i++)
		if (strcmp(gpurec_hooked[i].symbol, name) == 0)
			return i;
	return 0;
}

static bool is_front(const void *p)
{
	for (unsigned i = 1; i <= HOOKED; i++)
		if (p == gpurec_hooked[i].front[0] || p == gpurec_hooked[i].front[1])
			return true;
	return gpurec_is_proc_front(p);
}

/* Whether an address is of a library whose file's name begins so. */
static bool in_library(const void *p, const char *name)
{
	Dl_info info;
	if (!old_dladdr(p, &info) || info.dli_fname == NULL)
		return false;
	const char *base = strrchr(info.dli_fname, '/');
	return strncmp(base ? base + 1 : info.dli_fname, name, strlen(name)) == 0;
}

static bool in_libcuda(const void *p) { return in_library(p, "libcuda.so"); }

void gpurec_set_once(void **slot, void *value)
{
	void *none = NULL;
	if (value != NULL && !is_front(value))
		__atomic_compare_exchange_n(slot, &none, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Finds everything in a libcuda that its wrappers call. */
static void fill_from(void *h, unsigned which)
{
	for (unsigned i = 1; i <= HOOKED; i++)
		gpurec_set_once(&gpurec_real[which][i], gpurec_dlsym(h, gpurec_hooked[i].symbol));
	gpurec_fill_proc(h, which);
#define FILL_ASKED(name, parameters) \
	{ \
		void *p = gpurec_dlsym(h, #name); \
		memcpy(&gpurec_asked_of[which].name, &p, sizeof p); \
	}
	GPUREC_ASKED(FILL_ASKED)
#undef FILL_ASKED
}

struct loaded {
	bool driver, torch;
};

static int see(struct dl_phdr_info *info, size_t size, void *to)
{
	struct loaded *l = to;
	const char *slash = strrchr(info->dlpi_name, '/'), *base = slash ? slash + 1 : info->dlpi_name;
	(void)size;
	l->driver = l->driver || strncmp(base, "libcuda.so", 10) == 0;
	l->torch = l->torch || strncmp(base, "libc10.so", 9) == 0;
	return 0;
}

/* PyTorch, if it is there: to ask the loader for what is not costs a search of every directory. */
static void look_for_torch(void)
{
	struct loaded l = {false, false};
	dl_iterate_phdr(see, &l);
	if (l.torch)
		gpurec_torch_find();
}

/* The first libcuda. Idempotent, so that two threads may do it at once; it calls
 * nothing of CUDA, whose initialisation from a look-up has dead-locked others. */
void gpurec_fill(void)
{
	static bool filled;
	if (__atomic_load_n(&filled, __ATOMIC_ACQUIRE))
		return;
	void *h = old_dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (h == NULL)
		return;
	libcuda = h;
	fill_from(h, 0);
	__atomic_store_n(&filled, true, __ATOMIC_RELEASE);
	look_for_torch();
	gpurec_python_look();
	gpurec_python_find();
}

/* A second one, of another path, as where a compatibility package lies beside the
 * system's: p is a function of it, or of the first. It has the second wrappers,
 * and what these ask is asked of it. A third goes unrecorded. */
void gpurec_fill_second(const void *p)
{
	Dl_info info;
	if (__atomic_load_n(&gpurec_two, __ATOMIC_ACQUIRE) || libcuda == NULL || !in_libcuda(p) || !old_dladdr(p, &info))
		return;
	void *h = old_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (h == NULL || h == libcuda)
		return;
	fill_from(h, 1);
	__atomic_store_n(&gpurec_two, true, __ATOMIC_RELEASE);
}

/* Of a program that is linked to libcuda: another interposer behind us has all its calls, or libcuda itself. */
static void fill_linked(void)
{
	for (unsigned i = 1; i <= HOOKED; i++)
		gpurec_set_once(&gpurec_real[0][i], gpurec_next(gpurec_hooked[i].symbol));
}

/* What the program is linked to. An event must not ask the loader, which may hold
 * its lock for another thread that waits for this one. */
void gpurec_look_first(void)
{
	struct loaded l = {false, false};
	gpurec_tls.depth++;
	dl_iterate_phdr(see, &l);
	if (l.driver) {
		fill_linked();
		gpurec_fill();
	}
	if (l.torch)
		gpurec_torch_find();
	gpurec_tls.depth--;
}

void *gpurec_find_real(unsigned api, unsigned which)
{
	void **slot = &gpurec_real[which][api];
	void *p = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
	if (likely(p != NULL))
		return p;
	int err = errno;
	gpurec_tls.depth++;
	void *next = gpurec_next(gpurec_hooked[api].symbol);
	gpurec_set_once(slot, next);
	if (next != NULL)
		fill_linked();
	gpurec_fill();
	gpurec_tls.depth--;
	errno = err;
	return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

/* The wrapper that calls p, or p where both wrappers call something else. */
void *gpurec_exchange(unsigned api, void *p)
{
	if (p != gpurec_real[0][api])
		gpurec_fill_second(p);
	for (unsigned which = 0; which < 2; which++) {
		gpurec_set_once(&gpurec_real[which][api], p);
		if (gpurec_real[which][api] == p)
			return gpurec_hooked[api].front[which];
	}
	return p;
}

/* ---- dlsym ------------------------------------------------------------------------ */

/* A name of ours, looked up in the global scope or the program's own handle: the
 * answer may be our own export although there is no driver, which must look as
 * if we were not there. */
static void *door_to_front(unsigned api, bool v2, void *answer)
{
	if (api)
		return gpurec_find_real(api, answer == gpurec_hooked[api].front[1]) ? answer : NULL;
	gpurec_fill();
	return gpurec_has_proc(v2) ? answer : NULL;
}

static void *door(void *handle, const char *name)
{
	unsigned api = gpurec_find_name(name);
	bool proc = gpurec_is_proc(name), v2 = proc && name[16] != 0;
	if (handle == RTLD_DEFAULT) {
		/* Found by the caller's own scope, ours first. Only where there is no
		 * driver must the answer differ. */
		if (api == 0 && !proc)
			return NULL;
		return door_to_front(api, v2, NOTHING) ? NULL : NOTHING;
	}
	if (api == 0 && !proc)
		return NULL;
	void *p = gpurec_dlsym(handle, name);
	if (p == NULL)
		return NULL; /* and the real one says so in its own words */
	if (is_front(p)) {
		p = door_to_front(api, v2, p);
		return p ? p : NOTHING;
	}
	gpurec_fill();
	if (!gpurec_config.on || !(handle == libcuda || in_libcuda(p)))
		return p;
	return api ? gpurec_exchange(api, p) : gpurec_exchange_proc(v2, p);
}

/* The first look-up after a dlopen: there may be an interpreter, in a process that
 * has to do with us, and PyTorch in any: its reports are to go on. */
static void look_again(const char *name)
{
	if (!gpurec_tls.seen) {
		gpurec_tls.seen = true;
		look_for_torch();
	}
	if (libcuda == NULL && (name == NULL || strncmp(name, "gpurec_", 7) != 0))
		return;
	gpurec_tls.opened = false;
	gpurec_python_look();
}

EARLY void *gpurec_door(void *handle, const char *name)
{
	int err = errno;
	if (real_dlsym() == NULL)
		return NOTHING;
	gpurec_module_changed();
	if (unlikely(gpurec_tls.deep != 0 || gpurec_tls.apart))
		gpurec_deep_look(handle);
	if (unlikely(gpurec_tls.opened))
		look_again(name);
	void *p = NULL;
	/* What the driver, or a library that another look-up is just opening, asks
	 * for is its own business; RTLD_NEXT means a function behind the caller. */
	if (name != NULL && is_driver_name(name) && handle != RTLD_NEXT && gpurec_tls.depth == 0) {
		gpurec_tls.depth++;
		p = door(handle, name);
		bool unknown = p == NULL && gpurec_config.on && handle != RTLD_DEFAULT && gpurec_unhooked(name);
		bool note = unknown && in_libcuda(gpurec_dlsym(handle, name));
		gpurec_tls.depth--;
		if (note)
			gpurec_note_unhooked(name);
		/* What we look for besides, and do not find, is not what dlerror is to say. */
		if (p != NULL)
			gpurec_dlsym(p == NOTHING ? RTLD_NEXT : handle, name);
	}
	errno = err;
	return p;
}

/* ---- libraries past the doors: deepbind.c ------------------------------------- */

bool gpurec_has_driver(void)
{
	gpurec_fill();
	return libcuda != NULL;
}

static bool is_loader_name(const char *name) { return strcmp(name, "dlsym") == 0 || strcmp(name, "dlopen") == 0 || strcmp(name, "dlmopen") == 0 || strcmp(name, "dlclose") == 0; }

bool gpurec_exported(const char *name)
{
	return is_loader_name(name) || strncmp(name, "_ZN3c1027report", 15) == 0 || (is_driver_name(name) && (gpurec_is_proc(name) || gpurec_find_name(name)));
}

void *gpurec_front(const char *name, void *real)
{
	static void *self;
	Dl_info here;
	if (real == NULL || is_front(real))
		return NULL;
	if (is_driver_name(name)) {
		if (!in_libcuda(real))
			return NULL;
		unsigned api = gpurec_find_name(name);
		return api ? gpurec_exchange(api, real) : gpurec_exchange_proc(name[16] != 0, real);
	}
	if (is_loader_name(name) ? !in_library(real, "libc.so") && !in_library(real, "libc-2") && !in_library(real, "libdl") : !in_library(real, "libc10.so"))
		return NULL;
	if (self == NULL && old_dladdr((void *)gpurec_front, &here) && here.dli_fname != NULL)
		self = old_dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	return self ? gpurec_dlsym(self, name) : NULL;
}
