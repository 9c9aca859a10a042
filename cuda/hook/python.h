/*
 * python.h - where CPython keeps what a stack is made of; python.c finds the
 * interpreter and copies code objects, walk.c walks and hashes.
 */
#ifndef PYTHON_H
#define PYTHON_H

#include "hook.h"

/* Offsets in bytes; -1: there is none. Release builds, LP64. They are the same in
 * every patch release of a minor one. A table of both files, so that in a walk of
 * one layout the offsets are constants. */
struct layout {
	uint16_t version;      /* with FREE_THREADED where that is so */
	int16_t ts_frame;      /* PyThreadState: the frame, or the _PyCFrame that has it */
	int16_t cframe_frame;  /* _PyCFrame */
	int16_t f_code, f_previous, f_instruction, f_owner;
	int16_t f_code_tag;       /* bits of f_code that are no address */
	int16_t instruction_unit; /* f_instruction is a number of these bytes; 0: an address */
	int16_t co_firstline, co_filename, co_name, co_linetable, co_firsttraceable, co_bytecode;
	int16_t co_cells, co_version;
	int16_t str_ascii, str_data;
	int16_t ts_cframe, cframe_previous; /* a _PyCFrame lies in each frame of the interpreter's loop */
	int16_t f_entry;                    /* whether it was the first one in its loop */
	int16_t head;                       /* what an object has before its type, but for the word that all have */
	struct {                            /* where CPython's own offsets stand in _PyRuntime, in words; 0: there are none */
		uint8_t thread, frame, code, object, bytes, str;
	} own;
};

enum { FREE_THREADED = 0x8000 };

static const struct layout layouts[] = {
	{0x0309, 24, -1, 32, 24, 104, -1, 0, 1, 40, 104, 112, 120, -1, 176, -1, -1, 48, 72, -1, -1, -1, 0, {0}},
	{0x030a, 24, -1, 32, 24, 96, -1, 0, 2, 40, 104, 112, 120, -1, 176, -1, -1, 48, 72, 48, 8, -1, 0, {0}},
	{0x030b, 56, 8, 32, 48, 56, 69, 0, 0, 72, 112, 120, 136, 168, 184, 88, -1, 48, 72, 56, 16, 68, 0, {0}},
	{0x030c, 56, 0, 0, 8, 56, 70, 0, 0, 68, 112, 120, 136, 176, 192, 84, 92, 40, 56, -1, -1, -1, 0, {0}},
	{0x030d, 72, -1, 0, 8, 56, 70, 0, 0, 68, 112, 120, 136, 184, 200, 84, 92, 40, 56, -1, -1, -1, 0, {19, 28, 34, 44, 64, 67}},
	{0x030d | FREE_THREADED, 72, -1, 0, 8, 56, 70, 0, 0, 84, 128, 136, 152, 200, 216, 100, 108, 56, 72, -1, -1, -1, 16, {19, 28, 34, 44, 64, 67}},
	{0x030e, 72, -1, 0, 8, 56, 74, 7, 0, 68, 112, 120, 136, 192, 208, 84, 92, 40, 56, -1, -1, -1, 0, {22, 31, 39, 50, 74, 77}},
	{0x030f, 72, -1, 0, 8, 56, 74, 7, 0, 68, 112, 120, 136, 192, 208, 84, 92, 40, 56, -1, -1, -1, 0, {22, 39, 47, 58, 86, 89}},
};

/* Equal in every version of the table, but for the head. */
enum { TS_INTERPRETER = 16, OB_TYPE = 8, BYTES_SIZE = 16, BYTES_DATA = 32, STR_LENGTH = 16, STR_HASH = 24, STR_STATE = 32, TYPE_BASICSIZE = 32, TYPE_MEMBERS = 240 };
enum { OWNER_GENERATOR = 1, OWNER_C = 3 };

#define FIELD(type, object, offset) (*(const type *)((const char *)(object) + (offset)))
#define POINTER(object, offset) FIELD(const char *, object, offset)

#define INLINE static inline __attribute__((always_inline))

INLINE unsigned minor(const struct layout *l) { return l->version & 0xff; }

/* The interpreter of this process: not to be looked at before layout is known. */
struct interpreter {
	const struct layout *layout; /* NULL: no stacks */
	bool ended;                  /* one has ended here: what comes after it counts versions anew */
	void *(*thread_state)(void);
	int (*ready)(void);        /* false from when the last one begins to end */
	void *(*main)(void);       /* the state of the interpreter that Py_Finalize ends */
	void *(*threads)(void *);  /* its newest thread's */
	int64_t (*number)(void *); /* of an interpreter's state */
	const char *code_type, *str_type, *first; /* first: the state of the interpreter that came first, whose number is 0 */
};
extern struct interpreter gpurec_interpreter;

/* From now on stacks are walked, in this layout, which is one of the table. */
void gpurec_walk_choose(uint16_t version);

/* A str's bytes; the unit is 0 for what is no compact str. */
INLINE const char *str_data(const struct layout *l, const char *s, uint64_t *bytes, unsigned *unit)
{
	uint32_t state = FIELD(uint32_t, s, STR_STATE + l->head);
	if (likely((state & 0x7c) == 0x64)) { /* compact and ASCII, as nearly all are */
		*unit = 1;
		*bytes = FIELD(uint64_t, s, STR_LENGTH + l->head);
		return s + l->str_ascii;
	}
	*unit = state >> 2 & 7;
	*bytes = 0;
	if (!(state & 0x20) || (*unit != 1 && *unit != 2 && *unit != 4)) {
		*unit = 0;
		return s;
	}
	*bytes = FIELD(uint64_t, s, STR_LENGTH + l->head) * *unit;
	return s + (state & 0x40 ? l->str_ascii : l->str_data);
}

#endif
