/*
 * unwind_cfi.h - what unwind_cfi.c reads of .eh_frame and unwind_shape.c makes a
 * rule of.
 */
#ifndef UNWIND_CFI_H
#define UNWIND_CFI_H

#include "unwind.h"

/* ---- reading ---------------------------------------------------------------------- */

/* Bytes in the order they lie in, some at a time. */
struct input {
	uintptr_t at, end;
	uintptr_t from, to; /* what chunk holds */
	bool bad;
	unsigned char chunk[256];
};

static inline void begin(struct input *in, uintptr_t at, uintptr_t end)
{
	in->at = at;
	in->end = end;
	in->from = in->to = 0;
	in->bad = false;
}

static inline unsigned byte(struct input *in)
{
	if (in->at >= in->end || in->bad) {
		in->bad = true;
		return 0;
	}
	if (in->at < in->from || in->at >= in->to) {
		uintptr_t n = in->end - in->at;
		if (n > sizeof in->chunk)
			n = sizeof in->chunk;
		in->from = in->at;
		in->to = in->at + n;
		if (!gpurec_peek(in->chunk, in->at, n)) {
			in->bad = true;
			in->to = in->from;
			return 0;
		}
	}
	return in->chunk[in->at++ - in->from];
}

/* Leaves n bytes out. A length that leads beyond the end, or round to before this, must not go on. */
static inline void skip(struct input *in, uint64_t n)
{
	if (in->at > in->end || n > in->end - in->at)
		in->bad = true;
	else
		in->at += n;
}

static inline uint64_t fixed(struct input *in, unsigned bytes)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)byte(in) << 8 * i;
	return v;
}

static inline uint64_t uleb(struct input *in)
{
	uint64_t v = 0;
	for (unsigned shift = 0;; shift += 7) {
		unsigned b = byte(in);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
}

static inline int64_t sleb(struct input *in)
{
	uint64_t v = 0;
	for (unsigned shift = 0;;) {
		unsigned b = byte(in);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
		if (!(b & 0x80)) {
			if (shift < 64 && (b & 0x40))
				v |= ~0ull << shift;
			return (int64_t)v;
		}
	}
}

/* ---- rows ------------------------------------------------------------------------------ */

/* How a register comes back. */
enum how { SAME, UNDEFINED, AT, EXPRESSION, OTHER };

struct place {
	enum how how;
	int64_t offset;     /* AT: from the CFA */
	uintptr_t at, end; /* EXPRESSION: of its address */
};

struct row {
	unsigned cfa_register; /* cfa_at is 0 */
	int64_t cfa_offset;
	uintptr_t cfa_at, cfa_end; /* the CFA's expression */
	struct place bp, pc;
};

/* The row as one of the few shapes that a rule can be. */
uint64_t gpurec_shape(const struct row *r, unsigned number, uintptr_t at);

/* Whether it is of the kernel's frame of a signal. */
bool gpurec_is_kernels(const struct row *r, uintptr_t at);

/* The rule where tables say nothing that is understood. */
uint64_t gpurec_other_rule(unsigned number, uintptr_t at);

#endif
