/*
 * call.h - what the wrappers of the driver's functions share.
 *
 * What takes memory is recorded after the real call, with its outcome:
 *
 *     if (!call_begin(&c, ...)) return real(...);
 *     call_go(&c);  status = real(...);  call_took(&c, status);
 *
 * What gives memory back is published before it: the moment the real call
 * returns, another thread may get the same address, and its Alloc would stand
 * before our Free. Should the call then be refused, FreeFailed takes it back.
 *
 *     call_give(&c);  status = real(...);  call_gave(&c, status);
 *
 * Nothing in between may synchronise, wait, or be illegal while a stream is
 * captured. cuStreamGetDevice and cuMemPoolGetAttribute are: they not only fail
 * there but invalidate the program's capture. cuCtxGetDevice, cuCtxGetCurrent
 * and cuStreamIsCapturing are not (tried on an H200).
 */
#ifndef CALL_H
#define CALL_H

#include "hook.h"

typedef uint64_t CUdeviceptr;

#define API(symbol) API_##symbol
enum {
#define INDEX(index, number, symbol, layer, class, kind) API(symbol) = index,
	GPUREC_HOOKED(INDEX)
#undef INDEX
};

enum { SUCCESS = 0, DEINITIALIZED = 4, NO_DRIVER = 500 };

struct call {
	struct thread *t;
	int err; /* the program's errno, ours to give back */
	unsigned api;
	uint64_t start;
	struct record r;
};

/*
 * Begins a call; false when it is not to be recorded, and nothing is to be ended
 * then. The stack is taken now: what is new of it travels ahead, so that a call
 * that never returns (Unfinished, from the lane's call slot) has one too.
 */
bool call_begin(struct call *c, unsigned api, uint64_t address, int64_t size);
void call_go(struct call *c);                  /* just before a real call that takes memory */
void call_took(struct call *c, CUresult status); /* after it: r.e.address, r.e.b (the handle) and r.e.size are set */
void call_tell(struct call *c, CUresult status); /* took, where more follows: call_back comes before, call_end after */
void call_refer(struct call *c, CUresult status); /* took, of what refers to memory that is counted elsewhere: refused, it is no event */
bool call_back(struct call *c);                /* just after either; false: the call is not the thread's any more, see gpurec_jumped */
void call_give(struct call *c);                /* before a real call that gives memory back */
void call_gave(struct call *c, CUresult status); /* after it */
void call_end(struct call *c);                 /* instead of took and gave, where there is no event */
void call_where(struct call *c);               /* sets the event's CUcontext and device from the current ones */
void call_captured(struct call *c, void *stream, bool per_thread); /* sets its stream, and whether that is being captured */
void call_written_down(struct call *c); /* it goes into a graph */

/* Sizes, the array's and an estimate where the driver tells nothing; array.c. */
struct array3 {
	size_t width, height, depth;
	int32_t format;
	uint32_t channels, flags;
};
int64_t call_array_size(const struct array3 *a, unsigned levels);

/*
 * Reserves, pool.c. What the driver keeps for stream-ordered pools and for
 * graphs is asked after calls that may have changed it, and never while a
 * capture may be open: the question would invalidate the capture.
 */
bool call_may_ask(void);
void call_capture(int by); /* a capture begins, or ends */
void call_graph_memory(int device); /* a graph has memory there */
bool call_graphs_hold(void);
void call_graph_reserves(struct call *c);
void call_freed(void); /* something that may be a pool's is given back */
CUresult call_synchronised(unsigned api, CUresult status, bool all); /* its status; asks for what a synchronisation has given back */
void call_reserves_end(int device); /* with the device's primary context */

/*
 * Defines both wrappers of a function: the exported one and its twin. They
 * differ in the real function alone; does is called with the api, that
 * function and the arguments.
 */
#define WRAP(symbol, parameters, does, ...) \
	EXPORT CUresult symbol parameters; \
	static CUresult twin_##symbol parameters; \
	void *const gpurec_front_##symbol[2] = {(void *)symbol, (void *)twin_##symbol}; \
	typedef CUresult type_##symbol parameters; \
	EXPORT CUresult symbol parameters \
	{ \
		void *found = gpurec_find_real(API(symbol), 0); \
		type_##symbol *real; \
		memcpy(&real, &found, sizeof found); \
		return real ? does(API(symbol), real, ##__VA_ARGS__) : NO_DRIVER; \
	} \
	static CUresult twin_##symbol parameters \
	{ \
		void *found = gpurec_find_real(API(symbol), 1); \
		type_##symbol *real; \
		memcpy(&real, &found, sizeof found); \
		bool before = gpurec_tls.second; \
		gpurec_tls.second = gpurec_two; \
		CUresult r = real ? does(API(symbol), real, ##__VA_ARGS__) : NO_DRIVER; \
		gpurec_tls.second = before; \
		return r; \
	}

#endif
