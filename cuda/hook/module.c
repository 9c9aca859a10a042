/*
 * module.c - which file's code an address is of.
 *
 * The kernel is asked, by /proc/self/maps, and not the dynamic loader: that has
 * locks, and an allocator under whose lock this runs may be waited for under
 * them; the kernel knows of every mapping, also of those that no loader made.
 * One reading finds one module: the one whose code the asking thread is running,
 * so that it cannot be unmapped meanwhile. It is never forgotten.
 *
 * A module may be unmapped later, and another one mapped there. Whether a module
 * is still the one that was read is told by its ELF header and build id, compared
 * by a copy that cannot fault, once after each dlclose, and at each event while
 * one runs:
 *
 *     changes   7 │                          │ 8
 *     closing   0 │ 1                        │ 1 → 0
 *                dlclose ──── unmapped ──── returns
 *
 * A module counts as seen in state 7 only if that still is the state afterwards.
 * A dlclose that does not come through our door (of a library opened with
 * RTLD_DEEPBIND) is followed by a dlopen and its dlsym before there can be a
 * wrong module: that is counted as a change too.
 */
#include "unwind.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct module modules[GPUREC_MAX_MODULES]; /* ANONYMOUS is all 0 */
static uint32_t made = ANONYMOUS + 1;

static uint32_t changes = 1, closing;

const struct module *gpurec_module(unsigned number) { return &modules[number]; }

void gpurec_module_go(unsigned number) { __atomic_store_n(&modules[number].go, true, __ATOMIC_RELAXED); }

/* ---- reading what may not be there ---------------------------------------------- */

__attribute__((no_sanitize("address"))) static void copy(unsigned char *to, const volatile unsigned char *from, size_t n)
{
	while (n-- > 0)
		*to++ = *from++;
}

/* Whether the kernel can read a page of ours: asked to change the signal mask in
 * a way that there is not, it reads the new mask first. */
static bool readable(uintptr_t at) { return syscall(SYS_rt_sigprocmask, ~0, at & ~7ull, NULL, 8) != 0 && errno != EFAULT; }

/* Bytes from n places of ours, one after another: as many as were read, or less
 * than 0, with EFAULT only where the first cannot be. A sandbox may end a program
 * for this call, so in one it is refused unasked; what else is called here, every
 * program calls. */
static long read_own(void *to, size_t bytes, const struct iovec *from, unsigned n)
{
	enum { GET_SECCOMP = 21 };
	struct iovec local = {to, bytes};
	if (syscall(SYS_prctl, GET_SECCOMP, 0, 0, 0, 0) > 0) {
		errno = EPERM;
		return -1;
	}
	return syscall(SYS_process_vm_readv, syscall(SYS_getpid), &local, 1, from, n, 0);
}

/* Where that is refused: of what the asking thread stands on, and so stays. */
static bool peek_slowly(void *to, uintptr_t from, size_t n)
{
	for (uintptr_t page = from & ~4095ull; page < from + n; page += 4096)
		if (!readable(page))
			return false;
	copy(to, (const volatile unsigned char *)from, n);
	return true;
}

/* And of what another thread may be unmapping: by a pipe. */
static bool peek_by_pipe(void *to, uintptr_t from, size_t n)
{
	int ends[2];
	if (syscall(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return false;
	bool all = syscall(SYS_write, ends[1], from, n) == (long)n && syscall(SYS_read, ends[0], to, n) == (long)n;
	syscall(SYS_close, ends[0]);
	syscall(SYS_close, ends[1]);
	return all;
}

static bool peek(void *to, uintptr_t from, size_t n, bool (*otherwise)(void *, uintptr_t, size_t))
{
	long got = read_own(to, n, &(struct iovec){(void *)from, n}, 1);
	return got >= 0 || errno == EFAULT ? got == (long)n : otherwise(to, from, n);
}

bool gpurec_peek(void *to, uintptr_t from, size_t n) { return peek(to, from, n, peek_slowly); }

/* Whether of each page in a range a byte can be read: what is mapped need not be
 * (a guard page, a file that has become shorter). */
bool gpurec_readable(struct thread *t, uintptr_t from, uintptr_t to)
{
	enum { PAGE = 4096, SOME = sizeof t->scratch / sizeof(struct iovec) };
	struct iovec *remote = (struct iovec *)t->scratch;
	_Static_assert(SOME <= sizeof t->copy && SOME <= 1024, "a byte of each page, no more than the kernel takes at once");
	t->copy_of = 0;
	for (from &= ~(uintptr_t)(PAGE - 1); from < to;) {
		size_t n = 0;
		for (uintptr_t page = from; page < to && n < SOME; page += PAGE)
			remote[n++] = (struct iovec){(void *)page, 1};
		long got = read_own(t->copy, n, remote, (unsigned)n);
		if (got < 0 && errno != EFAULT) /* it is forbidden */
			for (got = 0; got < (long)n && readable(from + (uintptr_t)got * PAGE); got++)
				;
		if (got != (long)n)
			return false;
		from += n * PAGE;
	}
	return true;
}

/* ---- changes ------------------------------------------------------------------------ */

uint32_t gpurec_module_state(void)
{
	if (unlikely(__atomic_load_n(&closing, __ATOMIC_ACQUIRE) != 0))
		return 0;
	return __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
}

__attribute__((no_sanitize("address"))) void gpurec_module_changed(void)
{
	if (__atomic_add_fetch(&changes, 1, __ATOMIC_ACQ_REL) == 0)
		__atomic_add_fetch(&changes, 1, __ATOMIC_ACQ_REL); /* 0 is no state */
}

void gpurec_module_forked(void) { closing = 0; } /* by a thread that the child has not */

EXPORT int dlclose(void *handle)
{
	int (*real)(void *);
	void *f = gpurec_next("dlclose");
	memcpy(&real, &f, sizeof f);
	if (real == NULL)
		return -1;
	if (gpurec_config.native == NATIVE_NEVER)
		return real(handle);
	__atomic_add_fetch(&closing, 1, __ATOMIC_ACQ_REL);
	int result = real(handle);
	gpurec_module_changed();
	__atomic_sub_fetch(&closing, 1, __ATOMIC_ACQ_REL);
	return result;
}

/* What the header and the build id are; 0: not there. */
static uint64_t print_of(const struct module *m)
{
	unsigned char now[sizeof(Elf64_Ehdr) + GPUREC_MAX_BUILD_ID];
	size_t n = sizeof(Elf64_Ehdr) + m->build_bytes;
	if (!peek(now, m->low, sizeof(Elf64_Ehdr), peek_by_pipe) || (m->build_bytes && !peek(now + sizeof(Elf64_Ehdr), m->build_at, m->build_bytes, peek_by_pipe)))
		return 0;
	return gpurec_text_hash(now, n, 0);
}

bool gpurec_module_check(unsigned number, uint32_t state)
{
	struct module *m = &modules[number];
	if (number <= ANONYMOUS)
		return number == ANONYMOUS;
	int err = errno;
	bool same = print_of(m) == m->print;
	errno = err;
	if (same && state != 0 && gpurec_module_state() == state)
		__atomic_store_n(&m->verified, state, __ATOMIC_RELAXED);
	return same;
}

/* ---- /proc/self/maps ------------------------------------------------------------------- */

/* A line of it. */
struct mapping {
	uint64_t start, end, offset, device, inode;
	uint64_t low; /* where the same file's beginning is mapped, 0: not */
	bool code;
	char *path; /* ends with a 0 */
};

static char *hex(char *p, uint64_t *value)
{
	for (*value = 0;; p++) {
		unsigned digit = *p >= '0' && *p <= '9' ? (unsigned)(*p - '0') : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a' + 10) : 16;
		if (digit == 16)
			return p;
		*value = *value << 4 | digit;
	}
}

/* start-end perms offset major:minor inode   path */
static bool parse(char *line, struct mapping *m)
{
	uint64_t major, minor;
	char *p = hex(line, &m->start);
	if (*p++ != '-')
		return false;
	p = hex(p, &m->end);
	if (p[0] != ' ' || p[1] == 0 || p[2] == 0 || p[3] == 0 || p[4] == 0 || p[5] != ' ')
		return false;
	m->code = p[3] == 'x';
	p = hex(p + 6, &m->offset);
	if (*p++ != ' ')
		return false;
	p = hex(p, &major);
	if (*p++ != ':')
		return false;
	p = hex(p, &minor);
	m->device = major << 32 | minor;
	if (*p++ != ' ')
		return false;
	for (m->inode = 0; *p >= '0' && *p <= '9'; p++)
		m->inode = m->inode * 10 + (uint64_t)(*p - '0');
	while (*p == ' ')
		p++;
	m->path = p;
	return true;
}

/* Calls f with the mappings, which lie in the buffer, until it says true. */
static bool each_mapping(char *buffer, size_t room, bool (*f)(struct mapping *m, void *with), void *with)
{
	size_t have = 0;
	bool found = false;
	struct mapping m;
	long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0), n;
	if (fd < 0)
		return false;
	while (!found && (n = syscall(SYS_read, fd, buffer + have, room - 1 - have)) > 0) {
		char *line = buffer, *end;
		have += (size_t)n;
		for (; !found && (end = memchr(line, '\n', (size_t)(buffer + have - line))) != NULL; line = end + 1) {
			*end = 0;
			found = parse(line, &m) && f(&m, with);
		}
		if (found)
			break;
		have = (size_t)(buffer + have - line);
		memmove(buffer, line, have);
	}
	syscall(SYS_close, fd);
	return found;
}

struct wanted {
	uintptr_t at;
	struct mapping first, *found; /* first: of the latest file's beginning */
};

static bool has_address(struct mapping *m, void *with)
{
	struct wanted *w = with;
	if (m->inode != 0 && m->offset == 0)
		w->first = *m;
	if (w->at < m->start || w->at >= m->end)
		return false;
	*w->found = *m;
	w->found->low = m->inode != 0 && w->first.inode == m->inode && w->first.device == m->device ? w->first.start : 0;
	return true;
}

/* Finds the mapping of an address. Its path lies in t->scratch. */
static bool find_mapping(struct thread *t, uintptr_t at, struct mapping *m)
{
	struct wanted w = {.at = at, .found = m};
	return each_mapping(t->scratch, sizeof t->scratch, has_address, &w);
}

struct named {
	const char *text;
	char *path;
	size_t room;
};

static bool has_name(struct mapping *m, void *with)
{
	struct named *n = with;
	size_t bytes = strlen(m->path);
	if (strstr(m->path, n->text) == NULL || bytes >= n->room)
		return false;
	memcpy(n->path, m->path, bytes + 1);
	return true;
}

bool gpurec_mapped_file(const char *text, char *path, size_t room)
{
	char buffer[2048];
	struct named n = {text, path, room};
	return each_mapping(buffer, sizeof buffer, has_name, &n);
}

/* ---- ELF ---------------------------------------------------------------------------------- */

/* Looks among the notes of a segment for the GNU build id, and for Go's. */
static void read_notes(struct module *m, uintptr_t at, uint64_t left)
{
	enum { GO_BUILD_ID = 4 };
	Elf64_Nhdr note;
	char name[4];
	for (int i = 0; i < 32 && left >= sizeof note && gpurec_peek(&note, at, sizeof note); i++) {
		uint64_t names = (note.n_namesz + 3ull) & ~3ull, all = sizeof note + names + ((note.n_descsz + 3ull) & ~3ull);
		if (note.n_namesz == 4 && gpurec_peek(name, at + sizeof note, 4)) {
			m->go = m->go || (note.n_type == GO_BUILD_ID && memcmp(name, "Go\0", 4) == 0);
			if (note.n_type == NT_GNU_BUILD_ID && memcmp(name, "GNU", 4) == 0 && m->build_bytes == 0 && note.n_descsz > 0 &&
			    note.n_descsz <= sizeof m->build && gpurec_peek(m->build, at + sizeof note + names, note.n_descsz)) {
				m->build_at = at + sizeof note + names;
				m->build_bytes = note.n_descsz;
			}
		}
		if (all > left)
			return;
		at += all;
		left -= all;
	}
}

/* The segment that the mapping of a place in the file is of. Where pages are of 64
 * KiB the file's beginning may lie in two segments' pages, and be mapped twice. */
static const Elf64_Phdr *segment_of(const Elf64_Phdr *p, unsigned n, uint64_t offset)
{
	uint64_t page = getauxval(AT_PAGESZ);
	const Elf64_Phdr *found = NULL;
	for (; n-- > 0; p++)
		if (p->p_type == PT_LOAD && (p->p_offset & ~(page - 1)) <= offset && offset < p->p_offset + p->p_filesz &&
		    (found == NULL || (p->p_flags & PF_X)))
			found = p;
	return found;
}

/* Reads the header at m->low, of a file that is mapped from an offset on; false where it is none of this machine's. */
static bool read_elf(struct thread *t, struct module *m, uint64_t offset)
{
	Elf64_Ehdr e;
	Elf64_Phdr *p = (Elf64_Phdr *)t->scratch;
	if (!gpurec_peek(&e, m->low, sizeof e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64 ||
	    (e.e_type != ET_DYN && e.e_type != ET_EXEC) || e.e_phentsize != sizeof *p || e.e_phnum > sizeof t->scratch / sizeof *p ||
	    !gpurec_peek(p, m->low + e.e_phoff, e.e_phnum * sizeof *p))
		return false;
	const Elf64_Phdr *code = segment_of(p, e.e_phnum, offset);
	if (code == NULL)
		return false;
	m->bias = m->start - (code->p_vaddr - code->p_offset + offset);
	for (unsigned i = 0; i < e.e_phnum; i++) {
		if (p[i].p_type == PT_GNU_EH_FRAME)
			m->table = m->bias + p[i].p_vaddr;
		if (p[i].p_type == PT_NOTE)
			read_notes(m, m->bias + p[i].p_vaddr, p[i].p_filesz);
		if (p[i].p_type == PT_NOTE && m->go && m->build_bytes == 0) /* Go's own linker has it behind the segment */
			read_notes(m, m->bias + p[i].p_vaddr + p[i].p_filesz, sizeof(Elf64_Nhdr) + 4 + sizeof m->build);
	}
	m->print = print_of(m);
	return m->print != 0;
}

/* ---- code that no file holds ----------------------------------------------------------------- */

/*
 * Ranges of it, as page << 24 | pages: a compiler at work may run its code at ever
 * new addresses, which is not to be a reading of the maps each. It is believed for
 * a second, as nobody tells when such a range is given back, and what it costs is
 * bounded: some readings at first and then a few a second; beyond, such code is
 * unknown.
 */
enum { RANGES = 64, FREE_READINGS = 64, READINGS_A_SECOND = 20 };
#define BELIEVED 1000000000ull
static uint64_t ranges[RANGES], ranges_until;
static uint32_t ranges_made, readings;
static uint64_t readings_since;

static bool known_range(uintptr_t at)
{
	uint64_t page = at >> 12;
	for (unsigned i = 0; i < RANGES; i++) {
		uint64_t r = __atomic_load_n(&ranges[i], __ATOMIC_RELAXED);
		if (page - (r >> 24) < (r & 0xffffff))
			return gpurec_now() < __atomic_load_n(&ranges_until, __ATOMIC_RELAXED);
	}
	return false;
}

static void know_range(const struct mapping *m)
{
	uint64_t pages = (m->end - m->start) >> 12;
	if (gpurec_now() >= __atomic_load_n(&ranges_until, __ATOMIC_RELAXED)) {
		for (unsigned i = 0; i < RANGES; i++)
			__atomic_store_n(&ranges[i], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&ranges_until, gpurec_now() + BELIEVED, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&ranges[__atomic_fetch_add(&ranges_made, 1, __ATOMIC_RELAXED) % RANGES],
	                 m->start >> 12 << 24 | (pages < 0xffffff ? pages : 0xffffff), __ATOMIC_RELAXED);
}

/* Whether the maps may be read for what may be no file's code. */
static bool may_read(void)
{
	uint64_t now = gpurec_now(), none = 0;
	__atomic_compare_exchange_n(&readings_since, &none, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return __atomic_load_n(&readings, __ATOMIC_RELAXED) <
	       FREE_READINGS + (now - __atomic_load_n(&readings_since, __ATOMIC_RELAXED)) / 1000000000 * READINGS_A_SECOND;
}

/* ---- finding ------------------------------------------------------------------------------------ */

/* A place for one more module; NULL: there are too many. */
static struct module *make(void)
{
	if (__atomic_load_n(&made, __ATOMIC_RELAXED) >= GPUREC_MAX_MODULES)
		return NULL;
	uint32_t i = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
	return i < GPUREC_MAX_MODULES ? &modules[i] : NULL;
}

/* The number of the module of a mapping; NO_MODULE: there are too many, ANONYMOUS: it is no ELF file. */
static unsigned add(struct thread *t, const struct mapping *map)
{
	struct module new = {.start = map->start, .end = map->end, .low = map->low};
	size_t n = strlen(map->path);
	if (n > GPUREC_MAX_NAME_BYTES)
		n = GPUREC_MAX_NAME_BYTES;
	char *path = map->low != 0 ? gpurec_keep(n) : NULL;
	if (path == NULL)
		return ANONYMOUS;
	memcpy(path, map->path, n); /* it lies in the scratch */
	new.path = path;
	new.path_bytes = (uint32_t)n;
	if (!read_elf(t, &new, map->offset))
		return ANONYMOUS;
	struct module *m = make();
	if (m == NULL)
		return NO_MODULE;
	*m = new;
	__atomic_store_n(&m->ready, 1, __ATOMIC_RELEASE);
	return (unsigned)(m - modules);
}

static unsigned known(uintptr_t at, uint32_t state)
{
	uint32_t n = __atomic_load_n(&made, __ATOMIC_RELAXED);
	for (unsigned i = n < GPUREC_MAX_MODULES ? n : GPUREC_MAX_MODULES; i-- > ANONYMOUS + 1;) { /* of two that were there, the newer */
		struct module *m = &modules[i];
		if (__atomic_load_n(&m->ready, __ATOMIC_ACQUIRE) && at >= m->start && at < m->end && gpurec_module_still(m, i, state))
			return i;
	}
	return NO_MODULE;
}

unsigned gpurec_module_at(struct thread *t, uintptr_t at)
{
	struct mapping m;
	uint32_t state = gpurec_module_state();
	unsigned i = known(at, state);
	if (i != NO_MODULE)
		return i;
	if (known_range(at))
		return ANONYMOUS;
	if (!may_read())
		return NO_MODULE;
	bool code = find_mapping(t, at, &m) && m.code;
	if (code && strcmp(m.path, "[vdso]") == 0)
		m.low = m.start;
	i = code ? add(t, &m) : NO_MODULE;
	if (i <= ANONYMOUS)
		__atomic_add_fetch(&readings, 1, __ATOMIC_RELAXED);
	if (i == ANONYMOUS)
		know_range(&m);
	return i;
}

/* ---- definitions ----------------------------------------------------------------------------------- */

static const struct module anonymous = {.path = "[anon]", .path_bytes = 6};

static const struct module *defined(unsigned number) { return number == ANONYMOUS ? &anonymous : &modules[number]; }

uint32_t gpurec_module_bytes(unsigned number)
{
	const struct module *m = defined(number);
	return (uint32_t)sizeof(gpurec_module_def) + m->build_bytes + m->path_bytes;
}

void gpurec_module_write(unsigned number, unsigned char *to)
{
	const struct module *m = defined(number);
	gpurec_module_def d = {.number = number, .build_bytes = m->build_bytes, .path_bytes = m->path_bytes, .bias = m->bias, .start = m->start, .end = m->end};
	memcpy(to, &d, sizeof d);
	memcpy(to += sizeof d, m->build, m->build_bytes);
	memcpy(to + m->build_bytes, m->path, m->path_bytes);
}
