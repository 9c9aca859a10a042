/*
 * unwind_cfi.c - what .eh_frame says of one address, as a rule.
 *
 * The table is read where the loader has mapped it:
 *
 *  1 .eh_frame_hdr: pairs of (function, its FDE), sorted: the last one at or
 *    before the address
 *  2 the FDE: the function's range, and a program
 *  3 the CIE it belongs to: how numbers are written, and a program for the start
 *  4 both programs, run up to the address, give the row that holds there
 *  5 the row as one of the few shapes that a rule can be
 *
 * An address is looked up once in a process and then remembered, so this copies
 * as it reads, which cannot fault, and does not hurry.
 */
#include "unwind_cfi.h"

enum { ABSOLUTE = 0x00, UDATA2 = 0x02, UDATA4 = 0x03, UDATA8 = 0x04, SDATA2 = 0x0a, SDATA4 = 0x0b, SDATA8 = 0x0c };
enum { RELATIVE = 0x10, TABLE_RELATIVE = 0x30, OMITTED = 0xff, FORM = 0x0f, BASE = 0x70 };

/* ---- pointers ---------------------------------------------------------------------- */

/* A pointer as an encoding says; what is rarer than these makes the input bad. */
static uint64_t pointer(struct input *in, unsigned encoding)
{
	uintptr_t here = in->at;
	uint64_t v = 0;
	switch (encoding & FORM) {
	case ABSOLUTE:
	case UDATA8:
	case SDATA8:
		v = fixed(in, 8);
		break;
	case UDATA4:
		v = fixed(in, 4);
		break;
	case SDATA4:
		v = (uint64_t)(int64_t)(int32_t)fixed(in, 4);
		break;
	case UDATA2:
		v = fixed(in, 2);
		break;
	case SDATA2:
		v = (uint64_t)(int64_t)(int16_t)fixed(in, 2);
		break;
	default:
		in->bad = true;
	}
	if ((encoding & BASE) == RELATIVE)
		v += here;
	else if ((encoding & BASE) != 0)
		in->bad = true;
	return v;
}

/* ---- rows ------------------------------------------------------------------------------ */

struct cie {
	uint64_t code_align;
	int64_t data_align;
	unsigned encoding;
	bool augmented, signal;
	uintptr_t program, end;
};

static struct place *place(struct row *r, uint64_t reg)
{
	return reg == REG_BP ? &r->bp : reg == REG_PC ? &r->pc : NULL;
}

static void put(struct row *r, uint64_t reg, enum how how, int64_t offset)
{
	struct place *p = place(r, reg);
	if (p != NULL)
		*p = (struct place){.how = how, .offset = offset};
}

/* Runs a program from an address on, until the row is that of at. initial is
 * NULL in a CIE's own. False: it says what is not understood. */
static bool run(struct input *in, const struct cie *cie, uintptr_t here, uintptr_t at, const struct row *initial, struct row *r)
{
	enum { DEEP = 8 };
	struct row saved[DEEP];
	unsigned depth = 0;
	while (in->at < in->end && !in->bad) {
		unsigned op = byte(in), low = op & 0x3f;
		uint64_t reg, step = 0;
		struct place *p;
		switch (op & 0xc0) {
		case 0x40: /* advance_loc */
			step = low * cie->code_align;
			break;
		case 0x80: /* offset */
			put(r, low, AT, (int64_t)uleb(in) * cie->data_align);
			continue;
		case 0xc0: /* restore */
			if (initial == NULL)
				return false;
			if ((p = place(r, low)) != NULL)
				*p = low == REG_BP ? initial->bp : initial->pc;
			continue;
		}
		if (step != 0 || (op & 0xc0) == 0x40) {
			here += step;
			if (here > at)
				return !in->bad;
			continue;
		}
		switch (op) {
		case 0x00: /* nop */
			break;
		case 0x01: /* set_loc */
			here = pointer(in, cie->encoding);
			if (here > at)
				return !in->bad;
			break;
		case 0x02: /* advance_loc1, 2, 4 */
		case 0x03:
		case 0x04:
			here += fixed(in, 1u << (op - 2)) * cie->code_align;
			if (here > at)
				return !in->bad;
			break;
		case 0x05: /* offset_extended */
			reg = uleb(in);
			put(r, reg, AT, (int64_t)uleb(in) * cie->data_align);
			break;
		case 0x11: /* offset_extended_sf */
			reg = uleb(in);
			put(r, reg, AT, sleb(in) * cie->data_align);
			break;
		case 0x06: /* restore_extended */
			reg = uleb(in);
			if (initial == NULL)
				return false;
			if ((p = place(r, reg)) != NULL)
				*p = reg == REG_BP ? initial->bp : initial->pc;
			break;
		case 0x07: /* undefined */
			put(r, uleb(in), UNDEFINED, 0);
			break;
		case 0x08: /* same_value */
			put(r, uleb(in), SAME, 0);
			break;
		case 0x09: /* register */
			reg = uleb(in);
			uleb(in);
			put(r, reg, OTHER, 0);
			break;
		case 0x0a: /* remember_state */
			if (depth == DEEP)
				return false;
			saved[depth++] = *r;
			break;
		case 0x0b: /* restore_state */
			if (depth == 0)
				return false;
			*r = saved[--depth];
			break;
		case 0x0c: /* def_cfa */
			r->cfa_register = (unsigned)uleb(in);
			r->cfa_offset = (int64_t)uleb(in);
			r->cfa_at = 0;
			break;
		case 0x12: /* def_cfa_sf */
			r->cfa_register = (unsigned)uleb(in);
			r->cfa_offset = sleb(in) * cie->data_align;
			r->cfa_at = 0;
			break;
		case 0x0d: /* def_cfa_register */
			r->cfa_register = (unsigned)uleb(in);
			r->cfa_at = 0;
			break;
		case 0x0e: /* def_cfa_offset */
			r->cfa_offset = (int64_t)uleb(in);
			break;
		case 0x13: /* def_cfa_offset_sf */
			r->cfa_offset = sleb(in) * cie->data_align;
			break;
		case 0x0f: /* def_cfa_expression */
			reg = uleb(in);
			r->cfa_at = in->at;
			r->cfa_end = in->at + reg;
			skip(in, reg);
			break;
		case 0x10: /* expression */
		case 0x16: /* val_expression */
			reg = uleb(in);
			step = uleb(in);
			put(r, reg, op == 0x10 ? EXPRESSION : OTHER, 0);
			if ((p = place(r, reg)) != NULL) {
				p->at = in->at;
				p->end = in->at + step;
			}
			skip(in, step);
			break;
		case 0x14: /* val_offset */
		case 0x15: /* val_offset_sf */
			reg = uleb(in);
			uleb(in);
			put(r, reg, OTHER, 0);
			break;
		case 0x2c: /* aarch64's negate_ra_state, with its place and without: a signature is taken off anyway */
		case 0x2d:
			if (!RETURN_KEPT)
				return false;
			break;
		case 0x2e: /* GNU_args_size */
			uleb(in);
			break;
		case 0x2f: /* GNU_negative_offset_extended */
			reg = uleb(in);
			put(r, reg, AT, -(int64_t)uleb(in) * cie->data_align);
			break;
		default:
			return false;
		}
	}
	return !in->bad;
}

/* ---- entries ------------------------------------------------------------------------------ */

/* Sets in to an entry's content after its length; false: it is none. */
static bool entry(struct input *in, uintptr_t at)
{
	begin(in, at, at + 12);
	uint64_t n = fixed(in, 4);
	if (n == 0xffffffff)
		n = fixed(in, 8);
	if (in->bad || n == 0 || n > 1u << 30)
		return false;
	in->end = in->at + n;
	return true;
}

static bool read_cie(struct input *in, uintptr_t at, struct cie *c)
{
	char augmentation[8];
	unsigned n = 0, encoding;
	if (!entry(in, at) || fixed(in, 4) != 0)
		return false;
	unsigned version = byte(in);
	while ((augmentation[n] = (char)byte(in)) != 0)
		if (++n == sizeof augmentation)
			return false;
	*c = (struct cie){.encoding = ABSOLUTE, .end = in->end};
	c->code_align = uleb(in);
	c->data_align = sleb(in);
	if ((version == 1 ? byte(in) : uleb(in)) != REG_PC || (version != 1 && version != 3) || in->bad)
		return false;
	uintptr_t program = in->at;
	if (n > 0 && augmentation[0] != 'z')
		return false;
	if (n > 0) {
		uint64_t more = uleb(in);
		if (more > in->end - in->at)
			return false;
		c->augmented = true;
		program = in->at + more;
	}
	for (unsigned i = 1; i < n; i++)
		switch (augmentation[i]) {
		case 'R':
			c->encoding = byte(in);
			break;
		case 'S':
			c->signal = true;
			break;
		case 'B': /* aarch64: the other key signs return addresses; memory is tagged */
		case 'G':
			break;
		case 'L':
			byte(in);
			break;
		case 'P':
			encoding = byte(in);
			pointer(in, encoding & FORM);
			break;
		default:
			return false;
		}
	c->program = program;
	return !in->bad;
}

/* The FDE of an address, by the table; 0: there is none. */
static uintptr_t find(const struct module *m, uintptr_t at)
{
	struct {
		int32_t function, entry;
	} pair, some[32];
	unsigned char head[4];
	struct input in;
	begin(&in, m->table, m->table + 32);
	for (unsigned i = 0; i < sizeof head; i++)
		head[i] = (unsigned char)byte(&in);
	if (head[0] != 1 || head[3] != (TABLE_RELATIVE | SDATA4) || head[2] == OMITTED)
		return 0;
	if (head[1] != OMITTED)
		pointer(&in, head[1]);
	uint64_t n = pointer(&in, head[2]), first = 0;
	uintptr_t pairs = in.at;
	if (in.bad || n == 0 || n > 1u << 28)
		return 0;
	int64_t want = (int64_t)(at - m->table);
	while (n > sizeof some / sizeof *some) {
		uint64_t half = n / 2;
		if (!gpurec_peek(&pair, pairs + (first + half) * sizeof pair, sizeof pair))
			return 0;
		if (pair.function <= want)
			first += half, n -= half;
		else
			n = half;
	}
	if (!gpurec_peek(some, pairs + first * sizeof pair, n * sizeof pair))
		return 0;
	while (n > 0 && some[n - 1].function > want)
		n--;
	return n > 0 ? m->table + (uintptr_t)(intptr_t)some[n - 1].entry : 0;
}

/* The rule of an address, and where its function begins; 0: it is no function's. */
static uint64_t rule_at(struct thread *t, unsigned number, uintptr_t at, uintptr_t *start)
{
	const struct module *m = gpurec_module(number);
	uint64_t stop = RULE(RULE_STOP, number, 0, 0, 0);
	struct input *in = (struct input *)t->scratch;
	struct row first = {0}, row;
	struct cie cie;
	uintptr_t fde = m->table ? find(m, at) : 0;
	*start = 0;
	if (fde == 0 || !entry(in, fde))
		return stop;
	uintptr_t fields = in->at, end = in->end;
	uint64_t back = fixed(in, 4);
	if (in->bad || back == 0 || !read_cie(in, fields - back, &cie))
		return stop;
	begin(in, fields + 4, end);
	uint64_t from = pointer(in, cie.encoding), length = pointer(in, cie.encoding & FORM);
	if (cie.augmented)
		skip(in, uleb(in));
	uintptr_t program = in->at;
	if (in->bad || at - from >= length)
		return stop;
	*start = from;
	begin(in, cie.program, cie.end);
	if (!run(in, &cie, 0, UINTPTR_MAX, NULL, &first))
		return stop;
	row = first;
	begin(in, program, end);
	if (!run(in, &cie, from, at, &first, &row))
		return stop;
	if (cie.signal)
		return gpurec_is_kernels(&row, at) ? RULE(RULE_SIGNAL, number, 0, 0, 0) : stop;
	return gpurec_shape(&row, number, at);
}

uint64_t gpurec_rule(struct thread *t, unsigned number, uintptr_t at)
{
	uintptr_t start, next;
	uint64_t rule = rule_at(t, number, at, &start);
	if (start == 0) {
		/* A function that nobody called, like the one that a coroutine's first
		 * returns to: before its first instruction is no function's. */
		rule_at(t, number, at + 1, &next);
		if (next == at + 1)
			return RULE(RULE_FIRST, number, 0, 0, 0);
		return gpurec_other_rule(number, at);
	}
	if (FRAME_RECORDS && RULE_KIND(rule) == RULE_STOP)
		rule = gpurec_other_rule(number, at);
	if (start == __atomic_load_n(&gpurec_python_loop, __ATOMIC_RELAXED))
		rule |= RULE(0, 0, 0, 1, 0);
	return rule;
}
