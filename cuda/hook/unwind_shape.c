/*
 * unwind_shape.c - a row of .eh_frame as a rule: the few shapes that compilers, linkers
 * and C libraries write on each machine. All else is not understood.
 */
#include "unwind_cfi.h"

#ifdef __x86_64__

enum { OP_DEREF = 0x06, OP_AND = 0x1a, OP_PLUS = 0x22, OP_SHL = 0x24, OP_GE = 0x2a, OP_LIT0 = 0x30, OP_BREG0 = 0x70 };

/* *(register + offset); of bp it is what compilers write where a function aligns its stack. */
static bool is_deref(uintptr_t at, uintptr_t end, unsigned of, int64_t *offset)
{
	struct input in;
	begin(&in, at, end);
	if (byte(&in) != OP_BREG0 + of)
		return false;
	*offset = sleb(&in);
	return byte(&in) == OP_DEREF && in.at == end && !in.bad;
}

/* sp + 8, and one word more from some byte of the entry on: what linkers write for their tables of jumps. */
static bool is_jumps(uintptr_t at, uintptr_t end, uintptr_t pc, int64_t *offset)
{
	struct input in;
	begin(&in, at, end);
	if (byte(&in) != OP_BREG0 + REG_SP)
		return false;
	*offset = sleb(&in);
	bool so = byte(&in) == OP_BREG0 + REG_PC && byte(&in) == 0 && byte(&in) == OP_LIT0 + 15 && byte(&in) == OP_AND;
	unsigned from = byte(&in) - OP_LIT0;
	so = so && from < 16 && byte(&in) == OP_GE && byte(&in) == OP_LIT0 + 3 && byte(&in) == OP_SHL && byte(&in) == OP_PLUS;
	if ((pc & 15) >= from)
		*offset += 8;
	return so && in.at == end && !in.bad;
}

/* The caller's stack pointer is where the kernel saved it: a signal's frame, and not what only says that it is one. */
bool gpurec_is_kernels(const struct row *r, uintptr_t at)
{
	(void)at;
	int64_t offset = 0;
	return r->cfa_at != 0 && is_deref(r->cfa_at, r->cfa_end, REG_SP, &offset) && offset == UC_SP;
}

static bool is_bp(const struct place *p)
{
	struct input in;
	begin(&in, p->at, p->end);
	return p->how == EXPRESSION && byte(&in) == OP_BREG0 + REG_BP && sleb(&in) == 0 && in.at == p->end && !in.bad;
}

uint64_t gpurec_shape(const struct row *r, unsigned number, uintptr_t at)
{
	uint64_t stop = RULE(RULE_STOP, number, 0, 0, 0);
	int64_t offset = r->cfa_offset;
	unsigned kind = r->cfa_register == REG_SP ? RULE_SP : r->cfa_register == REG_BP ? RULE_BP : RULE_STOP, saved = 0;
	if (r->pc.how == UNDEFINED)
		return RULE(RULE_END, number, 0, 0, 0);
	if (r->pc.how != AT || r->pc.offset != -8)
		return stop;
	if (r->cfa_at != 0 && is_deref(r->cfa_at, r->cfa_end, REG_BP, &offset)) {
		if (!is_bp(&r->bp))
			return stop;
		return offset == (int32_t)offset ? RULE(RULE_DEREF, number, 0, 0, offset) : stop;
	}
	if (r->cfa_at != 0)
		kind = is_jumps(r->cfa_at, r->cfa_end, at, &offset) ? RULE_SP : RULE_STOP;
	if (r->bp.how == AT && r->bp.offset < 0 && r->bp.offset % 8 == 0 && r->bp.offset > -8 * 0x1000)
		saved = (unsigned)(-r->bp.offset / 8);
	else if (r->bp.how != SAME && r->bp.how != UNDEFINED)
		return stop;
	if (kind == RULE_STOP || offset <= 0 || offset % 8 != 0 || offset != (int32_t)offset)
		return stop;
	return RULE(kind, number, saved, 0, offset);
}

#else

/* The caller's registers are where the kernel saved them: the code says so. Of the
 * kernel's page of code only older kernels have tables. */
bool gpurec_is_kernels(const struct row *r, uintptr_t at)
{
	unsigned char b[ARCH_SIGRETURN];
	(void)r;
	return gpurec_peek(b, at + 1, sizeof b) && arch_is_sigreturn(b);
}

/* Where a register was saved, in words below the CFA; 0: it is as it was, -1: neither. */
static int slot(const struct place *p)
{
	if (p->how == SAME)
		return 0;
	return p->how == AT && p->offset < 0 && p->offset % 8 == 0 && p->offset >= -8 * RULE_SAVED_MOST ? (int)(-p->offset / 8) : -1;
}

uint64_t gpurec_shape(const struct row *r, unsigned number, uintptr_t at)
{
	int bp = slot(&r->bp), pc = slot(&r->pc);
	(void)at;
	if (r->pc.how == UNDEFINED)
		return RULE(RULE_END, number, 0, 0, 0);
	if (r->cfa_at != 0 || bp < 0 || pc < 0 || r->cfa_offset < 0 || r->cfa_offset % 8 != 0 || r->cfa_offset > RULE_OFFSET_MOST ||
	    (r->cfa_register != REG_SP && r->cfa_register != REG_BP))
		return RULE(RULE_STOP, number, 0, 0, 0);
	return RULE(r->cfa_register == REG_SP ? RULE_SP : RULE_BP, number, bp, 0, r->cfa_offset) | RULE_RETURN(pc);
}

/* Whether the code before an address makes its frame's record. Where the end of a
 * function lies in between that may be another one's: by the record that a frame has
 * not made, its caller would be left out. */
static bool keeps_record(uintptr_t at)
{
	enum { CHUNKS = 16 };
	uint32_t code[64];
	at &= ~(uintptr_t)3;
	for (unsigned i = 0; i < CHUNKS && at > sizeof code && gpurec_peek(code, at -= sizeof code, sizeof code); i++)
		for (unsigned k = sizeof code / sizeof *code; k-- > 0;) {
			if (arch_is_record(code[k]))
				return true;
			if (arch_is_end(code[k]))
				return false;
		}
	return false;
}

#endif

/* What is left where tables say nothing that is understood. */
uint64_t gpurec_other_rule(unsigned number, uintptr_t at)
{
#ifdef __x86_64__
	return gpurec_go_rule(number, at);
#else
	if (gpurec_is_kernels(NULL, at))
		return RULE(RULE_SIGNAL, number, 0, 0, 0);
	return RULE(keeps_record(at) ? RULE_CODE : RULE_STOP, number, 0, 0, 0);
#endif
}
