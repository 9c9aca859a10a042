/*
 * Streams and captures of the simulated driver: see driver.h.
 *
 * Nothing runs, so a stream is a name with a device, and what matters of a
 * capture is what it forbids: while one is open in GLOBAL mode, calls that the
 * real driver finds unsafe return 900 and invalidate it, and its EndCapture
 * then returns 901.
 */
#include "driver.h"

#define LEGACY_STREAM ((CUstream)1)
#define PER_THREAD_STREAM ((CUstream)2)

CUresult stream_resolve(CUstream handle, struct stream **s, int *dev)
{
	struct context *c;

	TRY(current_context(NULL, &c));
	*s = NULL;
	*dev = c->dev;
	if (!handle || handle == LEGACY_STREAM || handle == PER_THREAD_STREAM)
		return CUDA_SUCCESS;
	*s = table_get(&driver.streams, handle);
	if (!*s)
		return CUDA_ERROR_INVALID_HANDLE;
	*dev = (*s)->dev;
	return CUDA_SUCCESS;
}

static __thread int thread_mode; /* what captures of others mean to this thread */

API(cuThreadExchangeStreamCaptureMode, (int *mode))
{
	ENTER();
	if (!mode || *mode < CU_CAPTURE_GLOBAL || *mode > CU_CAPTURE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	int was = thread_mode;
	thread_mode = *mode;
	*mode = was;
	return CUDA_SUCCESS;
}

CUresult capture_unsafe(void)
{
	CUresult res = CUDA_SUCCESS;

	if (__builtin_expect(!atomic_load(&driver.captures), 1) || thread_mode == CU_CAPTURE_RELAXED)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&driver.lock);
	for (uint32_t i = 0; i < driver.streams.n; i++) {
		struct stream *s = atomic_load(&driver.streams.slot[i]);

		if (!s || !s->live || s->capture == CU_CAPTURE_NONE || s->mode == CU_CAPTURE_RELAXED)
			continue;
		if (s->mode == CU_CAPTURE_THREAD_LOCAL && !pthread_equal(s->by, pthread_self()))
			continue;
		s->capture = CU_CAPTURE_INVALIDATED;
		res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* ---- graphs ---- */

/* graph_drop frees the addresses of a graph. Wants driver.lock. */
static void graph_drop(CUgraph graph)
{
	pthread_mutex_lock(&driver.va.lock);
	for (uint32_t i = 1; i < driver.va.nblock; i++) {
		struct block *b = &driver.va.block[i];

		if (b->kind == KIND_GRAPH && b->owner == graph)
			heap_free(&driver.va, b);
	}
	pthread_mutex_unlock(&driver.va.lock);
	table_give(&driver.graphs, graph);
}

API(cuGraphDestroy, (CUgraph graph))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	if (table_get(&driver.graphs, graph)) {
		graph_drop(graph);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

CUresult graph_alloc(struct stream *s, size_t size, CUdeviceptr *out)
{
	if (size == 0) /* no node of a graph is of 0 bytes */
		return CUDA_ERROR_INVALID_VALUE;
	return s->capture == CU_CAPTURE_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : graph_take(s->graph, s->dev, size, out);
}

CUresult graph_take(CUgraph graph, int dev, size_t size, CUdeviceptr *out)
{
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&driver.va.lock);
	struct block *b = heap_alloc(&driver.va, size, KIND_GRAPH, 1);
	if (b) {
		b->owner = graph;
		b->dev = (uint8_t)dev;
		*out = b->addr;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.va.lock);
	return res;
}

CUresult graph_free(struct stream *s, CUdeviceptr p)
{
	return s->capture == CU_CAPTURE_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : graph_give(s->graph, p);
}

void graph_needs(CUgraph graph, uint64_t need[])
{
	pthread_mutex_lock(&driver.va.lock);
	for (uint32_t i = 1; i < driver.va.nblock; i++)
		if (driver.va.block[i].kind == KIND_GRAPH && driver.va.block[i].owner == graph)
			need[driver.va.block[i].dev] += driver.va.block[i].size;
	pthread_mutex_unlock(&driver.va.lock);
}

CUresult graph_give(CUgraph graph, CUdeviceptr p)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.va.lock);
	struct block *b = heap_find(&driver.va, p);
	if (b && b->kind == KIND_GRAPH && b->addr == p && b->owner == graph && !b->freed) {
		b->freed = true; /* the address stays the graph's until it is destroyed */
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.va.lock);
	return res;
}

/* ---- streams ---- */

/* capture_end closes a capture and gives its graph, or drops it. Wants driver.lock. */
static CUgraph capture_end(struct stream *s, bool keep)
{
	CUgraph graph = s->graph;

	s->capture = CU_CAPTURE_NONE;
	s->graph = NULL;
	atomic_fetch_sub(&driver.captures, 1);
	if (keep)
		return graph;
	graph_drop(graph);
	return NULL;
}

static void stream_end(CUstream handle, struct stream *s)
{
	if (s->capture != CU_CAPTURE_NONE)
		capture_end(s, false);
	table_give(&driver.streams, handle);
}

void streams_drop(CUcontext ctx)
{
	for (uint32_t i = 0; i < driver.streams.n; i++) {
		struct stream *s = atomic_load(&driver.streams.slot[i]);

		if (s && s->live && s->ctx == ctx)
			stream_end((CUstream)(uintptr_t)(driver.streams.tag + (uint64_t)(i + 1) * 64), s);
	}
}

API(cuStreamCreate, (CUstream *out, unsigned flags))
{
	ENTER();
	CUcontext ctx;
	struct context *c;

	TRY(current_context(&ctx, &c));
	if (!out || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct stream *s = table_take(&driver.streams, sizeof *s, out);
	if (s) {
		s->ctx = ctx;
		s->dev = c->dev;
	}
	pthread_mutex_unlock(&driver.lock);
	return s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult stream_destroy(CUstream handle)
{
	CUresult res = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&driver.lock);
	struct stream *s = table_get(&driver.streams, handle);
	if (s) {
		stream_end(handle, s);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuStreamDestroy, (CUstream handle))
{
	ENTER();
	return stream_destroy(handle);
}

API(cuStreamDestroy_v2, (CUstream handle))
{
	ENTER();
	return stream_destroy(handle);
}

static CUresult do_cuStreamSynchronize(CUstream handle)
{
	struct stream *s;
	int d;

	TRY(stream_resolve(handle, &s, &d));
	if (s && s->capture != CU_CAPTURE_NONE) {
		s->capture = CU_CAPTURE_INVALIDATED;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	TRY(capture_unsafe());
	pthread_mutex_lock(&driver.dev[d].heap.lock);
	pools_trim(&driver.dev[d], false);
	pthread_mutex_unlock(&driver.dev[d].heap.lock);
	return CUDA_SUCCESS;
}
TWINS(cuStreamSynchronize, _ptsz, (CUstream s), (s))

static CUresult do_cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	struct stream *s;
	struct context *c;
	int d;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(stream_resolve(handle, &s, &d));
	if (s) {
		*out = s->ctx;
		return CUDA_SUCCESS;
	}
	return current_context(out, &c);
}
TWINS(cuStreamGetCtx, _ptsz, (CUstream s, CUcontext *out), (s, out))

/* The newer form tells of green contexts too; there are none here. */
static CUresult do_cuStreamGetCtx_v2(CUstream handle, CUcontext *out, void **green)
{
	TRY(do_cuStreamGetCtx(handle, out));
	if (green)
		*green = NULL;
	return CUDA_SUCCESS;
}
TWINS(cuStreamGetCtx_v2, _ptsz, (CUstream s, CUcontext *out, void **green), (s, out, green))

static CUresult do_cuStreamGetDevice(CUstream handle, CUdevice *out)
{
	struct stream *s;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_unsafe());
	return stream_resolve(handle, &s, out);
}
TWINS(cuStreamGetDevice, _ptsz, (CUstream s, CUdevice *out), (s, out))

static CUresult do_cuStreamIsCapturing(CUstream handle, int *status)
{
	struct stream *s;
	int d;

	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(stream_resolve(handle, &s, &d));
	*status = s ? s->capture : CU_CAPTURE_NONE;
	return CUDA_SUCCESS;
}
TWINS(cuStreamIsCapturing, _ptsz, (CUstream s, int *status), (s, status))

/* capture_begin captures into a graph, or into a new one. */
static CUresult capture_begin(CUstream handle, CUgraph into, int mode)
{
	struct stream *s;
	CUresult res = CUDA_SUCCESS;
	int d;

	TRY(stream_resolve(handle, &s, &d));
	if (!s) /* the legacy stream cannot be captured; the per-thread one is not simulated */
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (mode < CU_CAPTURE_GLOBAL || mode > CU_CAPTURE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	if (s->capture != CU_CAPTURE_NONE || (into && !table_get(&driver.graphs, into)))
		res = CUDA_ERROR_INVALID_VALUE;
	else if (into)
		s->graph = into;
	else if (!table_take(&driver.graphs, sizeof(struct graph), &s->graph))
		res = CUDA_ERROR_OUT_OF_MEMORY;
	if (!res) {
		s->capture = CU_CAPTURE_ACTIVE;
		s->mode = mode;
		s->by = pthread_self();
		atomic_fetch_add(&driver.captures, 1);
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

static CUresult do_cuStreamBeginCapture(CUstream handle)
{
	return capture_begin(handle, NULL, CU_CAPTURE_GLOBAL);
}
TWINS(cuStreamBeginCapture, _ptsz, (CUstream s), (s))

static CUresult do_cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const void *after, const void *edges, size_t n, int mode)
{
	(void)edges;
	if (!graph || (n && !after))
		return CUDA_ERROR_INVALID_VALUE;
	return capture_begin(handle, graph, mode);
}
TWINS(cuStreamBeginCaptureToGraph, _ptsz,
      (CUstream s, CUgraph graph, const void *after, const void *edges, size_t n, int mode), (s, graph, after, edges, n, mode))

static CUresult do_cuStreamBeginCapture_v2(CUstream handle, int mode)
{
	return capture_begin(handle, NULL, mode);
}
TWINS(cuStreamBeginCapture_v2, _ptsz, (CUstream s, int mode), (s, mode))

static CUresult do_cuStreamEndCapture(CUstream handle, CUgraph *out)
{
	struct stream *s;
	CUresult res;
	int d;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(stream_resolve(handle, &s, &d));
	*out = NULL;
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	if (s->capture == CU_CAPTURE_NONE) {
		res = CUDA_ERROR_INVALID_VALUE;
	} else if (s->mode != CU_CAPTURE_RELAXED && !pthread_equal(s->by, pthread_self())) {
		res = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	} else {
		res = s->capture == CU_CAPTURE_ACTIVE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		*out = capture_end(s, res == CUDA_SUCCESS);
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}
TWINS(cuStreamEndCapture, _ptsz, (CUstream s, CUgraph *out), (s, out))

/* ---- events ---- */

/* An event is the device that it was made on; nothing runs, so it has always happened. */
API(cuEventCreate, (void **out, unsigned flags))
{
	ENTER();
	struct context *c;

	TRY(current_context(NULL, &c));
	if (!out || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (void *)(uintptr_t)(0x5aull << 56 | (unsigned)c->dev);
	return CUDA_SUCCESS;
}

API(cuEventSynchronize, (void *event))
{
	ENTER();
	int d = (int)((uintptr_t)event & 0xff);

	TRY(capture_unsafe());
	if ((uintptr_t)event >> 56 != 0x5a || d >= driver.devices)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver.dev[d].heap.lock);
	pools_trim(&driver.dev[d], false);
	pthread_mutex_unlock(&driver.dev[d].heap.lock);
	return CUDA_SUCCESS;
}
