/* CuPy's pool: what CuPy tells a MemoryHook, in the words of gpurec.h.
 *
 * cuda/python/gpurec/_cupy.py registers these functions as the callbacks of a
 * hook of CuPy's, so they run inside the allocation, on its thread, with the
 * interpreter's lock held. CuPy gives no status: an address or an id of 0 says
 * that it failed, and the driver's own events say why.
 *
 * They come twice: as builtin functions of CPython's, and as plain C for ctypes,
 * which costs four times as much, where CPython's own functions are not found
 * (an interpreter in a library out of the global scope).
 *
 * Built on the public API alone. */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "gpurec.h"
#include "wire.h"

#define EXPORT __attribute__((visibility("default")))
#define OPEN_MAX 4 /* a pool over a pool is 2 */
#define STATUS_UNKNOWN (-1)

/* The mallocs this thread is in. CuPy calls no end for a malloc at whose begin
 * another hook raised, so an entry can be left behind. It is known by where on
 * the stack it was made: a malloc inside another is always further down. */
static __thread struct {
	uint32_t depth;
	struct {
		const char *frame;
		int64_t since;
	} open[OPEN_MAX];
} cupy __attribute__((tls_model("initial-exec")));

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

EXPORT void gpurec_cupy_malloc_begin(int32_t device, int64_t size, int64_t rounded, int32_t skip)
{
	const char *here = __builtin_frame_address(0);
	(void)device, (void)size, (void)rounded, (void)skip;

	while (cupy.depth && cupy.depth <= OPEN_MAX && cupy.open[cupy.depth - 1].frame <= here) {
		cupy.depth--;
		gpurec_pool_leave();
	}
	if (cupy.depth < OPEN_MAX) {
		cupy.open[cupy.depth].frame = here;
		cupy.open[cupy.depth].since = now();
	}
	cupy.depth++;
	gpurec_pool_enter();
}

/* Leaves the innermost malloc: its duration, and whether it was inside another. */
static int64_t leave(uint32_t *flags)
{
	int64_t duration = -1;

	*flags = 0;
	if (cupy.depth == 0)
		return -1; /* the hook was registered inside this malloc */
	cupy.depth--;
	if (cupy.depth < OPEN_MAX)
		duration = now() - cupy.open[cupy.depth].since;
	if (cupy.depth)
		*flags = GPUREC_FLAG_NESTED;
	gpurec_pool_leave();
	return duration;
}

EXPORT void gpurec_cupy_malloc(int32_t device, int64_t size, int64_t rounded, uint64_t address, uint64_t object,
                                   int32_t skip)
{
	uint32_t flags;
	int64_t duration = leave(&flags);
	/* A malloc of 0 bytes that succeeded has an id and no address. */
	gpurec_pool_alloc(GPUREC_API_CUPY, device, address, object, size, rounded, duration, object ? 0 : STATUS_UNKNOWN,
	                  flags, skip);
}

EXPORT void gpurec_cupy_alloc(int32_t device, int64_t rounded, uint64_t address, int32_t skip)
{
	gpurec_pool_alloc(GPUREC_API_CUPY_ALLOC, device, address, 0, rounded, rounded, -1, address ? 0 : STATUS_UNKNOWN,
	                  GPUREC_FLAG_ECHO, skip);
}

EXPORT void gpurec_cupy_free(int32_t device, int64_t rounded, uint64_t address, uint64_t object, int32_t skip)
{
	(void)rounded; /* the allocation's own, in replay */
	gpurec_pool_free(GPUREC_API_CUPY, device, address, object, skip);
}

/* ---- as builtin functions ------------------------------------------------------
 *
 * What is used of CPython is in its stable ABI, and equal in 3.9 to 3.14. It is
 * looked up when _cupy.py asks, so that the hook links nothing of Python's. No
 * argument that CuPy passes makes them raise: what is not known is passed over,
 * and a callback that lacks what it needs says so once and records no more. */

typedef struct object PyObject;
typedef PyObject *callback(PyObject *self, PyObject *const *args, ssize_t n, PyObject *names);

struct PyMethodDef {
	const char *name;
	callback *call;
	int flags;
	const char *doc;
};
#define METH_KEYWORDS 0x02
#define METH_FASTCALL 0x80

#define CPYTHON(DO)                                                                              \
	DO(PyObject *, PyCFunction_NewEx, (struct PyMethodDef *, PyObject *self, PyObject *module)) \
	DO(int, PyObject_SetAttrString, (PyObject *, const char *, PyObject *))                     \
	DO(unsigned long long, PyLong_AsUnsignedLongLongMask, (PyObject *))                         \
	DO(ssize_t, PyTuple_Size, (PyObject *))                                                     \
	DO(PyObject *, PyTuple_GetItem, (PyObject *, ssize_t))                                      \
	DO(PyObject *, PyUnicode_InternFromString, (const char *))                                  \
	DO(int, PyUnicode_CompareWithASCIIString, (PyObject *, const char *))                       \
	DO(PyObject *, PyErr_Occurred, (void))                                                      \
	DO(void, PyErr_Clear, (void))                                                               \
	DO(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **))        \
	DO(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *))         \
	DO(PyObject *, PyDict_GetItemString, (PyObject *, const char *))                            \
	DO(int, PyDict_SetItemString, (PyObject *, const char *, PyObject *))                       \
	DO(PyObject *, PyCapsule_New, (void *, const char *, void (*)(PyObject *)))                 \
	DO(int, PyCapsule_IsValid, (PyObject *, const char *))                                      \
	DO(void *, PyCapsule_GetPointer, (PyObject *, const char *))                                \
	DO(int, PySequence_Contains, (PyObject *, PyObject *))                                      \
	DO(int, PyObject_SetItem, (PyObject *, PyObject *, PyObject *))                             \
	DO(void, Py_IncRef, (PyObject *))                                                           \
	DO(void, Py_DecRef, (PyObject *))

static struct {
#define DO(result, name, arguments) result(*name) arguments;
	CPYTHON(DO)
#undef DO
	PyObject *none;
} py;

static bool find_cpython(void)
{
#define DO(result, name, arguments)                   \
	{                                             \
		void *p = dlsym(RTLD_DEFAULT, #name); \
		if (p == NULL)                        \
			return false;                 \
		memcpy(&py.name, &p, sizeof p);       \
	}
	CPYTHON(DO)
#undef DO
	py.none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
	return py.none != NULL;
}

enum { DEVICE_ID, SIZE, MEM_SIZE, MEM_PTR, PMEM_ID, WORDS };

static struct {
	const char *text;
	PyObject *interned; /* as the names of a call nearly always are, so that addresses can be compared */
} words[WORDS] = {{"device_id", NULL}, {"size", NULL}, {"mem_size", NULL}, {"mem_ptr", NULL}, {"pmem_id", NULL}};

/* What a callback needs, in CuPy's order. */
struct needs {
	const char *callback;
	unsigned count;
	uint8_t word[WORDS];
	bool refused;
};

/* Where a call has the argument of this name; -1: nowhere. */
static ssize_t position(PyObject *names, ssize_t given, unsigned word, ssize_t guess)
{
	if (guess < given && py.PyTuple_GetItem(names, guess) == words[word].interned)
		return guess;
	for (ssize_t i = 0; i < given; i++)
		if (py.PyUnicode_CompareWithASCIIString(py.PyTuple_GetItem(names, i), words[word].text) == 0)
			return i;
	return -1;
}

static bool refuse(struct needs *need, unsigned word, const char *why)
{
	char text[160];
	snprintf(text, sizeof text, "gpurec: CuPy's %s is not recorded: %s %s", need->callback, words[word].text, why);
	__atomic_store_n(&need->refused, true, __ATOMIC_RELAXED);
	gpurec_mark(text);
	return false;
}

/* The arguments that are needed, each in its word's place. */
static bool take(struct needs *need, PyObject *const *args, ssize_t n, PyObject *names, uint64_t value[WORDS])
{
	if (__atomic_load_n(&need->refused, __ATOMIC_RELAXED))
		return false;
	ssize_t given = names ? py.PyTuple_Size(names) : 0;
	for (unsigned i = 0; i < need->count; i++) {
		unsigned word = need->word[i];
		ssize_t at = position(names, given, word, i);
		if (at < 0)
			return refuse(need, word, "is missing");
		value[word] = py.PyLong_AsUnsignedLongLongMask(args[n + at]);
		if (value[word] == UINT64_MAX && py.PyErr_Occurred()) {
			py.PyErr_Clear();
			return refuse(need, word, "is no integer");
		}
	}
	return true;
}

static PyObject *none(void)
{
	py.Py_IncRef(py.none);
	return py.none;
}

#define CALLBACK(name) static PyObject *name(PyObject *self, PyObject *const *args, ssize_t n, PyObject *names)
#define UNUSED (void)self, (void)args, (void)n, (void)names

CALLBACK(malloc_preprocess)
{
	UNUSED;
	gpurec_cupy_malloc_begin(-1, 0, 0, 0);
	return none();
}

CALLBACK(malloc_postprocess)
{
	static struct needs need = {"malloc_postprocess", 5, {DEVICE_ID, SIZE, MEM_SIZE, MEM_PTR, PMEM_ID}, false};
	uint64_t v[WORDS];
	uint32_t flags;
	(void)self;
	if (take(&need, args, n, names, v))
		gpurec_cupy_malloc((int32_t)v[DEVICE_ID], (int64_t)v[SIZE], (int64_t)v[MEM_SIZE], v[MEM_PTR], v[PMEM_ID], 0);
	else
		leave(&flags);
	return none();
}

CALLBACK(alloc_postprocess)
{
	static struct needs need = {"alloc_postprocess", 3, {DEVICE_ID, MEM_SIZE, MEM_PTR}, false};
	uint64_t v[WORDS];
	(void)self;
	if (take(&need, args, n, names, v))
		gpurec_cupy_alloc((int32_t)v[DEVICE_ID], (int64_t)v[MEM_SIZE], v[MEM_PTR], 0);
	return none();
}

CALLBACK(free_preprocess)
{
	static struct needs need = {"free_preprocess", 4, {DEVICE_ID, MEM_SIZE, MEM_PTR, PMEM_ID}, false};
	uint64_t v[WORDS];
	(void)self;
	if (take(&need, args, n, names, v))
		gpurec_cupy_free((int32_t)v[DEVICE_ID], (int64_t)v[MEM_SIZE], v[MEM_PTR], v[PMEM_ID], 0);
	return none();
}

/* These say nothing that the others don't; CuPy's own would make a dict to say it. */
CALLBACK(nothing)
{
	UNUSED;
	return none();
}

static struct PyMethodDef methods[] = {
	{"malloc_preprocess", malloc_preprocess, METH_FASTCALL | METH_KEYWORDS, NULL},
	{"malloc_postprocess", malloc_postprocess, METH_FASTCALL | METH_KEYWORDS, NULL},
	{"alloc_preprocess", nothing, METH_FASTCALL | METH_KEYWORDS, NULL},
	{"alloc_postprocess", alloc_postprocess, METH_FASTCALL | METH_KEYWORDS, NULL},
	{"free_preprocess", free_preprocess, METH_FASTCALL | METH_KEYWORDS, NULL},
	{"free_postprocess", nothing, METH_FASTCALL | METH_KEYWORDS, NULL},
};

/* Puts the callbacks into a subclass of CuPy's MemoryHook. A builtin function is
 * no descriptor: looked up on an instance it comes without self, and without a
 * bound method made for it. Called with the interpreter's lock; 0: this cannot
 * be done here, and no exception is left. */
EXPORT int gpurec_cupy_methods(PyObject *cls)
{
	if (!find_cpython())
		return 0;
	for (unsigned i = 0; i < WORDS; i++)
		if (words[i].interned == NULL && (words[i].interned = py.PyUnicode_InternFromString(words[i].text)) == NULL) {
			py.PyErr_Clear();
			return 0;
		}
	for (unsigned i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		PyObject *f = py.PyCFunction_NewEx(&methods[i], NULL, NULL);
		int set = f ? py.PyObject_SetAttrString(cls, methods[i].name, f) : -1;
		if (f)
			py.Py_DecRef(f);
		if (set != 0) {
			py.PyErr_Clear();
			return 0;
		}
	}
	return 1;
}

/* ---- in every thread -----------------------------------------------------------
 *
 * CuPy's registry is a thread's own, and before each malloc and free CuPy asks by
 * a C function whether this thread has hooks. Its module memory takes that
 * function's address out of a table of module memory_hook, __pyx_capi__, when it
 * is first imported. Put there before that, ours registers the hook in whichever
 * thread asks for the first time: also one that ran before CuPy was imported, and
 * one that was made in C. No bytecode runs in it, so no Ctrl-C can be raised there. */

#define HAS_HOOKS "int (int __pyx_skip_dispatch)"
#define GET_HOOKS "PyObject *(int __pyx_skip_dispatch)"

static struct {
	int (*has)(int);
	PyObject *(*get)(int);
	PyObject *name, *hook;
} registry;

static __thread bool asked __attribute__((tls_model("initial-exec")));

static int has_hooks(int skip_dispatch)
{
	if (!asked) {
		PyObject *type, *value, *traceback;
		asked = true;
		py.PyErr_Fetch(&type, &value, &traceback); /* a free may come while an exception is on its way */
		PyObject *hooks = registry.get(0);
		if (hooks) {
			if (py.PySequence_Contains(hooks, registry.name) == 0)
				py.PyObject_SetItem(hooks, registry.name, registry.hook);
			py.Py_DecRef(hooks);
		}
		py.PyErr_Clear();
		py.PyErr_Restore(type, value, traceback);
	}
	return registry.has(skip_dispatch);
}

/* Registers hook under name in each thread that uses CuPy's pool, if table is the
 * __pyx_capi__ of a memory_hook of the kind that is known. Called with the
 * interpreter's lock, before cupy.cuda.memory is imported; 0: this cannot be done. */
EXPORT int gpurec_cupy_every_thread(PyObject *table, PyObject *name, PyObject *hook)
{
	if (registry.hook || !find_cpython())
		return 0;
	PyObject *has = py.PyDict_GetItemString(table, "_has_memory_hooks");
	PyObject *get = py.PyDict_GetItemString(table, "get_memory_hooks");
	if (!has || !get || !py.PyCapsule_IsValid(has, HAS_HOOKS) || !py.PyCapsule_IsValid(get, GET_HOOKS))
		return 0;
	void *p = py.PyCapsule_GetPointer(has, HAS_HOOKS), *q = py.PyCapsule_GetPointer(get, GET_HOOKS);
	memcpy(&registry.has, &p, sizeof p);
	memcpy(&registry.get, &q, sizeof q);
	int (*ours)(int) = has_hooks;
	memcpy(&p, &ours, sizeof p);
	PyObject *capsule = py.PyCapsule_New(p, HAS_HOOKS, NULL);
	if (!capsule || py.PyDict_SetItemString(table, "_has_memory_hooks", capsule) != 0) {
		if (capsule)
			py.Py_DecRef(capsule);
		py.PyErr_Clear();
		return 0;
	}
	py.Py_DecRef(capsule);
	py.Py_IncRef(registry.name = name); /* for good: the table's readers never let go either */
	py.Py_IncRef(registry.hook = hook);
	return 1;
}
