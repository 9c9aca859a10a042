/*
 * unwind.h - native stacks. unwind.c walks, unwind_cfi.c and unwind_shape.c turn a
 * module's .eh_frame into the rule of an address, unwind_go.c knows Go's code, which
 * has no such table, module.c knows what is mapped where.
 *
 *   frame's address ──► cache of rules ──► the caller's sp, bp, pc
 *                            │ miss
 *                       module.c: the file that is mapped there
 *                       unwind_cfi.c, unwind_go.c: its rule for that address
 *
 * All of it works without a lock, malloc or the dynamic loader (whose locks the
 * program may hold), and none of its reads can fault:
 *
 *   the stack        directly between the stack pointer and the thread's own
 *                    stack's end, where everything has been found readable, and
 *                    a goroutine's (unwind_go.c); of any other stack (a
 *                    coroutine's, a signal's) copies
 *   modules' tables  copies, by process_vm_readv (module.c has what is done where
 *                    a sandbox may forbid it), and only for an address that no
 *                    thread has met before
 *
 * A stack ends where the tables say that it does. Where they say nothing that is
 * understood it is cut there, which its definition says.
 */
#ifndef UNWIND_H
#define UNWIND_H

#include "hook.h"

/* ---- module.c --------------------------------------------------------------- */

struct module {
	uint64_t start, end; /* where its code is mapped */
	uint64_t bias;       /* runtime addresses less the file's own */
	uint64_t low;        /* the ELF header */
	uint64_t table;      /* .eh_frame_hdr; 0: no rules */
	uint64_t print;      /* of the header and the build id */
	uint64_t build_at;   /* the build id's place */
	const char *path;
	uint32_t path_bytes, build_bytes;
	unsigned char build[GPUREC_MAX_BUILD_ID];
	uint32_t verified; /* in which state of the process it was seen last; see module.c */
	uint32_t ready;
	bool go; /* made by Go's linker: its note says so, or Go's way to C was met in it */
};

enum { NO_MODULE = 0, ANONYMOUS = 1 };

/* The number of the module with code at an address; ANONYMOUS for code that no
 * file holds, NO_MODULE where that cannot be known now. */
unsigned gpurec_module_at(struct thread *t, uintptr_t at);

const struct module *gpurec_module(unsigned number);

void gpurec_module_go(unsigned number);

/* What a module that was seen in it is still: even numbers only, 0 while one may be going. */
uint32_t gpurec_module_state(void);

/* Whether a module is still where it was. Does not change errno. */
bool gpurec_module_check(unsigned number, uint32_t state);

static inline bool gpurec_module_still(const struct module *m, unsigned number, uint32_t state)
{
	return likely(state != 0 && __atomic_load_n(&m->verified, __ATOMIC_RELAXED) == state) || gpurec_module_check(number, state);
}

/* Copies n bytes; false where they are not all mapped. Sets errno. */
bool gpurec_peek(void *to, uintptr_t from, size_t n);

/* Whether every page of a range can be read. Takes t's scratch; sets errno. */
bool gpurec_readable(struct thread *t, uintptr_t from, uintptr_t to);

/* Finds a mapped file in whose path a text stands; false: there is none, or its path does not fit. */
bool gpurec_mapped_file(const char *text, char *path, size_t room);

/* ---- unwind_cfi.c, unwind_shape.c ---------------------------------------------- */

/*
 * The rule of an address, in a word: how the caller's stack pointer (the CFA)
 * comes from this frame's registers, and where its bp was saved, which is rbp or
 * x29. These few shapes are what compilers make; the other registers need not be
 * followed, as no CFA is counted from them where a call is made.
 */
enum rule_kind {
	RULE_NONE,
	RULE_SP,     /* CFA = sp + offset */
	RULE_BP,     /* CFA = bp + offset */
	RULE_DEREF,  /* CFA = *(bp + offset), the caller's bp is *bp: a realigned stack */
	RULE_SIGNAL, /* the kernel's frame: sp points to a ucontext */
	RULE_END,    /* the outermost frame */
	RULE_FIRST,  /* the same of a function that nobody called: its address is one more */
	RULE_STOP,   /* not understood */
	RULE_CODE,   /* no file's: perhaps a frame pointer */
	RULE_GO,     /* Go's: a frame pointer; saved: a call is here, else nobody's caller */
	RULE_CGO,    /* where Go called C; offset: the CFA, from the stack pointer kept there; saved: on a goroutine's stack */
};

/*
 * How it is packed is in arch.h: RULE(kind, module, saved, loop, offset) and a
 * function for each. saved: the caller's bp lies at the CFA less so many words, 0:
 * it is as it is; loop: it is _PyEval_EvalFrameDefault's. RULE_PC is saved's like of
 * the return address.
 */
#define RULE_KIND(r) ((unsigned)(r)&15)
_Static_assert(GPUREC_MAX_MODULES <= 1 << 12, "a module's number has 12 bits in a rule");

/* The rule of an address in a module. Sets errno. */
uint64_t gpurec_rule(struct thread *t, unsigned number, uintptr_t at);

/* ---- unwind_go.c --------------------------------------------------------------- */

/* The rule of an address that a module's tables do not have; RULE_STOP: it is not
 * Go's. Sets errno. */
uint64_t gpurec_go_rule(unsigned number, uintptr_t at);

/* Whether a page of Go's heap can be read. errno stays. */
bool gpurec_go_page(uintptr_t page);

/* ---- unwind.c ------------------------------------------------------------------ */

/*
 * Walks the calling thread's native frames, innermost first, into t->native, at
 * most max of them; the hook's own are left out. Returns their hash, 0 for none.
 * t->native_dropped are the outer ones left out: with count all that there are,
 * else 1 for any.
 */
uint64_t gpurec_unwind(struct thread *t, unsigned max, bool count);

/* Whether the calling thread's stack, as far as it is on, has nothing of the hook's
 * but what called this. False where that cannot be told. */
bool gpurec_outside(struct thread *t);

/* Whether the instruction before an address is a call. errno stays. */
bool gpurec_after_call(uintptr_t at);

#endif
