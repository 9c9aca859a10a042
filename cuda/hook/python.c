/*
 * python.c - the calling thread's Python frames, read as raw memory, without
 * the interpreter's lock and without calling into it.
 *
 * Why that is sound: the thread is inside a C call made from its innermost
 * Python frame, so its chain of frames stands still until that call returns,
 * whether or not the thread holds the lock; frames own their code objects; and
 * what is read of a code object never changes. Taking the lock instead would
 * deadlock under PyTorch's allocator lock.
 *
 * Only layouts that have been tried are in the table, and only after a
 * self-check on the interpreter at hand: PyCode_Type's size and member offsets
 * must be the table's, and a first walk, by process_vm_readv so that a wrong
 * guess is an error and no fault, must find code objects only. Otherwise there
 * are no stacks.
 */
#include "hook.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

uint32_t gpurec_python;

/* Offsets in bytes; -1: there is none. Release builds with the interpreter lock,
 * LP64. They are the same in every patch release of a minor one. */
struct layout {
	uint16_t version;
	int16_t ts_frame;      /* PyThreadState: the frame, or the _PyCFrame that has it */
	int16_t cframe_frame;  /* _PyCFrame */
	int16_t f_code, f_previous, f_instruction, f_owner;
	int16_t instruction_unit; /* f_instruction is a number of these bytes; 0: an address */
	int16_t co_firstline, co_filename, co_name, co_linetable, co_firsttraceable, co_bytecode;
	int16_t co_version;
	int16_t str_ascii, str_data;
};

static const struct layout layouts[] = {
	{0x0309, 24, -1, 32, 24, 104, -1, 1, 40, 104, 112, 120, -1, 176, -1, 48, 72},
	{0x030a, 24, -1, 32, 24, 96, -1, 2, 40, 104, 112, 120, -1, 176, -1, 48, 72},
	{0x030b, 56, 8, 32, 48, 56, 69, 0, 72, 112, 120, 136, 168, 184, -1, 48, 72},
	{0x030c, 56, 0, 0, 8, 56, 70, 0, 68, 112, 120, 136, 176, 192, 92, 40, 56},
	{0x030d, 72, -1, 0, 8, 56, 70, 0, 68, 112, 120, 136, 184, 200, 92, 40, 56},
};

/* Equal in every version of the table. */
enum { OB_TYPE = 8, BYTES_SIZE = 16, BYTES_DATA = 32, STR_LENGTH = 16, STR_STATE = 32, TYPE_BASICSIZE = 32, TYPE_MEMBERS = 240 };
enum { OWNER_GENERATOR = 1, OWNER_C = 3, WALK_MOST = 4096 };

static const struct layout *layout; /* NULL: no stacks */
static void *(*this_thread_state)(void);
static const char *code_type;
static const char *str_type;
static bool given_up;

#define FIELD(type, object, offset) (*(const type *)((const char *)(object) + (offset)))
#define POINTER(object, offset) FIELD(const char *, object, offset)

/* ---- finding an interpreter -------------------------------------------------- */

static int is_python(struct dl_phdr_info *info, size_t size, void *found)
{
	(void)size;
	if (info->dlpi_name == NULL || strstr(info->dlpi_name, "libpython3") == NULL)
		return 0;
	*(const char **)found = info->dlpi_name;
	return 1;
}

/* 3.11.7 as 0x030b0700; 0 for what is no release of a build like the table's. */
static uint32_t parse_version(const char *s)
{
	uint32_t part[3] = {0, 0, 0};
	if (s == NULL || strstr(s, "free-threading") != NULL)
		return 0;
	for (int i = 0; i < 3; i++) {
		while (*s >= '0' && *s <= '9')
			part[i] = part[i] * 10 + (uint32_t)(*s++ - '0');
		if (i < 2 && *s++ != '.')
			return 0;
	}
	if (*s == 'a' || *s == 'b')
		return 0; /* layouts still change between these */
	return part[0] << 24 | part[1] << 16 | part[2] << 8;
}

/* PyCode_Type has the table's size, and its members are where the table says. */
static bool type_agrees(const struct layout *l)
{
	if (FIELD(int64_t, code_type, TYPE_BASICSIZE) != l->co_bytecode)
		return false;
	const struct {
		const char *name;
		int16_t offset;
	} want[] = {{"co_firstlineno", l->co_firstline}, {"co_filename", l->co_filename}, {"co_name", l->co_name}};
	const char *members = POINTER(code_type, TYPE_MEMBERS);
	unsigned seen = 0;
	for (int i = 0; members != NULL && i < 64 && POINTER(members, 40 * i) != NULL; i++)
		for (unsigned j = 0; j < sizeof want / sizeof want[0]; j++)
			if (strcmp(POINTER(members, 40 * i), want[j].name) == 0) {
				if (FIELD(int64_t, members, 40 * i + 16) != want[j].offset)
					return false;
				seen |= 1u << j;
			}
	return seen == 7;
}

/* Reads a word that may not be there. Where the call is forbidden the table is
 * trusted: type_agrees has confirmed it. */
static bool careful(uint64_t *to, const char *from)
{
	struct iovec local = {to, 8}, remote = {(void *)(uintptr_t)from, 8};
	long n = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &local, 1, &remote, 1, 0);
	if (n == 8)
		return true;
	if (n >= 0 || errno == EFAULT)
		return false;
	memcpy(to, from, 8);
	return true;
}

/* A walk that trusts nothing: every frame of this thread has a code object, or
 * is one of those that have none, and the first one's file name is a str. */
static bool walk_agrees(const struct layout *l, const char *ts)
{
	uint64_t f, code, type, owner = 0, name;
	if (!careful(&f, ts + l->ts_frame))
		return false;
	if (l->cframe_frame >= 0 && f != 0 && !careful(&f, (const char *)f + l->cframe_frame))
		return false;
	for (int i = 0; f != 0 && i < WALK_MOST; i++) {
		const char *frame = (const char *)f;
		if (!careful(&code, frame + l->f_code) || !careful(&f, frame + l->f_previous))
			return false;
		if (l->f_owner >= 0 && !careful(&owner, frame + l->f_owner - 7))
			return false;
		if (l->f_owner >= 0 && (owner >> 56) >= OWNER_C)
			continue;
		if (code == 0 || !careful(&type, (const char *)code + OB_TYPE))
			return false;
		if ((const char *)type != code_type) {
			if (l->version >= 0x030d)
				continue; /* a frame there may be of something else */
			return false;
		}
		if (!careful(&name, (const char *)code + l->co_filename) || !careful(&type, (const char *)name + OB_TYPE) ||
		    (const char *)type != str_type)
			return false;
	}
	return true;
}

/*
 * Looks for an interpreter in this process. Called at each lane's birth and when
 * a CUDA symbol is looked up, never in the middle of an event: dlsym takes the
 * loader's lock.
 */
void gpurec_python_find(void)
{
	if (!gpurec_config.stacks || __atomic_load_n(&layout, __ATOMIC_ACQUIRE) != NULL || __atomic_load_n(&given_up, __ATOMIC_RELAXED))
		return;
	void *from = RTLD_DEFAULT;
	void *get = gpurec_dlsym(from, "PyGILState_GetThisThreadState");
	if (get == NULL) {
		const char *path = NULL; /* an embedded one, out of the global scope */
		dl_iterate_phdr(is_python, &path);
		from = path ? gpurec_dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (from == NULL)
			return;
		get = gpurec_dlsym(from, "PyGILState_GetThisThreadState");
	}
	void *version = gpurec_dlsym(from, "Py_GetVersion"), *ready = gpurec_dlsym(from, "Py_IsInitialized");
	const char *code = gpurec_dlsym(from, "PyCode_Type"), *str = gpurec_dlsym(from, "PyUnicode_Type");
	if (get == NULL || version == NULL || ready == NULL || code == NULL || str == NULL)
		return;
	int (*is_ready)(void);
	const char *(*text)(void);
	void *(*state)(void);
	memcpy(&is_ready, &ready, sizeof ready);
	memcpy(&text, &version, sizeof version);
	memcpy(&state, &get, sizeof get);
	if (!is_ready())
		return;
	uint32_t hex = parse_version(text());
	const struct layout *l = NULL;
	for (unsigned i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
		if (layouts[i].version == hex >> 16)
			l = &layouts[i];
	const char *ts = state();
	if (ts == NULL && l != NULL)
		return; /* not a thread of Python's: the check is another's */
	code_type = code;
	str_type = str;
	this_thread_state = state;
	if (l == NULL || !type_agrees(l) || !walk_agrees(l, ts)) {
		__atomic_store_n(&given_up, true, __ATOMIC_RELAXED);
		gpurec_say("no Python stacks: this interpreter's layout is not one of those known");
		return;
	}
	gpurec_python = hex;
	__atomic_store_n(&layout, l, __ATOMIC_RELEASE);
}

/* ---- walking ------------------------------------------------------------------ */

/* The head of n bytes of what a str or bytes holds, for a hash. */
static uint64_t head_hash(uint64_t h, const char *data, uint64_t n, uint64_t most)
{
	uint64_t x[2] = {0, 0};
	memcpy(x, data, n < most ? n : most);
	return gpurec_mix(gpurec_mix(gpurec_mix(h, n), x[0]), x[1]);
}

/* A str's bytes; the unit is 0 for what is no compact str. */
static const char *str_data(const struct layout *l, const char *s, uint64_t *bytes, unsigned *unit)
{
	uint32_t state = FIELD(uint32_t, s, STR_STATE);
	*unit = state >> 2 & 7;
	*bytes = 0;
	if (!(state & 0x20) || (*unit != 1 && *unit != 2 && *unit != 4)) {
		*unit = 0;
		return s;
	}
	*bytes = FIELD(uint64_t, s, STR_LENGTH) * *unit;
	return s + (state & 0x40 ? l->str_ascii : l->str_data);
}

/*
 * What names a code object. Its address alone is reused once it is freed (exec,
 * lambdas, compiled graphs), and so are those of its strings: trusting them was
 * wrong for up to 99.99 % of reused objects when tried. From 3.12 on each has a
 * version of its own; before that, the content that tells them apart is hashed
 * (0 of 300,000 wrong).
 */
static uint64_t code_key(const struct layout *l, const char *code)
{
	uint64_t h = gpurec_mix(1, (uintptr_t)code);
	if (l->co_version >= 0) {
		uint32_t version = FIELD(uint32_t, code, l->co_version);
		if (version != 0) /* 0: the counter ran over */
			return gpurec_mix(h, version);
	}
	uint64_t n;
	unsigned unit;
	const char *p = str_data(l, POINTER(code, l->co_name), &n, &unit);
	for (h = gpurec_mix(h, n); n >= 8; n -= 8, p += 8)
		h = gpurec_mix(h, FIELD(uint64_t, p, 0));
	h = head_hash(h, p, n, 8);
	p = str_data(l, POINTER(code, l->co_filename), &n, &unit);
	uint64_t last = n < 16 ? n : 16;
	h = head_hash(gpurec_mix(h, n), p + n - last, last, 16);
	h = gpurec_mix(h, FIELD(uint32_t, code, l->co_firstline));
	const char *table = POINTER(code, l->co_linetable);
	h = head_hash(h, table + BYTES_DATA, FIELD(uint64_t, table, BYTES_SIZE), 16);
	return h;
}

unsigned gpurec_python_walk(struct thread *t, unsigned max, int skip)
{
	const struct layout *l = __atomic_load_n(&layout, __ATOMIC_ACQUIRE);
	t->nframes = t->frames_dropped = 0;
	if (l == NULL)
		return 0;
	const char *ts = this_thread_state();
	if (ts == NULL)
		return 0;
	const char *f = POINTER(ts, l->ts_frame);
	if (l->cframe_frame >= 0 && f != NULL)
		f = POINTER(f, l->cframe_frame);

	unsigned n = 0, dropped = 0;
	for (int i = 0; f != NULL && i < WALK_MOST; i++, f = POINTER(f, l->f_previous)) {
		const char *code = POINTER(f, l->f_code);
		unsigned owner = l->f_owner >= 0 ? FIELD(uint8_t, f, l->f_owner) : 0;
		if (code == NULL || owner >= OWNER_C || POINTER(code, OB_TYPE) != code_type)
			continue; /* a frame of the interpreter's own, or of no Python function */
		int64_t at;
		if (l->instruction_unit)
			at = (int64_t)FIELD(int32_t, f, l->f_instruction) * l->instruction_unit;
		else
			at = POINTER(f, l->f_instruction) - (code + l->co_bytecode);
		if (l->co_firsttraceable >= 0 && owner != OWNER_GENERATOR && at < 2 * (int64_t)FIELD(int32_t, code, l->co_firsttraceable))
			continue; /* still being set up: Python does not show it either */
		if (skip > 0) {
			skip--;
			continue;
		}
		if (n == max) {
			dropped++;
			continue;
		}
		t->codes[n] = code;
		t->frames[n++] = (gpurec_frame){code_key(l, code), (int32_t)at, GPUREC_FRAME_PYTHON};
	}
	t->nframes = n;
	t->frames_dropped = dropped;
	return n;
}

/* ---- definitions ---------------------------------------------------------------- */

struct parts {
	const char *file, *name, *table;
	uint64_t file_bytes, name_bytes, table_bytes, table_total;
	unsigned file_unit, name_unit;
};

/* The parts of a code object's definition, cut to what may travel. */
static void parts(const struct layout *l, const char *code, uint32_t limit, struct parts *p)
{
	p->file = str_data(l, POINTER(code, l->co_filename), &p->file_bytes, &p->file_unit);
	p->name = str_data(l, POINTER(code, l->co_name), &p->name_bytes, &p->name_unit);
	if (p->file_bytes > GPUREC_MAX_NAME_BYTES)
		p->file_bytes = GPUREC_MAX_NAME_BYTES;
	if (p->name_bytes > GPUREC_MAX_NAME_BYTES)
		p->name_bytes = GPUREC_MAX_NAME_BYTES;
	const char *table = POINTER(code, l->co_linetable);
	p->table = table + BYTES_DATA;
	p->table_total = p->table_bytes = FIELD(uint64_t, table, BYTES_SIZE);
	if (p->table_bytes > GPUREC_MAX_TABLE_BYTES)
		p->table_bytes = GPUREC_MAX_TABLE_BYTES;
	uint64_t room = limit - sizeof(gpurec_code_def) - p->file_bytes - p->name_bytes;
	if (p->table_bytes > room)
		p->table_bytes = room;
}

uint32_t gpurec_code_bytes(const void *code, uint32_t limit)
{
	struct parts p;
	parts(layout, code, limit, &p);
	return (uint32_t)(sizeof(gpurec_code_def) + p.file_bytes + p.name_bytes + p.table_bytes);
}

void gpurec_code_write(const void *code, uint64_t key, uint32_t bytes, unsigned char *to)
{
	struct parts p;
	parts(layout, code, bytes, &p);
	gpurec_code_def d = {
		.key = key,
		.first_line = FIELD(int32_t, code, layout->co_firstline),
		.file_bytes = (uint32_t)p.file_bytes,
		.name_bytes = (uint32_t)p.name_bytes,
		.table_bytes = (uint32_t)p.table_bytes,
		.table_total = (uint32_t)p.table_total,
		.file_unit = (uint8_t)p.file_unit,
		.name_unit = (uint8_t)p.name_unit,
		.python = layout->version,
	};
	memcpy(to, &d, sizeof d);
	to += sizeof d;
	memcpy(to, p.file, p.file_bytes);
	memcpy(to += p.file_bytes, p.name, p.name_bytes);
	memcpy(to += p.name_bytes, p.table, p.table_bytes);
}
