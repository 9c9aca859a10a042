/*
 * unwind.c - the walk over native frames.
 */
#include "unwind.h"

#include <sys/auxv.h>

/* ---- rules by address ------------------------------------------------------------- */

/*
 * One table for the process: sets of four, each a cache line, the first the
 * newest. Threads read and write it as they like. A place is two words, the rule
 * and the address mixed with the rule: one of which another thread has written
 * half fits no address.
 *
 * A rule names its module, and whoever has it reads that: the rule is stored with
 * release, after the module, and what a reader reads of the module depends on the
 * rule, an order that aarch64 keeps without an acquire.
 */
enum { SETS = 4096, WAYS = 4 };
struct remembered {
	uint64_t mixed, rule;
};
static struct remembered rules[SETS][WAYS] __attribute__((aligned(64)));

static inline uint64_t scramble(uint64_t rule) { return (rule ^ rule >> 32) * 0x9e3779b97f4a7c15ull; }

static inline struct remembered *set_of(uintptr_t at) { return rules[at * 0x9e3779b97f4a7c15ull >> 52]; }
_Static_assert(SETS == 1 << (64 - 52), "the hash's highest bits");

static inline uint64_t recall(uintptr_t at)
{
	const struct remembered *r = set_of(at);
	for (unsigned i = 0; i < WAYS; i++) {
		uint64_t rule = __atomic_load_n(&r[i].rule, __ATOMIC_RELAXED);
		if (likely((__atomic_load_n(&r[i].mixed, __ATOMIC_RELAXED) ^ scramble(rule)) == at))
			return rule;
	}
	return 0;
}

static void remember(uintptr_t at, uint64_t rule)
{
	struct remembered *r = set_of(at);
	unsigned i = 0;
	while (i < WAYS - 1 && (r[i].mixed ^ scramble(r[i].rule)) != at)
		i++;
	for (; i > 0; i--) {
		__atomic_store_n(&r[i].rule, r[i - 1].rule, __ATOMIC_RELEASE);
		__atomic_store_n(&r[i].mixed, r[i - 1].mixed, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&r[0].rule, rule, __ATOMIC_RELEASE);
	__atomic_store_n(&r[0].mixed, at ^ scramble(rule), __ATOMIC_RELAXED);
}

/* The rule of an address that is not remembered, or whose module may be another
 * one's by now. errno stays. */
static __attribute__((noinline)) uint64_t look_up(struct thread *t, uintptr_t at)
{
	int err = errno;
	unsigned number = gpurec_module_at(t, at);
	uint64_t rule = 0;
	if (number == ANONYMOUS)
		rule = RULE(RULE_CODE, ANONYMOUS, 0, 0, 0);
	else if (number != NO_MODULE)
		remember(at, rule = gpurec_rule(t, number, at));
	errno = err;
	return rule;
}

/* ---- the stack's memory -------------------------------------------------------------- */

struct frame {
	uintptr_t pc, sp, bp;
	uintptr_t kept; /* the return address, where a register has it; 0: none has */
	bool guessed;   /* sp is the least that it may be */
};

/*
 * From sp up to the stack's end everything can be read: that was tried, down to
 * the lowest stack pointer seen so far. (That all is mapped is not enough: a
 * coroutine's stack may lie right below the guard page of its thread's.) The
 * end is the thread's own: for the first thread the kernel's words above its
 * stack, for another its descriptor, which lies at the top. A stack that is too
 * far below either is another one.
 */
enum { PAGE = 4096, MOST_PAGES = 8192 };

static __attribute__((noinline)) void find_stack(struct thread *t, uintptr_t sp)
{
	uintptr_t ends[2] = {getauxval(AT_RANDOM), arch_thread()};
	int err = errno;
	for (unsigned i = 0; i < 2; i++) {
		uintptr_t end = ends[i] & ~(uintptr_t)7;
		bool same = t->stack_of == t->tid && t->stack_end == end;
		if (sp < end && end - sp <= (uintptr_t)MOST_PAGES * PAGE && gpurec_readable(t, sp, same && sp < t->stack_low ? t->stack_low : end)) {
			t->stack_low = sp & ~(uintptr_t)(PAGE - 1);
			t->stack_end = end;
			t->stack_of = t->tid;
			break;
		}
	}
	errno = err;
}

/* A word of a copy. */
static __attribute__((noinline)) bool load_copy(struct thread *t, uintptr_t at, uint64_t *word)
{
	uintptr_t page = at & ~(uintptr_t)(PAGE - 1);
	if (at & 7)
		return false;
	if (t->copy_of != page) {
		int err = errno;
		t->copy_of = gpurec_peek(t->copy, page, PAGE) ? page : 0;
		errno = err;
		if (t->copy_of == 0)
			return false;
	}
	memcpy(word, t->copy + (at - page), sizeof *word);
	return true;
}

struct stack {
	uintptr_t low, room;       /* of the thread's own, what is read directly; room is 0 where it runs on another */
	uintptr_t own;             /* all of it */
	bool holes;                /* in between are some */
	uintptr_t go_low, go_room; /* of the goroutine's, where the walk is on one: the part of it that lies in one page */
	uintptr_t go_from, go_to;  /* all of it that is in use */
};

/* A word of a stack that is not the thread's own, or not surely: then that is tried, some pages at once. */
static __attribute__((noinline)) bool load_other(struct thread *t, struct stack *s, uintptr_t at, uint64_t *word)
{
	enum { AHEAD = 16 * PAGE };
	if (at - s->low < s->own && !s->holes) {
		int err = errno;
		uintptr_t end = s->low + s->own + 7, to = (at & ~(uintptr_t)(PAGE - 1)) + AHEAD;
		s->holes = !gpurec_readable(t, s->low + s->room + 7, to < end ? to : end);
		errno = err;
		if (!s->holes) {
			s->room = (to < end ? to : end) - s->low - 7;
			memcpy(word, (const void *)at, sizeof *word);
			return true;
		}
	}
	if (at - s->go_from >= s->go_to - s->go_from)
		return load_copy(t, at, word);
	uintptr_t page = at & ~(uintptr_t)(PAGE - 1), from = page > s->go_from ? page : s->go_from;
	if ((at & 7) || !gpurec_go_page(page))
		return false;
	s->go_low = from;
	s->go_room = (page + PAGE < s->go_to ? page + PAGE : s->go_to) - from - 7;
	memcpy(word, (const void *)at, sizeof *word);
	return true;
}

__attribute__((no_sanitize("address"))) static inline bool load(struct thread *t, struct stack *s, uintptr_t at, uint64_t *word)
{
	if (likely(at - s->low < s->room) || at - s->go_low < s->go_room) {
		*word = *(const uint64_t *)at;
		return true;
	}
	return load_other(t, s, at, word);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* rt_sigreturn's: registers as the kernel saved them. */
static bool step_signal(struct thread *t, struct stack *s, struct frame *f)
{
	struct frame up = {0};
	if (!load(t, s, f->sp + UC_PC, &up.pc) || !load(t, s, f->sp + UC_SP, &up.sp) || !load(t, s, f->sp + UC_BP, &up.bp) ||
	    (RETURN_KEPT && !load(t, s, f->sp + UC_RETURN, &up.kept)))
		return false;
	*f = up;
	return true;
}

bool gpurec_after_call(uintptr_t at)
{
	unsigned char b[ARCH_CALL];
	int err = errno;
	bool there = at > sizeof b && gpurec_peek(b, at - sizeof b, sizeof b);
	errno = err;
	return there && arch_is_call(b);
}

/*
 * Code without tables may keep a frame pointer: followed where it looks like one
 * and leads to where a call returns. It may be any number, and so may registers be
 * from here on. A coroutine's stack can lie below its thread's with no guard in
 * between and count as part of that, and have been parted from it since: so what is
 * above this page is tried first, but for the first thread's, which nothing borders on.
 */
static bool step_code(struct thread *t, struct stack *s, struct frame *f)
{
	enum { FAR = 1 << 20 };
	struct frame up = {.sp = f->bp + 16, .guessed = FRAME_RECORDS};
	uintptr_t sure = (f->sp | (PAGE - 1)) + 1 - s->low - 7;
	if (t->stack_end != (getauxval(AT_RANDOM) & ~(uintptr_t)7) && f->sp - s->low < s->room && sure < s->room)
		s->room = sure;
	if ((f->bp & 7) || f->bp < f->sp || f->bp - f->sp > FAR || !load(t, s, f->bp, &up.bp) || !load(t, s, f->bp + 8, &up.pc))
		return false;
	up.pc = arch_return(up.pc);
	if (!gpurec_after_call(up.pc))
		return false;
	*f = up;
	return true;
}

/* A frame that counts from a stack pointer which is not known: that follows from
 * where its record is, if it has one. */
static bool step_record(struct thread *t, struct stack *s, uint64_t rule, struct frame *f)
{
	uintptr_t record = f->bp;
	if (RULE_SAVED(rule) != RULE_PC(rule) + 1 || !step_code(t, s, f))
		return false;
	f->sp = record + 8 * RULE_SAVED(rule);
	f->guessed = false;
	return true;
}

static bool together(const struct stack *s, uintptr_t a, uintptr_t b)
{
	return (a - s->low < s->own && b - s->low < s->own) || (a - s->go_from < s->go_to - s->go_from && b - s->go_from < s->go_to - s->go_from);
}

/*
 * Of Go's code, all of which keeps a frame pointer. What calls from C to Go leads
 * back to C's stack by it. A goroutine's first function keeps a 0, and what it
 * returns to did not call it. Nor did an instruction that failed call what Go puts
 * above it: a call is not asked for as long as the walk stays on a goroutine's stack.
 */
static bool step_go(struct thread *t, struct stack *s, uint64_t rule, struct frame *f)
{
	struct frame up = {.sp = f->bp + 16};
	if (f->bp == 0 && !RULE_SAVED(rule)) {
		f->pc = 0;
		return true;
	}
	if ((!RULE_SAVED(rule) && f->bp - s->go_from >= s->go_to - s->go_from) || (f->bp & 7) || (f->bp < f->sp && together(s, f->bp, f->sp)) || !load(t, s, f->bp, &up.bp) || !load(t, s, f->bp + 8, &up.pc))
		return false;
	*f = up;
	return true;
}

/*
 * Where Go called C, on the thread's stack: there lie the caller's goroutine and
 * how far below the end of its stack the caller's frame is, or that frame's place,
 * if Go too was on the thread's stack. The goroutine's stack does not move and is
 * not given away while it waits for C; it has 2^n bytes. What the frame pointer
 * says by now is not asked: the stack may have moved in a call back into Go.
 */
static bool step_cgo(struct thread *t, struct stack *s, uint64_t rule, struct frame *f)
{
	enum { LEAST = 2048 };
	uint64_t sp, depth, g, low = 0, high = 0;
	struct frame up = {0};
	if (!load(t, s, f->sp, &depth) || !load(t, s, f->sp + 8, &g))
		return false;
	sp = depth;
	if (RULE_SAVED(rule)) {
		if ((g & 7) || !gpurec_go_page(g & ~(uintptr_t)(PAGE - 1)) || !gpurec_go_page((g + 8) & ~(uintptr_t)(PAGE - 1)))
			return false;
		memcpy(&low, (const void *)g, sizeof low);
		memcpy(&high, (const void *)(g + 8), sizeof high);
		if (high - low < LEAST || ((high - low) & (high - low - 1)) || depth > high - low)
			return false;
		sp = high - depth;
		*s = (struct stack){.low = s->low, .room = s->room, .own = s->own, .holes = s->holes, .go_from = sp, .go_to = high};
	}
	up.sp = sp + (uint64_t)RULE_OFFSET(rule);
	if ((sp & 7) || !load(t, s, up.sp - 8, &up.pc) || !load(t, s, up.sp - 16, &up.bp))
		return false;
	*f = up;
	return true;
}

/* From a frame to its caller's; *cfa is where the one ends. False: there is none, or it cannot be told. */
static inline bool step(struct thread *t, struct stack *s, uint64_t rule, struct frame *f)
{
	uint64_t cfa, pc, bp = f->bp;
	switch (RULE_KIND(rule)) {
	case RULE_SP:
		cfa = f->sp + (uint64_t)RULE_OFFSET(rule);
		if (FRAME_RECORDS && unlikely(f->guessed))
			return step_record(t, s, rule, f);
		break;
	case RULE_BP:
		cfa = f->bp + (uint64_t)RULE_OFFSET(rule);
		break;
	case RULE_DEREF:
		if (!load(t, s, f->bp + (uint64_t)RULE_OFFSET(rule), &cfa) || !load(t, s, f->bp, &bp))
			return false;
		break;
	case RULE_SIGNAL:
		return step_signal(t, s, f);
	case RULE_CODE:
		return step_code(t, s, f);
	case RULE_GO:
		return step_go(t, s, rule, f);
	case RULE_CGO:
		return step_cgo(t, s, rule, f);
	default:
		return false;
	}
	if (RULE_PC(rule) == 0) { /* in the register, which is the caller's afterwards and not known */
		pc = f->kept;
		if (pc == 0 || cfa < f->sp || (cfa & 7))
			return false;
	} else if (cfa <= f->sp || (cfa & 7) || !load(t, s, cfa - 8 * RULE_PC(rule), &pc)) {
		return false;
	}
	if (RULE_SAVED(rule) && !load(t, s, cfa - 8 * RULE_SAVED(rule), &bp))
		return false;
	*f = (struct frame){.pc = arch_return(pc), .sp = cfa, .bp = bp};
	return true;
}

/* ---- the walk -------------------------------------------------------------------------------- */

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static inline bool is_ours(uintptr_t at) { return at - (uintptr_t)__ehdr_start < (uintptr_t)(etext - __ehdr_start); }

/* Beyond this a stack is no longer counted. */
enum { COUNT_MOST = 1 << 16 };

__attribute__((noinline)) uint64_t gpurec_unwind(struct thread *t, unsigned max, bool count)
{
	struct frame f;
	ARCH_HERE(f.pc, f.sp, f.bp, f.kept);
	f.guessed = false;
	uint32_t state = gpurec_module_state();
	if (unlikely(t->stack_of != t->tid || f.sp - t->stack_low >= t->stack_end - t->stack_low))
		find_stack(t, f.sp);
	struct stack s = {.low = f.sp};
	if (likely(t->stack_of == t->tid && f.sp - t->stack_low < t->stack_end - t->stack_low))
		s.own = s.room = t->stack_end - f.sp - 7;
	t->copy_of = 0;

	unsigned n = 0, last = NO_MODULE, more = 0;
	bool called = false, ours = true; /* called: f.pc is where a call returns */
	gpurec_sum sum = 0;
	while (f.pc != 0 && n + more < COUNT_MOST) { /* a return address of 0 is an end too */
		uintptr_t at = f.pc - called;
		uint64_t rule = recall(at);
		unsigned number = RULE_MODULE(rule);
		if (unlikely(rule == 0 || (number != last && !gpurec_module_still(gpurec_module(number), number, state)))) {
			rule = look_up(t, at);
			number = RULE_MODULE(rule);
		}
		if (rule == 0) {
			more++;
			break;
		}
		last = number;
		bool signal = RULE_KIND(rule) == RULE_SIGNAL, end = RULE_KIND(rule) == RULE_END || RULE_KIND(rule) == RULE_FIRST;
		if (called && (signal || (RULE_KIND(rule) == RULE_GO && !RULE_SAVED(rule) && f.bp != 0)))
			at++; /* a signal's entry begins a byte early, so that this is found; Go puts what failed where a caller is */
		if (unlikely(end))
			at += RULE_KIND(rule) == RULE_FIRST;
		ours = ours && is_ours(at);
		bool up = !end && step(t, &s, rule, &f);
		if (!ours && n < max) {
			t->native[n] = (struct native){at, up ? f.sp : UINTPTR_MAX, (uint16_t)number, RULE_LOOP(rule)};
			sum += gpurec_product(gpurec_noise + 2 * n++, at, number);
		} else if (!ours) {
			more++;
			if (!count)
				break;
		}
		called = !signal;
		if (!up) {
			more += !end;
			break;
		}
	}
	t->native_frames = n;
	t->native_dropped = more;
	if (n == 0)
		return 0;
	uint64_t h = gpurec_folded(sum, 2 * (uint64_t)n + (more != 0));
	return h ? h : 1;
}

bool gpurec_outside(struct thread *t)
{
	if (gpurec_unwind(t, GPUREC_MAX_FRAMES, false) == 0 || t->native_dropped != 0)
		return false;
	for (unsigned i = 0; i < t->native_frames; i++)
		if (is_ours(t->native[i].at))
			return false;
	return true;
}
