/*
 * stackhash.c - hashes millions of different stacks of made-up frames, in a
 * layout of CPython's, and counts how many hashes are another stack's as well.
 * The families are those that a weak sum or chain confuses: the same frames in
 * another order, prefixes and suffixes, recursion, neighbours in memory.
 *
 * Usage: stackhash 11|12 MOST: Python 3.11 or 3.12, of words and orders of so
 * many frames.
 */
#include "walk.c"

#include <stdio.h>
#include <stdlib.h>

struct interpreter gpurec_interpreter;
uint64_t gpurec_text_hash(const void *text, size_t bytes, unsigned unit) { return (uintptr_t)text + bytes + unit; }

static const struct layout *l;
enum { CODES = 512, CODE = 208, FRAME = 88, MOST = 11 << 20 };

static _Alignas(16) char codes[CODES][CODE], frames[GPUREC_MAX_FRAMES][FRAME], state[64];
static char cframe[16], name[64], file[64], table[64];
static const char type[16];
static uint64_t *hashes;
static unsigned made;

static void put32(char *to, uint32_t x) { memcpy(to, &x, sizeof x); }
static void put(char *to, const void *p) { memcpy(to, &p, sizeof p); }
static void *this_state(void) { return state; }
static int yes(void) { return 1; }

/* One frame, the i-th from the innermost. */
static void frame(unsigned i, unsigned code, unsigned at)
{
	put(frames[i] + l->f_code, codes[code]);
	put(frames[i] + l->f_instruction, codes[code] + l->co_bytecode + at);
	put(frames[i] + l->f_previous, i + 1 < GPUREC_MAX_FRAMES ? frames[i + 1] : NULL);
}

static uint64_t hash(unsigned depth)
{
	put(frames[depth - 1] + l->f_previous, NULL);
	return gpurec_python_hash(GPUREC_MAX_FRAMES, 0);
}

static void stack(unsigned depth)
{
	if (made == MOST)
		abort();
	hashes[made++] = hash(depth);
}

/* All words of two frames, up to so many of them. */
static void words(unsigned base, unsigned most)
{
	for (unsigned n = 1; n <= most; n++)
		for (unsigned w = 0; w < 1u << n; w++) {
			for (unsigned i = 0; i < n; i++)
				frame(i, base + (w >> i & 1), 64);
			stack(n);
		}
}

/* All orders of what stands in places i and beyond. */
static void orders(unsigned *order, unsigned i, unsigned n, unsigned base)
{
	if (i == n) {
		for (unsigned k = 0; k < n; k++)
			frame(k, base + order[k], 64 + 2 * order[k]);
		stack(n);
	}
	for (unsigned k = i; k < n; k++) {
		unsigned x = order[i];
		order[i] = order[k], order[k] = x;
		orders(order, i + 1, n, base);
		order[k] = order[i], order[i] = x;
	}
}

/* One function, at other instructions of it in each frame. */
static void instructions(unsigned base)
{
	for (unsigned w = 0; w < 7 * 7 * 7 * 7 * 7 * 7 * 7; w++) {
		for (unsigned i = 0, x = w; i < 7; i++, x /= 7)
			frame(i, base, 64 + 2 * (x % 7));
		stack(7);
	}
}

/* One address, another code object each time, in the middle of a stack: known by
 * its version, or by its content, here the first line. */
static void reuse(unsigned base)
{
	int16_t differs = l->co_version >= 0 ? l->co_version : l->co_firstline;
	for (unsigned i = 0; i < 3; i++)
		frame(i, base + i, 64);
	for (uint32_t v = 2000; v < 2000 + 2000000; v++) {
		put32(codes[base + 1] + differs, v);
		stack(3);
	}
}

static void recursion(unsigned base)
{
	for (unsigned c = 0; c < 256; c++) {
		for (unsigned i = 0; i < GPUREC_MAX_FRAMES; i++)
			frame(i, base + c, 64);
		for (unsigned n = GPUREC_MAX_FRAMES; n > 0; n--)
			stack(n);
	}
}

/* 40 frames of a program, two neighbours of them swapped, one moved on by an instruction. */
static void changes(unsigned base)
{
	uint64_t s = 1;
	for (unsigned program = 0; program < 20000; program++) {
		unsigned code[40], at[40];
		for (unsigned i = 0; i < 40; i++) {
			s = s * 6364136223846793005u + 1442695040888963407u;
			code[i] = base + i % 20 + 20 * (s >> 63);
			at[i] = 64 + 2 * (s >> 40 & 255);
			frame(i, code[i], at[i]);
		}
		stack(40);
		for (unsigned i = 0; i < 39; i++) {
			frame(i, code[i + 1], at[i + 1]);
			frame(i + 1, code[i], at[i]);
			stack(40);
			frame(i, code[i], at[i]);
			frame(i + 1, code[i + 1], at[i + 1] + 512);
			stack(40);
			frame(i + 1, code[i + 1], at[i + 1]);
			frame(39, code[39], at[39]);
		}
	}
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* A code object with a name, a file and a line table, which all share. */
static void code(unsigned i)
{
	if (l->co_version >= 0)
		put32(codes[i] + l->co_version, i + 1);
	put(codes[i] + l->co_name, name);
	put(codes[i] + l->co_filename, file);
	put(codes[i] + l->co_linetable, table);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int python = atoi(argv[1]), most = atoi(argv[2]);
	l = &layouts[python - 9];
	put32(file + STR_STATE, 0x64); /* compact, ASCII, of 10 characters */
	put32(file + STR_LENGTH, 10);
	put32(table + BYTES_SIZE, 20);
	hashes = malloc(MOST * sizeof *hashes);
	gpurec_interpreter = (struct interpreter){.layout = l, .thread_state = this_state, .ready = yes, .code_type = type, .str_type = type};
	put(state + l->ts_frame, cframe);
	put(cframe + l->cframe_frame, frames[0]);
	for (unsigned i = 0; i < CODES; i++)
		code(i);
	gpurec_walk_choose(l->version);

	unsigned ten[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
	words(0, 2 * (unsigned)most);
	orders(ten, 0, (unsigned)most, 10);
	instructions(30);
	recursion(40);
	changes(300);
	reuse(400);

	qsort(hashes, made, sizeof *hashes, order);
	unsigned same = 0, ones[64] = {0};
	for (unsigned i = 0; i < made; i++) {
		same += i > 0 && hashes[i] == hashes[i - 1];
		for (unsigned b = 0; b < 64; b++)
			ones[b] += hashes[i] >> b & 1;
	}
	double worst = 0; /* the share of ones, in the bit where it is farthest from a half */
	for (unsigned b = 0; b < 64; b++) {
		double off = 1.0 * ones[b] / made - 0.5;
		if (off < 0)
			off = -off;
		if (off > worst)
			worst = off;
	}
	printf("%u %u %.4f\n", made, same, worst);
	return 0;
}
