/*
 * python.c - finding the interpreter of this process, and its code objects as
 * definitions. walk.c says why they may be read.
 *
 * Only layouts that have been tried are in the table, and only after a
 * self-check on the interpreter at hand:
 *
 *  1. the version that it names has a row, and is no preview
 *  2. PyCode_Type's size and member offsets are the row's
 *  3. from 3.13 on, so are the offsets that CPython keeps for debuggers
 *  4. a first walk, by process_vm_readv so that a wrong guess is an error and no
 *     fault, finds code objects only
 *
 * Otherwise there are no stacks.
 */
#include "python.h"
#include "unwind.h"

#include <dlfcn.h>

uint32_t gpurec_python;
uintptr_t gpurec_python_loop;
struct interpreter gpurec_interpreter;
static bool given_up;

/* ---- finding an interpreter -------------------------------------------------- */

/*
 * What the loader was asked for. It has locks that another thread may hold, for as
 * long as a constructor runs, and that in a forked child nobody gives back; and
 * each question loses what dlerror had to say. So it is asked where the program
 * itself is just asking it: at a look-up of the driver's functions or of ours, and
 * at the first one of any name after a dlopen. Whether an interpreter that is
 * there has started can then be told at any event.
 */
static struct {
	void *(*state)(void);
	const char *(*version)(void);
	int (*ready)(void);
	int64_t (*number)(void *);
	void *(*first)(void);
	void *(*threads)(void *);
	int (*at_exit)(void (*)(void));
	const char *code_type, *str_type, *runtime;
	uintptr_t loop;
} python;
static bool looked, there; /* the loader was asked; python is filled in */

/* 3.11.7 as 0x030b0700; 0 for what is no release. */
static uint32_t parse_version(const char *s)
{
	uint32_t part[3] = {0, 0, 0};
	if (s == NULL)
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
static bool type_agrees(const struct layout *l, const char *code_type)
{
	if (FIELD(int64_t, code_type, TYPE_BASICSIZE + l->head) != l->co_bytecode)
		return false;
	const struct {
		const char *name;
		int16_t offset;
	} want[] = {{"co_firstlineno", l->co_firstline}, {"co_filename", l->co_filename}, {"co_name", l->co_name}};
	const char *members = POINTER(code_type, TYPE_MEMBERS + l->head);
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

/*
 * From 3.13 on _PyRuntime begins with the offsets of its build, for debuggers. An
 * interpreter that does not show it, as one that is linked into a program may not,
 * is judged by the rest.
 */
static bool offsets_agree(const struct layout *l, const char *runtime, uint32_t hex)
{
	if (l->own.thread == 0 || runtime == NULL)
		return true;
	const uint64_t *own = (const uint64_t *)runtime;
	const struct {
		unsigned at;
		int64_t want;
	} rows[] = {
		{1, hex >> 8}, /* its lowest byte says which preview */
		{2, (l->version & FREE_THREADED) != 0},
		{l->own.thread + 4u, l->ts_frame},
		{l->own.frame + 1u, l->f_previous},
		{l->own.frame + 2u, l->f_code},
		{l->own.frame + 3u, l->f_instruction},
		{l->own.frame + 5u, l->f_owner},
		{l->own.code + 1u, l->co_filename},
		{l->own.code + 2u, l->co_name},
		{l->own.code + 4u, l->co_linetable},
		{l->own.code + 5u, l->co_firstline},
		{l->own.code + 9u, l->co_bytecode},
		{l->own.object + 1u, OB_TYPE + l->head},
		{l->own.bytes + 1u, BYTES_SIZE + l->head},
		{l->own.bytes + 2u, BYTES_DATA + l->head},
		{l->own.str + 1u, STR_STATE + l->head},
		{l->own.str + 2u, STR_LENGTH + l->head},
		{l->own.str + 3u, l->str_ascii},
	};
	if (memcmp(runtime, "xdebugpy", 8) != 0)
		return false;
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if ((int64_t)(i == 0 ? own[1] >> 8 : own[rows[i].at]) != rows[i].want)
			return false;
	return true;
}

/* Reads a word that may not be there. */
static bool careful(uint64_t *to, const char *from) { return gpurec_peek(to, (uintptr_t)from, sizeof *to); }

/* A walk that trusts nothing: every frame of this thread has a code object, or
 * is one of those that have none, and the first one's file name is a str. */
enum { CHECK_MOST = 4096 };
static bool walk_agrees(const struct layout *l, const char *ts)
{
	uint64_t f, code, type, owner = 0, name;
	if (!careful(&f, ts + l->ts_frame))
		return false;
	if (l->cframe_frame >= 0 && f != 0 && !careful(&f, (const char *)f + l->cframe_frame))
		return false;
	for (int i = 0; f != 0 && i < CHECK_MOST; i++) {
		const char *frame = (const char *)f;
		if (!careful(&code, frame + l->f_code) || !careful(&f, frame + l->f_previous))
			return false;
		if (l->f_owner >= 0 && !careful(&owner, frame + l->f_owner - 7))
			return false;
		if (l->f_owner >= 0 && (owner >> 56) >= OWNER_C)
			continue;
		code &= ~(uint64_t)l->f_code_tag;
		if (code == 0 || !careful(&type, (const char *)code + OB_TYPE + l->head))
			return false;
		if ((const char *)type != gpurec_interpreter.code_type) {
			if (minor(l) >= 13)
				continue; /* a frame there may be of something else */
			return false;
		}
		if (!careful(&name, (const char *)code + l->co_filename) || !careful(&type, (const char *)name + OB_TYPE + l->head) ||
		    (const char *)type != gpurec_interpreter.str_type)
			return false;
	}
	return true;
}

static bool settled(void)
{
	return !gpurec_config.python || __atomic_load_n(&gpurec_interpreter.layout, __ATOMIC_ACQUIRE) != NULL || __atomic_load_n(&given_up, __ATOMIC_RELAXED);
}

void gpurec_python_look(void)
{
	if (settled() || __atomic_load_n(&there, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&looked, true, __ATOMIC_RELAXED);
	void *from = RTLD_DEFAULT, *state = gpurec_dlsym(from, "PyGILState_GetThisThreadState");
	char path[1024];
	if (state == NULL) { /* an embedded one, out of the global scope? */
		from = gpurec_mapped_file("libpython3", path, sizeof path) ? gpurec_dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (from == NULL)
			return;
		state = gpurec_dlsym(from, "PyGILState_GetThisThreadState");
	}
	void *version = gpurec_dlsym(from, "Py_GetVersion"), *ready = gpurec_dlsym(from, "Py_IsInitialized");
	void *number = gpurec_dlsym(from, "PyInterpreterState_GetID"), *first = gpurec_dlsym(from, "PyInterpreterState_Main"), *threads = gpurec_dlsym(from, "PyInterpreterState_ThreadHead"), *at_exit = gpurec_dlsym(from, "Py_AtExit");
	python.code_type = gpurec_dlsym(from, "PyCode_Type");
	python.str_type = gpurec_dlsym(from, "PyUnicode_Type");
	python.runtime = gpurec_dlsym(from, "_PyRuntime");
	python.loop = (uintptr_t)gpurec_dlsym(from, "_PyEval_EvalFrameDefault");
	memcpy(&python.state, &state, sizeof state);
	memcpy(&python.version, &version, sizeof version);
	memcpy(&python.ready, &ready, sizeof ready);
	memcpy(&python.number, &number, sizeof number);
	memcpy(&python.first, &first, sizeof first);
	memcpy(&python.threads, &threads, sizeof threads);
	memcpy(&python.at_exit, &at_exit, sizeof at_exit);
	if (state != NULL && version != NULL && ready != NULL && number != NULL && first != NULL && threads != NULL && at_exit != NULL && python.code_type != NULL && python.str_type != NULL)
		__atomic_store_n(&there, true, __ATOMIC_RELEASE);
}

/* Python calls it at the end of Py_Finalize. */
static void ended(void) { __atomic_store_n(&gpurec_interpreter.ended, true, __ATOMIC_RELAXED); }

void gpurec_python_find(void)
{
	if (settled())
		return;
	if (!__atomic_load_n(&looked, __ATOMIC_RELAXED))
		gpurec_python_look(); /* a process that makes events and has looked up nothing */
	if (!__atomic_load_n(&there, __ATOMIC_ACQUIRE) || !python.ready())
		return;
	const char *says = python.version();
	uint32_t hex = parse_version(says);
	uint16_t row = (uint16_t)(hex >> 16 | (hex && strstr(says, "free-threading") ? FREE_THREADED : 0));
	const struct layout *l = NULL;
	for (unsigned i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
		if (layouts[i].version == row)
			l = &layouts[i];
	const char *ts = python.state();
	if (ts == NULL && l != NULL)
		return; /* not a thread of Python's: the check is another's */
	gpurec_interpreter.code_type = python.code_type;
	gpurec_interpreter.str_type = python.str_type;
	gpurec_interpreter.thread_state = python.state;
	gpurec_interpreter.ready = python.ready;
	gpurec_interpreter.main = python.first;
	gpurec_interpreter.threads = python.threads;
	gpurec_interpreter.number = python.number;
	gpurec_interpreter.first = python.first();
	if (l == NULL || !type_agrees(l, python.code_type) || !offsets_agree(l, python.runtime, hex) || !walk_agrees(l, ts)) {
		__atomic_store_n(&given_up, true, __ATOMIC_RELAXED);
		gpurec_say("no Python stacks: this interpreter's layout is not one of those known");
		return;
	}
	__atomic_store_n(&gpurec_python_loop, python.loop, __ATOMIC_RELAXED);
	__atomic_store_n(&gpurec_python, hex, __ATOMIC_RELAXED);
	__atomic_store_n(&gpurec_interpreter.layout, l, __ATOMIC_RELEASE);
	gpurec_walk_choose(l->version);
	if (l->co_version >= 0)
		python.at_exit(ended);
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
	p->table = table + BYTES_DATA + l->head;
	p->table_total = p->table_bytes = FIELD(uint64_t, table, BYTES_SIZE + l->head);
	if (p->table_bytes > GPUREC_MAX_TABLE_BYTES)
		p->table_bytes = GPUREC_MAX_TABLE_BYTES;
	uint64_t room = limit - sizeof(gpurec_code_def) - p->file_bytes - p->name_bytes;
	if (p->table_bytes > room)
		p->table_bytes = room;
}

uint32_t gpurec_code_bytes(const void *code, uint32_t limit)
{
	struct parts p;
	parts(gpurec_interpreter.layout, code, limit, &p);
	return (uint32_t)(sizeof(gpurec_code_def) + p.file_bytes + p.name_bytes + p.table_bytes);
}

void gpurec_code_write(const void *code, uint64_t key, uint32_t bytes, unsigned char *to)
{
	const struct layout *l = gpurec_interpreter.layout;
	struct parts p;
	parts(l, code, bytes, &p);
	gpurec_code_def d = {
		.key = key,
		.first_line = FIELD(int32_t, code, l->co_firstline),
		.file_bytes = (uint32_t)p.file_bytes,
		.name_bytes = (uint32_t)p.name_bytes,
		.table_bytes = (uint32_t)p.table_bytes,
		.table_total = (uint32_t)p.table_total,
		.file_unit = (uint8_t)p.file_unit,
		.name_unit = (uint8_t)p.name_unit,
		.python = l->version & ~FREE_THREADED,
	};
	memcpy(to, &d, sizeof d);
	to += sizeof d;
	memcpy(to, p.file, p.file_bytes);
	memcpy(to += p.file_bytes, p.name, p.name_bytes);
	memcpy(to += p.name_bytes, p.table, p.table_bytes);
}
