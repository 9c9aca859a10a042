/*
 * deepbind.c - libraries that take the driver's functions past our doors.
 *
 *   dlopen(..., RTLD_DEEPBIND)  such a library finds its own libraries' functions
 *               before ours: what it is linked to, dlsym included
 *   dlmopen     a library in a namespace of its own has a driver, and a C
 *               library, of its own there; nothing of ours is
 *
 * Neither can be seen by what the program calls later, so both functions have a
 * door. It lets the real one be called as if we were not there (which library
 * asks decides where it looks), notes that it was, and at this thread's next
 * look-up, when the library has been bound, looks at what it was bound to:
 *
 *  1  of each library that has come since, the imports of names that we export;
 *  2  one that leads into libcuda, libdl or libc is past us. That is noted, once a
 *     library, in a process that has a driver;
 *  3  or else, when asked for (gpurec run --deepbind), it is led to us: its word
 *     in the library's table is set as the loader would have set it without the
 *     flag. All its other imports stay as they are.
 *
 * To drop the flag would be less work, and change what the program asked for: the
 * versions of all other functions that it wanted to keep apart. An audit library
 * would slow down every binding of every library. What a library's constructors
 * call comes before 3 and stays unseen, but for what they look up.
 *
 * A namespace of dlmopen's cannot be recorded: that is noted.
 */
#include "hook.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#define GLOB_DAT R_X86_64_GLOB_DAT
#define ABSOLUTE R_X86_64_64
#define DOOR(name, notes) \
	__asm__(".text\n" \
	        ".globl " #name "\n" \
	        ".type " #name ", @function\n" \
	        #name ":\n" \
	        "	.cfi_startproc\n" \
	        "	endbr64\n" \
	        "	push %rdi\n" \
	        "	.cfi_adjust_cfa_offset 8\n" \
	        "	push %rsi\n" \
	        "	.cfi_adjust_cfa_offset 8\n" \
	        "	push %rdx\n" \
	        "	.cfi_adjust_cfa_offset 8\n" \
	        "	call " #notes "\n" \
	        "	pop %rdx\n" \
	        "	.cfi_adjust_cfa_offset -8\n" \
	        "	pop %rsi\n" \
	        "	.cfi_adjust_cfa_offset -8\n" \
	        "	pop %rdi\n" \
	        "	.cfi_adjust_cfa_offset -8\n" \
	        "	test %rax, %rax\n" \
	        "	jz 1f\n" \
	        "	jmp *%rax\n" \
	        "1:	ret\n" \
	        "	.cfi_endproc\n" \
	        ".size " #name ", . - " #name "\n")
#else /* run under emulation, not on hardware yet */
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#define GLOB_DAT R_AARCH64_GLOB_DAT
#define ABSOLUTE R_AARCH64_ABS64
#define DOOR(name, notes) \
	__asm__(".text\n" \
	        ".globl " #name "\n" \
	        ".type " #name ", %function\n" \
	        #name ":\n" \
	        "	.cfi_startproc\n" \
	        "	hint #34\n" \
	        "	stp x29, x30, [sp, #-48]!\n" \
	        "	.cfi_def_cfa_offset 48\n" \
	        "	.cfi_offset 29, -48\n" \
	        "	.cfi_offset 30, -40\n" \
	        "	mov x29, sp\n" \
	        "	stp x0, x1, [sp, #16]\n" \
	        "	str x2, [sp, #32]\n" \
	        "	bl " #notes "\n" \
	        "	mov x16, x0\n" \
	        "	ldp x0, x1, [sp, #16]\n" \
	        "	ldr x2, [sp, #32]\n" \
	        "	ldp x29, x30, [sp], #48\n" \
	        "	.cfi_def_cfa_offset 0\n" \
	        "	.cfi_restore 29\n" \
	        "	.cfi_restore 30\n" \
	        "	cbz x16, 1f\n" \
	        "	br x16\n" \
	        "1:	mov x0, xzr\n" \
	        "	ret\n" \
	        "	.cfi_endproc\n" \
	        ".size " #name ", . - " #name "\n")
#endif

DOOR(dlopen, gpurec_opens);
DOOR(dlmopen, gpurec_opens_apart);

#define USED __attribute__((visibility("hidden"), used, no_sanitize("address")))

/* A library's place in the loader's list, by which what comes later is known. */
struct place {
	unsigned at;
	uint64_t gone; /* libraries closed until then: one more, and the places have changed */
	char *name;    /* of the library there, if room is more than 0 */
	size_t room;
	const ElfW(Phdr) *headers;
	unsigned n;
	uintptr_t base;
};

static int counts(struct dl_phdr_info *i, size_t size, void *place)
{
	struct place *p = place;
	(void)size;
	p->at++;
	p->gone = i->dlpi_subs;
	return 0;
}

USED void *gpurec_opens(const char *name, int flags)
{
	int err = errno;
	(void)name;
	struct tls *tls = &gpurec_tls;
	tls->opened = true;
	tls->seen = false;
	if (unlikely(flags & RTLD_DEEPBIND) && gpurec_config.on && tls->depth == 0 && tls->deep == 0) {
		struct place p = {0};
		dl_iterate_phdr(counts, &p);
		tls->deep = p.at;
		tls->deep_gone = (uint32_t)p.gone;
	}
	void *real = gpurec_next("dlopen");
	errno = err;
	return real;
}

USED void *gpurec_opens_apart(Lmid_t namespace, const char *name, int flags)
{
	int err = errno;
	(void)name, (void)flags;
	if (namespace != LM_ID_BASE && gpurec_config.on && gpurec_tls.depth == 0)
		gpurec_tls.apart = true;
	void *real = gpurec_next("dlmopen");
	errno = err;
	return real;
}

/* ---- a library's imports --------------------------------------------------------- */

static int finds(struct dl_phdr_info *i, size_t size, void *place)
{
	struct place *p = place;
	(void)size;
	if (p->at-- != 0)
		return 0;
	size_t n = strlen(i->dlpi_name);
	if (n >= p->room)
		n = 0;
	memcpy(p->name, i->dlpi_name, n);
	p->name[n] = 0;
	p->headers = i->dlpi_phdr;
	p->n = i->dlpi_phnum;
	p->base = i->dlpi_addr;
	return 1;
}

static bool within(const struct place *p, uint32_t type, uintptr_t at)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->headers[i].p_type == type && at - (p->base + p->headers[i].p_vaddr) < p->headers[i].p_memsz)
			return true;
	return false;
}

/* One thread at a time changes what is read-only again afterwards. */
static bool set(const struct place *p, uintptr_t slot, void *to)
{
	static bool one;
	size_t bytes = getauxval(AT_PAGESZ);
	uintptr_t page = slot & ~(bytes - 1);
	bool fixed = within(p, PT_GNU_RELRO, slot);
	if (fixed) {
		if (__atomic_exchange_n(&one, true, __ATOMIC_ACQUIRE))
			return false;
		if (syscall(SYS_mprotect, page, bytes, PROT_READ | PROT_WRITE) != 0) {
			__atomic_store_n(&one, false, __ATOMIC_RELEASE);
			return false;
		}
	}
	__atomic_store_n((void **)slot, to, __ATOMIC_RELEASE);
	if (fixed) {
		syscall(SYS_mprotect, page, bytes, PROT_READ);
		__atomic_store_n(&one, false, __ATOMIC_RELEASE);
	}
	return true;
}

/* What an import leads to: a slot that no call has filled yet leads to where the
 * library's own scope has the name, as that is searched first. */
static void *leads_to(const struct place *p, uintptr_t slot, void *handle, const char *name, bool lazy)
{
	void *to = __atomic_load_n((void **)slot, __ATOMIC_ACQUIRE);
	if (!lazy || !within(p, PT_LOAD, (uintptr_t)to))
		return to;
	return gpurec_dlsym(handle, name);
}

/* Looks at a table of relocations; whether one leads past us and was left so. */
static bool look_at(const struct place *p, const ElfW(Rela) *r, size_t n, const ElfW(Sym) *symbols, const char *names, void *handle, bool *busy)
{
	bool past = false;
	for (; n-- > 0; r++) {
		unsigned type = ELF64_R_TYPE(r->r_info);
		const ElfW(Sym) *s = &symbols[ELF64_R_SYM(r->r_info)];
		if ((type != JUMP_SLOT && type != GLOB_DAT && (type != ABSOLUTE || r->r_addend != 0)) || s->st_shndx != SHN_UNDEF || s->st_name == 0)
			continue;
		const char *name = names + s->st_name;
		if (!gpurec_exported(name))
			continue;
		uintptr_t slot = p->base + r->r_offset;
		void *is = leads_to(p, slot, handle, name, type == JUMP_SLOT), *ours = gpurec_front(name, is);
		if (ours == NULL || ours == is)
			continue;
		if (!gpurec_config.deepbind)
			past = true;
		else if (!set(p, slot, ours))
			*busy = past = true;
	}
	return past;
}

/* Whether a library has imports that lead past us. handle keeps it where it is. */
static bool look_at_library(const struct place *p, void *handle, bool *busy)
{
	const ElfW(Dyn) *d = ((struct link_map *)handle)->l_ld;
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	const ElfW(Rela) *table[2] = {NULL, NULL};
	size_t bytes[2] = {0, 0};
	for (; d->d_tag != DT_NULL; d++) {
		uintptr_t at = d->d_un.d_ptr < p->base ? p->base + d->d_un.d_ptr : d->d_un.d_ptr; /* the loader has mostly added it */
		switch (d->d_tag) {
		case DT_SYMTAB: symbols = (const void *)at; break;
		case DT_STRTAB: names = (const void *)at; break;
		case DT_RELA: table[0] = (const void *)at; break;
		case DT_RELASZ: bytes[0] = d->d_un.d_val; break;
		case DT_JMPREL: table[1] = (const void *)at; break;
		case DT_PLTRELSZ: bytes[1] = d->d_un.d_val; break;
		}
	}
	bool past = false;
	for (unsigned i = 0; i < 2 && symbols != NULL && names != NULL; i++)
		if (table[i] != NULL)
			past |= look_at(p, table[i], bytes[i] / sizeof *table[i], symbols, names, handle, busy);
	return past;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void note(const char *path, const char *why)
{
	char text[256];
	const char *base = base_of(path);
	size_t n = strnlen(base, sizeof text / 2), m = strlen(why);
	memcpy(text, base, n);
	memcpy(text + n, why, m + 1);
	gpurec_note_past(text);
}

/* ---- at the next look-up ------------------------------------------------------------ */

enum { PATH = 1024 };

static void look_deep(struct tls *tls)
{
	bool driver = gpurec_has_driver();
	if (!driver && !gpurec_config.deepbind)
		return; /* as inert as can be: later, if ever */
	struct place now = {0};
	dl_iterate_phdr(counts, &now);
	/* Where the places have changed a library may be passed over that would be seen else. */
	unsigned gone = (uint32_t)now.gone - tls->deep_gone, from = tls->deep > gone ? tls->deep - gone : 0;
	bool busy = false;
	for (unsigned i = from; i < now.at; i++) {
		char path[PATH];
		struct place p = {.at = i, .name = path, .room = sizeof path};
		tls->depth++;
		void *handle = dl_iterate_phdr(finds, &p) && path[0] != 0 ? gpurec_dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		bool past = handle != NULL && strncmp(base_of(path), "libcuda.so", 10) != 0 && look_at_library(&p, handle, &busy);
		tls->depth--;
		if (past && driver && !busy)
			note(path, " (RTLD_DEEPBIND)");
		if (handle != NULL)
			dlclose(handle);
	}
	if (!busy)
		tls->deep = 0;
}

/* The namespace of a handle is its own: is there a driver in it? */
static void look_apart(struct tls *tls, void *handle)
{
	int (*info)(void *, int, void *);
	void *f = gpurec_next("dlinfo");
	Lmid_t namespace = LM_ID_BASE;
	memcpy(&info, &f, sizeof f);
	if (info == NULL || handle == RTLD_DEFAULT || handle == RTLD_NEXT || info(handle, RTLD_DI_LMID, &namespace) != 0 || namespace == LM_ID_BASE)
		return;
	const struct link_map *m = handle;
	const char *path = m->l_name;
	while (m->l_prev != NULL)
		m = m->l_prev;
	while (m != NULL && strncmp(base_of(m->l_name), "libcuda.so", 10) != 0)
		m = m->l_next;
	if (m == NULL)
		return;
	tls->apart = false;
	note(path, " (dlmopen)");
}

void gpurec_deep_look(void *handle)
{
	struct tls *tls = &gpurec_tls;
	if (tls->depth != 0)
		return;
	if (tls->deep != 0)
		look_deep(tls);
	if (tls->apart)
		look_apart(tls, handle);
}
