/*
 * unwind_go.c - Go's code and Go's stacks.
 *
 * Go's linker makes no .eh_frame of Go's code, but that code keeps frame pointers,
 * by which Go's own tracer walks. (Leaves do not, and of a leaf that failed, whose
 * deferred functions run above it, the caller is left out.) At two places they do not lead on, where the one
 * language calls the other and stacks change. Those are known by their instructions,
 * which are the same in what Go 1.22 to 1.26 make, stripped or not:
 *
 *   goroutine's stack                  thread's stack
 *   ───────────────── goexit           ───────────── the thread's, or C that called Go
 *   main.train
 *   main._Cfunc_f
 *   runtime.cgocall
 *   runtime.asmcgocall ─ ─ ─ ─ ─ ─ ─►  goroutine, depth     RULE_CGO
 *                                      _cgo_…_Cfunc_f       .eh_frame
 *                                      f                    .eh_frame
 *                                      crosscall2           RULE_SP
 *                              ◄─ ─ ─  cgocallback          RULE_GO
 *   runtime.cgocallback
 *   main.called
 *   …
 *
 * Goroutines and their stacks lie in Go's heap, which Go never unmaps: what is no
 * longer needed there is given back by madvise, which leaves it readable. A page of
 * it is tried once in a process. That is not all that keeps a read from faulting:
 * what is read is in use, by the goroutine that waits for this very call.
 */
#include "unwind.h"

#ifdef __x86_64__

/* ---- pages that can be read --------------------------------------------------------- */

enum { PAGES = 4096, PAGE_BITS = 12 };
static uintptr_t pages[PAGES];

bool gpurec_go_page(uintptr_t page)
{
	uintptr_t *known = &pages[page * 0x9e3779b97f4a7c15ull >> (64 - PAGE_BITS)];
	_Static_assert(PAGES == 1 << PAGE_BITS, "the hash's highest bits");
	char c;
	if (likely(__atomic_load_n(known, __ATOMIC_RELAXED) == page))
		return page != 0;
	int err = errno;
	bool can = gpurec_peek(&c, page, 1);
	errno = err;
	if (can)
		__atomic_store_n(known, page, __ATOMIC_RELAXED);
	return can;
}

/* ---- instructions ------------------------------------------------------------------- */

static const unsigned char *find(const unsigned char *in, size_t bytes, const void *what, size_t n)
{
	for (size_t i = 0; i + n <= bytes; i++)
		if (memcmp(in + i, what, n) == 0)
			return in + i;
	return NULL;
}
#define FIND(in, bytes, what) find(in, bytes, what, sizeof(what) - 1)

/*
 * asmcgocall: before its call it keeps the goroutine and how deep its stack is,
 * after it it puts the result where its caller looks, 16 bytes up from the CFA:
 *
 *	mov %rdi,8(%rsp); mov 8(%rdi),%rdi; sub %rdx,%rdi; mov %rdi,(%rsp)
 *
 * or, where it does not change stacks, 0 and its own stack pointer:
 *
 *	movq $0,8(%rsp); mov %rdx,(%rsp)
 *
 * then	mov %eax,result(%rsp); pop %rbp; ret
 */
static uint64_t cgo_rule(unsigned number, const unsigned char *before, size_t n, const unsigned char *after, size_t m)
{
	bool switches = FIND(before, n, "\x48\x89\x7c\x24\x08\x48\x8b\x7f\x08\x48\x29\xd7\x48\x89\x3c\x24") != NULL;
	if (!switches && FIND(before, n, "\x48\xc7\x44\x24\x08\x00\x00\x00\x00\x48\x89\x14\x24") == NULL)
		return 0;
	if (FIND(after, m, "\x89\x44\x24\x20\x5d\xc3") == NULL)
		return 0;
	return RULE(RULE_CGO, number, switches, 0, 16);
}

/*
 * crosscall2, after its call:
 *
 *	add $0x18,%rsp; (rbx, r12 to r15;) mov 0x28(%rsp),%rbp; add $0x30,%rsp; pop %rbp; ret
 */
static uint64_t cross_rule(unsigned number, const unsigned char *after, size_t m)
{
	static const char saves[] = "\x48\x83\xc4\x18\x48\x8b\x1c\x24\x4c\x8b\x64\x24\x08";
	if (memcmp(after, saves, sizeof saves - 1) != 0 || FIND(after, m, "\x48\x8b\x6c\x24\x28\x48\x83\xc4\x30\x5d\xc3") == NULL)
		return 0;
	return RULE(RULE_SP, number, 2, 0, 0x18 + 0x30 + 16);
}

uint64_t gpurec_go_rule(unsigned number, uintptr_t at)
{
	enum { BEFORE = 32, AFTER = 48 };
	unsigned char b[BEFORE + AFTER];
	uintptr_t back = at + 1;
	bool called = gpurec_after_call(back);
	if (called && gpurec_peek(b, back - BEFORE, sizeof b)) {
		uint64_t rule = cgo_rule(number, b, BEFORE, b + BEFORE, AFTER);
		if (rule == 0)
			rule = cross_rule(number, b + BEFORE, AFTER);
		if (rule != 0) {
			gpurec_module_go(number);
			return rule;
		}
	}
	return RULE(__atomic_load_n(&gpurec_module(number)->go, __ATOMIC_RELAXED) ? RULE_GO : RULE_STOP, number, called, 0, 0);
}

#else /* aarch64's are not known: where C was called by Go a stack is cut */

bool gpurec_go_page(uintptr_t page)
{
	(void)page;
	return false;
}

#endif
