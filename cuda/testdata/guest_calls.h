/* guest_calls.h - guest.c's words for the hook's public functions, its answers, and
 * calls that only some programs make. */
/* ---- the public functions ---------------------------------------------------------------- */

static void api(void)
{
	CHECK(active_() == 1);
	uint64_t a = scope_begin_("a", "dom"), b = scope_begin_("b", NULL);
	CHECK(a != 0 && b != 0 && a != b);
	scope_reset_(a);
	scope_report_(a, "sub");
	scope_end_(a);
	scope_end_(b);
	scope_end_(0);
	pool_enter_();
	pair();
	pool_alloc_(202, 0, 0x1000, 7, 500, 512, 1234, 0, 0, 0); /* a pool's in a pool's */
	pool_leave_();
	pool_alloc_(202, 0, 0x2000, 8, 1000, 1024, 99, 0, 0, 0);
	pool_alloc_(202, 0, 0, 0, 1000, 1024, -1, 2, 0, 0);
	pool_alloc_(203, 0, 0x2000, 0, 1024, 1024, -1, 0, 0, 0);
	pool_free_(202, 0, 0x2000, 8, 0);
	pool_leave_(); /* once too often */
	char big[6000];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	mark_(big);
	mark_(NULL);
}

/* ---- questions: the receiver answers them, or does not even read ------------------------- */

static int asked(uint64_t id, int how, const char *sub, gpurec_measures *m)
{
	int before = descriptors();
	errno = 4711;
	int outcome = scope_ask_(id, how, sub, m);
	CHECK(errno == 4711 && descriptors() == before);
	return outcome;
}

static void ask(void)
{
	gpurec_measures m;
	uint64_t id = scope_begin_on_(NULL, NULL, 0);
	CHECK(asked(id, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_ANSWERED && m.max[0] == 1 && m.max[1] == 2 && m.max[2] == 3 && m.known == 7);
	pair();
	CHECK(asked(id, GPUREC_ASK_REPORT, "sub", &m) == GPUREC_ANSWERED);
	CHECK(asked(id, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_ANSWERED);
	CHECK(asked(id, GPUREC_ASK_END, NULL, &m) == GPUREC_ANSWERED);
	CHECK(asked(0, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_NOT_RECORDED);
	CHECK(asked(id, 3, NULL, &m) == GPUREC_UNKNOWN_SCOPE);
}

static uint64_t handled;
static volatile pid_t child = -1;

/* While this thread waits: events and a question of its own, and a child that
 * returns into the wait. */
static void while_waiting(int signal)
{
	gpurec_measures m;
	(void)signal;
	pair();
	handled = (uint64_t)scope_ask_(scope_begin_("h", NULL), GPUREC_ASK_ONLY, NULL, &m);
	child = fork();
	if (child == 0)
		mark_("child"); /* its first event gives its parent's lanes back */
}

/* No lane is to be had for a while, and only questions are asked then. */
static void ask_without(void)
{
	struct rlimit l;
	gpurec_measures m;
	CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0);
	rlim_t was = l.rlim_cur;
	l.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(asked(7, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_NO_ROOM);
	CHECK(asked(7, GPUREC_ASK_END, NULL, &m) == GPUREC_NO_ROOM); /* an event: lost */
	l.rlim_cur = was;
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
	usleep(100000); /* until a birth is tried again */
	pair();
}

static void ask_in_vain(void)
{
	gpurec_measures m;
	uint64_t id = scope_begin_("a", NULL);
	struct sigaction act = {.sa_handler = while_waiting};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	ualarm(20000, 0);
	int outcome = asked(id, GPUREC_ASK_ONLY, NULL, &m), status;
	if (child == 0)
		_exit(outcome == GPUREC_NO_RECORDER ? 0 : 1);
	CHECK(child > 0 && outcome == GPUREC_TOO_LATE && handled == GPUREC_TOO_LATE);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	struct rusage before, after;
	CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
	for (int i = 0; i < 100; i++) /* nobody has looked since: not waited for again */
		CHECK(asked(id, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_TOO_LATE);
	CHECK(getrusage(RUSAGE_THREAD, &after) == 0 && after.ru_nvcsw - before.ru_nvcsw < 50);
}

static void inert(void)
{
	gpurec_measures m;
	CHECK(active_() == 0 && scope_begin_("a", NULL) == 0);
	CHECK(asked(1, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_NOT_RECORDED);
	mark_("x");
	pair();
}

static void unhooked(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *q;
	int status;
	for (int i = 0; i < 3; i++) {
		CHECK(dlsym(lib, "cuMemAllocUnheard") != NULL);
		CHECK(dlsym(lib, "cuMemAllocMissing") == NULL); /* not there: nothing to say */
		CHECK(dlsym(lib, "cuMemGetAllocationGranularity") != NULL); /* takes nothing */
		proc("cuMemAllocUnheard", &q, 13000, 0, &status);
	}
}

/* ---- calls that only some programs make -------------------------------------------------- */

static void *need(const char *name)
{
	return sym(dlopen("libcuda.so.1", RTLD_NOW), name);
}
#define F(type, name) ((type)need(name))

/* What is asked of a stream that is being captured is marked; the capture stays valid. */
static void capture(void)
{
	void *stream, *graph;
	ptr p, q;
	CHECK(F(int (*)(void **, unsigned), "cuStreamCreate")(&stream, 0) == 0);
	CHECK(F(int (*)(void *, int), "cuStreamBeginCapture_v2")(stream, 0) == 0);
	CHECK(F(int (*)(ptr *, size_t, void *), "cuMemAllocAsync")(&p, 1 << 20, stream) == 0);
	CHECK(F(int (*)(ptr, void *), "cuMemFreeAsync")(p, stream) == 0);
	CHECK(F(int (*)(void *, void **), "cuStreamEndCapture")(stream, &graph) == 0);
	CHECK(F(int (*)(ptr *, size_t, void *), "cuMemAllocAsync")(&q, 2 << 20, stream) == 0);
	CHECK(F(int (*)(ptr, void *), "cuMemFreeAsync")(q, stream) == 0);
}

/* Memory of the host through the functions for virtual memory; then of a device that is not current. */
static void locations(void)
{
	struct {
		int type, handles, location, id;
		uint64_t more[2];
	} prop = {1, 0, 2, 0, {0, 0}};
	uint64_t handle;
	int (*create)(uint64_t *, size_t, const void *, uint64_t) = F(int (*)(uint64_t *, size_t, const void *, uint64_t), "cuMemCreate");
	int (*release)(uint64_t) = F(int (*)(uint64_t), "cuMemRelease");
	if (create(&handle, 2 << 20, &prop, 0) == 0) /* a driver may not offer it */
		CHECK(release(handle) == 0);
	prop.location = 1;
	prop.id = 1;
	CHECK(create(&handle, 2 << 20, &prop, 0) == 0 && release(handle) == 0);
	CHECK(release(handle) != 0);
}

/* Contexts: one of two references given up is no reset, the last one is. */
static void contexts(void)
{
	int (*retain)(void **, int) = cuDevicePrimaryCtxRetain, (*release)(int) = F(int (*)(int), "cuDevicePrimaryCtxRelease_v2");
	void *other;
	ptr p;
	CHECK(retain(&other, 1) == 0 && retain(&other, 1) == 0 && release(1) == 0);
	mark_("one reference left");
	CHECK(release(1) == 0);
	CHECK(F(int (*)(void **, unsigned, int), "cuCtxCreate_v2")(&other, 0, 1) == 0);
	CHECK(cuMemAlloc(&p, 4096) == 0);
	CHECK(F(int (*)(void *), "cuCtxDestroy_v2")(other) == 0);
	CHECK(cuCtxSetCurrent(context) == 0);
	CHECK(F(int (*)(int), "cuDevicePrimaryCtxReset_v2")(0) == 0);
}

/* Through cuGetProcAddress alone. */
static void by_proc_of(int version)
{
	int (*alloc)(ptr *, size_t), (*release)(ptr), status;
	void *a, *f;
	ptr p;
	CHECK(proc("cuMemAlloc", &a, version, 0, &status) == 0 && proc("cuMemFree", &f, version, 0, &status) == 0);
	memcpy(&alloc, &a, sizeof a);
	memcpy(&release, &f, sizeof f);
	CHECK(alloc(&p, 4096) == 0 && release(p) == 0);
}

static void by_proc(void) { by_proc_of(12000); }

/* Of a CUDA to come: what it takes nobody knows. */
static void by_newer_proc(void) { by_proc_of(99000); }

static void never_returns(void)
{
	ptr p;
	mark_("before");
	cuMemAlloc(&p, 4711);
}

/* The same text before and after a line on stdin. */
static void twice(void)
{
	mark_("twice");
	CHECK(getchar() != EOF);
	mark_("twice");
}

/* Says that it waits, inside a scope, until it is killed. */
static void hang(void)
{
	pair();
	mark_("hanging");
	pause();
}
