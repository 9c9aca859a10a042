/*
 * gpurec.h - what a traced program may call itself: scopes, marks, and the
 * events of pools that have no C symbol to intercept.
 *
 * The functions live in the preloaded hook. A program that runs without it
 * finds none of them (dlsym says NULL) and must do without; under the hook but
 * outside a recording each returns at once. None of them blocks, takes a lock,
 * changes errno or calls Python, so they may be called with or without the
 * interpreter lock; from Python use ctypes.PyDLL, which keeps it (CDLL gives it
 * up and costs 60 times as much beside one busy thread).
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
 * the other three. name and domain are UTF-8, domain may be NULL; subcontext is
 * the text that a program's own report prints beside the scope's name.
 */
uint64_t gpurec_scope_begin(const char *name, const char *domain);
void gpurec_scope_end(uint64_t id);
void gpurec_scope_reset(uint64_t id);
void gpurec_scope_report(uint64_t id, const char *subcontext);

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
