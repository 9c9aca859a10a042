/*
 * walk.c - the calling thread's Python frames, as an event's hash and, where the
 * recorder does not know that one yet, one by one.
 *
 * Why reading them as raw memory is sound: the thread is inside a C call made from
 * its innermost Python frame, so its chain of frames stands still until that call
 * returns, whether or not the thread holds the interpreter's lock; frames own
 * their code objects; and what is read of a code object never changes. Taking the
 * lock instead would deadlock under PyTorch's allocator lock.
 */
#include "python.h"

/* ---- hashing ------------------------------------------------------------------ */

/* Two numbers for each pair of words, from a fixed seed: every thread's hashes agree. */
uint64_t gpurec_noise[2 * MOST_PAIRS * GPUREC_MAX_FRAMES];

void gpurec_make_noise(void)
{
	static bool made;
	uint64_t s = 0;
	if (__atomic_load_n(&made, __ATOMIC_ACQUIRE))
		return;
	for (unsigned i = 0; i < sizeof gpurec_noise / sizeof *gpurec_noise; i++) {
		uint64_t z = s += 0x9e3779b97f4a7c15ull; /* splitmix64 */
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		__atomic_store_n(&gpurec_noise[i], z ^ z >> 31, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&made, true, __ATOMIC_RELEASE);
}

/* The last n bytes before end, at most 16, as numbers. What stands before them is
 * their object's head and can be read too. */
struct words {
	uint64_t a, b;
};

INLINE uint64_t word(const char *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof x);
	return x;
}

INLINE struct words before(const char *end, uint64_t n)
{
	if (n >= 16)
		return (struct words){word(end - 8), word(end - 16)};
	if (n > 8)
		return (struct words){word(end - 8), word(end - 16) >> (128 - 8 * n)};
	return (struct words){n > 0 ? word(end - 8) >> (64 - 8 * n) : 0, 0};
}

/* The interpreter's own hash of a name, which it keeps for nearly all (what it
 * compares names by); ours for the others, such as those of frozen modules. */
INLINE uint64_t name_hash(const struct layout *l, const char *name)
{
	int64_t kept = FIELD(int64_t, name, STR_HASH + l->head);
	if (likely(kept != -1))
		return (uint64_t)kept;
	uint64_t n;
	unsigned unit;
	const char *p = str_data(l, name, &n, &unit);
	return gpurec_text_hash(p, n, unit);
}

/*
 * What names a code object of 3.9 to 3.11. Its address alone is reused once it is
 * freed (exec, lambdas, compiled graphs), and so are those of its strings:
 * trusting them was wrong for up to 99.99 % of reused objects when tried. The
 * content that tells them apart is summed (0 of 300,000 wrong): the name, length
 * and last 16 bytes of the file name, the first line, length and first 16 bytes
 * of the line table; and with them the place in it, if it is a frame's.
 */
INLINE gpurec_sum content(const struct layout *l, const char *code, uint32_t at, const uint64_t *eight)
{
	uint64_t n;
	unsigned unit;
	const char *end = str_data(l, POINTER(code, l->co_filename), &n, &unit);
	end += n;
	const char *table = POINTER(code, l->co_linetable);
	uint64_t size = FIELD(uint64_t, table, BYTES_SIZE + l->head), some = size < 16 ? size : 16;
	struct words file = before(end, n), first = before(table + BYTES_DATA + l->head + some, some);

	gpurec_sum sum = gpurec_product(eight, (uintptr_t)code, name_hash(l, POINTER(code, l->co_name)));
	sum += gpurec_product(eight + 2, file.a, file.b);
	sum += gpurec_product(eight + 4, first.a, first.b);
	sum += gpurec_product(eight + 6, n << 32 | FIELD(uint32_t, code, l->co_firstline), size << 32 | at);
	return sum;
}

static __attribute__((noinline)) uint64_t content_key(const struct layout *l, const char *code) { return gpurec_folded(content(l, code, 0, gpurec_noise), 0); }

/* From 3.12 on a code object has a version of its own in its interpreter. 0: the
 * counter ran over, or began anew, as after a Py_Finalize (of 60 frames of a third
 * interpreter 13 were the first one's). */
INLINE uint64_t version(const struct layout *l, const char *code, bool anew)
{
	return l->co_version >= 0 && likely(!anew) ? FIELD(uint32_t, code, l->co_version) : 0;
}

static uint64_t code_key(const struct layout *l, const char *code, uint64_t interpreter)
{
	uint64_t v = version(l, code, gpurec_interpreter.ended);
	return v ? gpurec_mix(gpurec_mix(interpreter + 1, (uintptr_t)code), v) : content_key(l, code);
}

/* A frame's part of its stack's sum. */
INLINE gpurec_sum part(const struct layout *l, const char *code, uint32_t at, bool anew, const uint64_t *its)
{
	if (l->co_version < 0)
		return content(l, code, at, its);
	uint64_t v = version(l, code, anew);
	return gpurec_product(its, likely(v != 0) ? (uintptr_t)code : content_key(l, code), v << 32 | at);
}

/* The pairs of words in that. */
INLINE unsigned pairs(const struct layout *l) { return l->co_version < 0 ? MOST_PAIRS : 1; }

/* ---- walking ------------------------------------------------------------------ */

/*
 * Python does not show a frame that is still being set up: one that has not come
 * to its RESUME, at co_firsttraceable. A compiler puts before it an instruction a
 * cell variable and three others, each of at most four units with its prefixes,
 * so that what is farther on is shown. The number of cells lies in the cache line
 * that the version is read from, the place of the RESUME in another one, which a
 * cold walk is spared.
 *
 * Code that no compiler made may have a later RESUME, or none: then a hash counts
 * a frame that is not shown. It is left out where the frames are defined, always,
 * so that one hash still stands for one list of frames.
 */
enum { PREFIX_BYTES = 24, CELL_BYTES = 8 };

INLINE bool resumed(const struct layout *l, const char *f, const char *code, int32_t at)
{
	return l->co_firsttraceable < 0 || FIELD(uint8_t, f, l->f_owner) == OWNER_GENERATOR || at >= 2 * FIELD(int32_t, code, l->co_firsttraceable);
}

INLINE bool far_on(const struct layout *l, const char *code, int32_t at)
{
	return l->co_cells >= 0 && at >= PREFIX_BYTES + CELL_BYTES * FIELD(int32_t, code, l->co_cells);
}

/* Whether a frame counts; then its code object and where in it. */
INLINE bool counts(const struct layout *l, const char *f, const char **code, int32_t *at)
{
	const char *c = *code = (const char *)(FIELD(uintptr_t, f, l->f_code) & ~(uintptr_t)l->f_code_tag);
	if (l->f_owner >= 0 && FIELD(uint8_t, f, l->f_owner) >= OWNER_C)
		return false; /* the interpreter's own */
	if (minor(l) >= 13 && (c == NULL || POINTER(c, OB_TYPE + l->head) != gpurec_interpreter.code_type))
		return false; /* of no Python function; before 3.13 a frame can have nothing else */
	*at = l->instruction_unit ? FIELD(int32_t, f, l->f_instruction) * l->instruction_unit
	                          : (int32_t)(POINTER(f, l->f_instruction) - (c + l->co_bytecode));
	return likely(far_on(l, c, *at)) || resumed(l, f, c, *at);
}

/*
 * Whether a thread is the one that ends the interpreter, which first takes the
 * states of all others away. These may be in C for long yet, as a daemon is that
 * trains, and go on finding a state that has been freed. What is left is a walk of
 * theirs that began before the end and lasts until after that, a microsecond.
 */
static __attribute__((noinline)) bool finalises(const char *ts)
{
	void *main = gpurec_interpreter.main();
	return main != NULL && gpurec_interpreter.threads(main) == ts;
}

/*
 * The innermost frame of this thread; NULL: there is none. Where code objects are
 * told apart by their versions, also which interpreter runs it: each has a counter
 * of its own, and what comes after one that has ended has its addresses too (8
 * interpreters one after the other made a wrong frame). Before 3.12 a thread that
 * runs several shows the first one's frames.
 */
INLINE const char *innermost(const struct layout *l, uint64_t *interpreter)
{
	const char *ts = gpurec_interpreter.thread_state();
	*interpreter = 0;
	if (ts == NULL || (unlikely(!gpurec_interpreter.ready()) && !finalises(ts)))
		return NULL;
	const char *state = POINTER(ts, TS_INTERPRETER);
	if (l->co_version >= 0 && unlikely(state != gpurec_interpreter.first) && state != NULL)
		*interpreter = (uint64_t)gpurec_interpreter.number((void *)state);
	const char *f = POINTER(ts, l->ts_frame);
	return l->cframe_frame >= 0 && f != NULL ? POINTER(f, l->cframe_frame) : f;
}

/*
 * How many frames count from f on: those that a stack that is deeper than events
 * are asked for drops, whose number is a part of what it is. A chain is followed
 * so far at most, which pure Python recursion comes to in a program that raised
 * its limit for it.
 */
enum { WALK_MOST = 1 << 16 };

static __attribute__((noinline)) uint64_t rest(const struct layout *l, const char *f, unsigned left)
{
	const char *code;
	int32_t at;
	uint64_t n = 0;
	for (; f != NULL && left > 0; f = POINTER(f, l->f_previous), left--)
		n += counts(l, f, &code, &at);
	return n;
}

/*
 * The hash of the calling thread's stack. Every event that has one walks it, so
 * this writes nothing and each layout has a copy of its own, in which the offsets
 * are constants.
 */
INLINE uint64_t walk_hash(const struct layout *l, unsigned max, int skip, bool anew)
{
	uint64_t interpreter;
	const char *code, *f = innermost(l, &interpreter);
	int32_t at;
	for (; unlikely(skip > 0) && f != NULL; f = POINTER(f, l->f_previous))
		skip -= counts(l, f, &code, &at);
	if (f == NULL)
		return 0;

	gpurec_sum sum = 0;
	const uint64_t *its = gpurec_noise, *end = gpurec_noise + 2 * pairs(l) * max;
	unsigned left = WALK_MOST;
	do {
		if (likely(counts(l, f, &code, &at))) {
			if (its == end)
				break;
			sum += part(l, code, (uint32_t)at, anew, its);
			its += 2 * pairs(l);
		}
		f = POINTER(f, l->f_previous);
	} while (f != NULL && --left > 0);
	if (its == gpurec_noise)
		return 0;
	uint64_t h = gpurec_folded(sum + interpreter, (uint64_t)(its - gpurec_noise) | (unlikely(f != NULL) ? rest(l, f, left) << 32 : 0));
	return h ? h : 1;
}

typedef uint64_t walk_fn(unsigned max, int skip);

/* Of any layout, where versions do not tell. */
static __attribute__((noinline)) uint64_t walk_anew(unsigned max, int skip) { return walk_hash(gpurec_interpreter.layout, max, skip, true); }

#define WALK(i) \
	static uint64_t walk_##i(unsigned max, int skip) { return unlikely(gpurec_interpreter.ended) ? walk_anew(max, skip) : walk_hash(&layouts[i], max, skip, false); }
WALK(0) WALK(1) WALK(2) WALK(3) WALK(4) WALK(5) WALK(6) WALK(7)
static walk_fn *const walks[] = {walk_0, walk_1, walk_2, walk_3, walk_4, walk_5, walk_6, walk_7};
_Static_assert(sizeof walks / sizeof walks[0] == sizeof layouts / sizeof layouts[0], "a walk for each layout");
static walk_fn *walk; /* NULL: no stacks */

void gpurec_walk_choose(uint16_t version)
{
	unsigned i = 0;
	while (layouts[i].version != version)
		i++;
	gpurec_make_noise();
	__atomic_store_n(&walk, walks[i], __ATOMIC_RELEASE);
}

uint64_t gpurec_python_hash(unsigned max, int skip)
{
	walk_fn *f = __atomic_load_n(&walk, __ATOMIC_ACQUIRE);
	return f ? f(max, skip) : 0;
}

void gpurec_python_walk(struct thread *t, unsigned max, int skip)
{
	const struct layout *l = gpurec_interpreter.layout;
	uint64_t interpreter;
	const char *code, *f = innermost(l, &interpreter);
	int32_t at;
	unsigned counted = 0, left = WALK_MOST;
	t->nframes = t->frames_dropped = 0;
	for (; f != NULL && left > 0; f = POINTER(f, l->f_previous), left--) {
		if (!counts(l, f, &code, &at) || skip-- > 0)
			continue;
		if (counted++ >= max) {
			t->frames_dropped += resumed(l, f, code, at);
			continue;
		}
		if (!resumed(l, f, code, at))
			continue;
		t->codes[t->nframes] = code;
		t->frames[t->nframes++] = (gpurec_frame){code_key(l, code, interpreter), at, GPUREC_FRAME_PYTHON};
	}
}

/*
 * Where the interpreter's loop was entered, on the C stack. From 3.12 on the loop
 * puts a frame of no Python function under the ones it runs, a local variable of
 * its own; in 3.10 and 3.11 it has a _PyCFrame, of which in 3.10 each runs one
 * frame. 3.9 leaves nothing there.
 */
int gpurec_python_entries(unsigned max, int skip, uintptr_t *place, unsigned *before)
{
	const struct layout *l = gpurec_interpreter.layout;
	uint64_t interpreter;
	const char *code, *f = innermost(l, &interpreter), *c = l->ts_cframe >= 0 && f != NULL ? POINTER(gpurec_interpreter.thread_state(), l->ts_cframe) : NULL;
	int32_t at;
	unsigned counted = 0, n = 0, left = WALK_MOST;
	if (minor(l) < 10)
		return -1;
	for (; f != NULL && left > 0 && n < max; f = POINTER(f, l->f_previous), left--) {
		if (counts(l, f, &code, &at) && skip-- <= 0)
			counted += resumed(l, f, code, at);
		bool first = minor(l) >= 12 ? FIELD(uint8_t, f, l->f_owner) >= OWNER_C : l->f_entry < 0 || FIELD(uint8_t, f, l->f_entry);
		if (!first)
			continue;
		place[n] = (uintptr_t)(c != NULL ? c : f);
		before[n++] = counted;
		if (c != NULL)
			c = POINTER(c, l->cframe_previous);
	}
	return (int)n;
}
