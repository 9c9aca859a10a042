/* A program that has Python in it, opened or linked (-DLINKED), and takes memory
 * there: once, in as many threads of its own, or in as many interpreters one after
 * the other, with the library left open or closed in between. It prints as
 * stacks.py does.
 *
 * Usage: embed once|threads|again|closed COUNT [LIBRARY local|global] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*initialize)(int);
static int (*finalize)(void), (*run)(const char *, void *), (*ensure)(void);
static void (*release)(int), *(*save)(void), (*restore)(void *);

#ifdef LINKED
void Py_InitializeEx(int);
int Py_FinalizeEx(void), PyRun_SimpleStringFlags(const char *, void *), PyGILState_Ensure(void);
void PyGILState_Release(int), *PyEval_SaveThread(void), PyEval_RestoreThread(void *);
void *PyCFunction_NewEx(void *, void *, void *), *PyImport_AddModule(const char *), *PyLong_FromLong(long);
long PyLong_AsLong(void *);
int PyObject_SetAttrString(void *, const char *, void *);
#define FIND(name) ((void *)name)
#else
#define FIND(name) dlsym(library, #name)
#endif

/* The driver's, and a function of Python's that takes memory of a size. What is
 * not in Python's library itself cannot be imported where that was opened locally. */
static int (*alloc)(uint64_t *, size_t), (*give)(uint64_t);
static void *(*function)(void *, void *, void *), *(*module)(const char *), *(*from_long)(long);
static long (*as_long)(void *);
static int (*set)(void *, const char *, void *);

static void take(size_t size)
{
	uint64_t p;
	if (alloc(&p, size) || give(p))
		exit(5);
}

static void *taken(void *self, void *size)
{
	(void)self;
	take((size_t)as_long(size));
	return from_long(0);
}

static struct {
	const char *name;
	void *(*call)(void *, void *);
	int flags;
	const char *doc;
} def = {"take", taken, 8, NULL}; /* METH_O */

static void open_driver(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit"), (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
	int (*current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
	*(void **)&alloc = dlsym(cuda, "cuMemAlloc_v2");
	*(void **)&give = dlsym(cuda, "cuMemFree_v2");
	if (init(0) || retain(&context, 0) || current(context))
		exit(5);
}

/* An event when there is no interpreter, or none any more, or it runs nothing. */
enum { WITHOUT = 1 };

static void find(void *library)
{
	(void)library;
	*(void **)&initialize = FIND(Py_InitializeEx);
	*(void **)&finalize = FIND(Py_FinalizeEx);
	*(void **)&run = FIND(PyRun_SimpleStringFlags);
	*(void **)&ensure = FIND(PyGILState_Ensure);
	*(void **)&release = FIND(PyGILState_Release);
	*(void **)&save = FIND(PyEval_SaveThread);
	*(void **)&restore = FIND(PyEval_RestoreThread);
	*(void **)&function = FIND(PyCFunction_NewEx);
	*(void **)&module = FIND(PyImport_AddModule);
	*(void **)&from_long = FIND(PyLong_FromLong);
	*(void **)&as_long = FIND(PyLong_AsLong);
	*(void **)&set = FIND(PyObject_SetAttrString);
}

static const char source[] =
	"import json, sys\n"
	"frames, stacks = [], {}\n"
	"def note(size):\n"
	"    frame, stack = sys._getframe(1), []\n"
	"    while frame is not None:\n"
	"        of = [frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_lasti]\n"
	"        frames.append(of)\n"
	"        stack.append(len(frames) - 1)\n"
	"        frame = frame.f_back\n"
	"    stacks[size] = stack[::-1]\n"
	"for i in range(20):\n"
	"    space = {'take': take, 'note': note, 'size': 1000 * number + i}\n"
	"    pad = '\\n' * (i * number % 9)\n"
	"    text = pad + 'def f():' + pad + '\\n for f in take, note: any(map(f, [size]))\\n' + pad + 'f()'\n"
	"    exec(compile(text, 'made %d' % number, 'exec'), space)\n"
	"print(json.dumps({'frames': frames, 'stacks': stacks, 'shapes': {'embedded': 20}}))\n"
	"sys.stdout.flush()\n";

static void stacks(int number)
{
	char text[sizeof source + 40];
	snprintf(text, sizeof text, "number = %d\n%s", number, source);
	if (set(module("__main__"), "take", function(&def, NULL, NULL)) != 0 || run(text, NULL) != 0)
		exit(4);
}

static void *thread(void *number)
{
	open_driver();
	take(WITHOUT);
	int state = ensure();
	stacks((int)(intptr_t)number);
	release(state);
	return NULL;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : 1;
	open_driver();
	for (int i = 1; i <= (strcmp(argv[1], "threads") == 0 ? 1 : count); i++) {
		void *library = NULL;
		if (argc > 4 && (library = dlopen(argv[3], RTLD_NOW | (strcmp(argv[4], "global") == 0 ? RTLD_GLOBAL : 0))) == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			return 3;
		}
		find(library);
		take(WITHOUT);
		initialize(0);
		take(WITHOUT);
		if (strcmp(argv[1], "threads") == 0) {
			void *state = save();
			for (int k = 1; k <= count; k++) {
				pthread_t t;
				pthread_create(&t, NULL, thread, (void *)(intptr_t)k);
				pthread_join(t, NULL);
			}
			restore(state);
		} else
			stacks(i);
		finalize();
		take(WITHOUT);
		if (strcmp(argv[1], "closed") == 0) {
			dlclose(library);
			take(WITHOUT);
			dlsym(NULL, "cuInit");
			take(WITHOUT);
		}
	}
	return 0;
}
