/*
 * gpurec.h - what a traced program may call itself: scopes, marks, and the
 * events of pools that have no C symbol to intercept.
 *
 * The functions live in the preloaded hook. A program that runs without it
 * finds none of them (dlsym says NULL) and must do without; under the hook but
 * outside a recording each returns at once. None of them takes a lock, changes
 * errno or calls Python, so they may be called with or without the interpreter
 * lock. None but gpurec_scope_ask waits, so from Python use ctypes.PyDLL, which
 * keeps the lock (CDLL gives it up and costs 60 times as much beside one busy
 * thread), and CDLL for that one.
 */
#ifndef GPUREC_H
#define GPUREC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 when events of this process are recorded, else 0. */
int gpurec_active(void);

/*
 * A scope belongs to the thread that begins it; scopes may nest and overlap.
 * The id is unique in the process, 0 outside a recording, and 0 may be given to
 * the others. name and domain are UTF-8, and may be NULL: none; subcontext is
 * the text that a program's own report prints beside the scope's name. device is
 * the process's own ordinal, whose NVML curve the scope measures; -1, as of
 * gpurec_scope_begin: of all sampled devices. The other curves are the process's.
 */
uint64_t gpurec_scope_begin(const char *name, const char *domain);
uint64_t gpurec_scope_begin_on(const char *name, const char *domain, int32_t device);
void gpurec_scope_end(uint64_t id);
void gpurec_scope_reset(uint64_t id);
void gpurec_scope_report(uint64_t id, const char *subcontext);

/*
 * What a scope has measured, open or ended, and on which thread so ever: the
 * recorder's own fold of everything that this process published before the call,
 * so that an analysis of the trace finds the same. how: by the way a report with
 * this subcontext is put into the trace, or the scope is ended, and these are its
 * numbers exactly. The call waits for the recorder, milliseconds, at most 100.
 */
enum { GPUREC_ASK_ONLY, GPUREC_ASK_REPORT, GPUREC_ASK_END };

/* Bytes by curve: used, acquired, nvml. */
typedef struct gpurec_measures {
	uint32_t known;  /* bit i: curve i is */
	uint32_t state;  /* GPUREC_ANSWER_… of wire.h: which layer used is */
	uint64_t lost;   /* events of this process so far: the numbers lack them */
	int64_t begin[3]; /* when the scope began, or was last reset */
	int64_t end[3];   /* at this moment, or when it ended */
	int64_t max[3];   /* the largest in between, both ends included */
} gpurec_measures;

enum {
	GPUREC_ANSWERED,
	GPUREC_NOT_RECORDED,  /* outside a recording */
	GPUREC_NO_RECORDER,   /* it has ended */
	GPUREC_TOO_LATE,      /* no answer within 100 ms; at once where it does not look any more */
	GPUREC_NO_ROOM,       /* the question found no room in this thread's lane, or there is none */
	GPUREC_UNKNOWN_SCOPE, /* its begin was lost, was a parent process's, or over 1,000 ended since */
};
int gpurec_scope_ask(uint64_t id, int how, const char *subcontext, gpurec_measures *measures);

/* A text at this moment. */
void gpurec_mark(const char *text);

/*
 * An allocation of a pool and its end. api is the source's number (wire.h:
 * GPUREC_API_CUPY and the like), device the process's own ordinal or -1, object
 * what names the block in its pool (CuPy's pmem_id), status 0 or what failed,
 * duration_ns -1 where it is unknown, flags of wire.h.
 * skip_frames innermost Python frames belong to the caller's own machinery and
 * are left out of the stack.
 *
 * gpurec_pool_free is called before the block can be handed out again.
 */
void gpurec_pool_alloc(uint32_t api, int32_t device, uint64_t address, uint64_t object,
                       int64_t requested, int64_t size, int64_t duration_ns, int32_t status,
                       uint32_t flags, int32_t skip_frames);
void gpurec_pool_free(uint32_t api, int32_t device, uint64_t address, uint64_t object,
                      int32_t skip_frames);

/*
 * Around the work of a pool's alloc: driver events in between are marked as
 * that pool's (inpool), pool allocs in between as its segments (nested). Call
 * gpurec_pool_leave before the pool's own gpurec_pool_alloc.
 */
void gpurec_pool_enter(void);
void gpurec_pool_leave(void);

#ifdef __cplusplus
}
#endif
#endif
