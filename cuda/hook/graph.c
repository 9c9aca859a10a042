/*
 * graph.c - the wrappers of graphs that hold memory, and of captures.
 *
 * An alloc node takes nothing: it is written down, like an alloc in a capture.
 * What graphs take when they run the driver keeps for all graphs of a device and
 * shares among them; that reserve is asked after launches (pool.c).
 */
#include "call.h"

/* CUDA_MEM_ALLOC_NODE_PARAMS. */
struct alloc_params {
	int32_t type, handle_types, location_type, location_id;
	unsigned char rest[72]; /* of CUmemPoolProps */
	const void *access;
	size_t count, size;
	CUdeviceptr p; /* out */
};
_Static_assert(sizeof(struct alloc_params) == 120 && offsetof(struct alloc_params, size) == 104, "CUDA_MEM_ALLOC_NODE_PARAMS");

/* CUgraphNodeParams. */
struct node_params {
	int32_t type, reserved[3];
	union {
		struct alloc_params alloc;
		CUdeviceptr free;
	};
};
_Static_assert(offsetof(struct node_params, alloc) == 16, "CUgraphNodeParams");
enum { NODE_MEM_ALLOC = 10, NODE_MEM_FREE = 11, LOCATION_DEVICE = 1 };

static void took_node(struct call *c, CUresult status, const struct alloc_params *p)
{
	if (!call_back(c))
		return;
	c->r.e.kind = GPUREC_KIND_ALLOC;
	call_written_down(c);
	if (status == SUCCESS)
		c->r.e.address = p->p;
	if (p && p->location_type == LOCATION_DEVICE)
		c->r.e.device = gpurec_device(c->t, p->location_id, true);
	call_tell(c, status);
	if (status == SUCCESS)
		call_graph_memory(c->r.e.device);
	call_end(c);
}

static CUresult add_alloc(unsigned api, CUresult (*real)(void **, void *, const void *, size_t, struct alloc_params *), void **node,
                          void *graph, const void *after, size_t n, struct alloc_params *p)
{
	struct call c;
	if (!call_begin(&c, api, 0, p ? (int64_t)p->size : 0))
		return real(node, graph, after, n, p);
	call_go(&c);
	CUresult status = real(node, graph, after, n, p);
	took_node(&c, status, p);
	return status;
}
WRAP(cuGraphAddMemAllocNode, (void **node, void *graph, const void *after, size_t n, struct alloc_params *p), add_alloc, node, graph, after,
     n, p)

static CUresult add_free(unsigned api, CUresult (*real)(void **, void *, const void *, size_t, CUdeviceptr), void **node, void *graph,
                         const void *after, size_t n, CUdeviceptr p)
{
	struct call c;
	if (!call_begin(&c, api, p, -1))
		return real(node, graph, after, n, p);
	call_written_down(&c);
	call_give(&c);
	CUresult status = real(node, graph, after, n, p);
	call_gave(&c, status);
	return status;
}
WRAP(cuGraphAddMemFreeNode, (void **node, void *graph, const void *after, size_t n, CUdeviceptr p), add_free, node, graph, after, n, p)

/* Any kind of node; those without memory are none of ours. */
static bool node_begin(struct call *c, unsigned api, const struct node_params *p)
{
	if (p == NULL || (p->type != NODE_MEM_ALLOC && p->type != NODE_MEM_FREE))
		return false;
	bool alloc = p->type == NODE_MEM_ALLOC;
	if (!call_begin(c, api, alloc ? 0 : p->free, alloc ? (int64_t)p->alloc.size : -1))
		return false;
	call_written_down(c);
	if (alloc) {
		call_go(c);
	} else {
		c->r.e.kind = GPUREC_KIND_FREE;
		call_give(c);
	}
	return true;
}

static void node_end(struct call *c, CUresult status, const struct node_params *p)
{
	if (p->type == NODE_MEM_ALLOC)
		took_node(c, status, &p->alloc);
	else
		call_gave(c, status);
}

static CUresult add_node(unsigned api, CUresult (*real)(void **, void *, const void *, size_t, struct node_params *), void **node,
                         void *graph, const void *after, size_t n, struct node_params *p)
{
	struct call c;
	if (!node_begin(&c, api, p))
		return real(node, graph, after, n, p);
	CUresult status = real(node, graph, after, n, p);
	node_end(&c, status, p);
	return status;
}
WRAP(cuGraphAddNode, (void **node, void *graph, const void *after, size_t n, struct node_params *p), add_node, node, graph, after, n, p)

static CUresult add_node_v2(unsigned api, CUresult (*real)(void **, void *, const void *, const void *, size_t, struct node_params *),
                            void **node, void *graph, const void *after, const void *edges, size_t n, struct node_params *p)
{
	struct call c;
	if (!node_begin(&c, api, p))
		return real(node, graph, after, edges, n, p);
	CUresult status = real(node, graph, after, edges, n, p);
	node_end(&c, status, p);
	return status;
}
WRAP(cuGraphAddNode_v2, (void **node, void *graph, const void *after, const void *edges, size_t n, struct node_params *p), add_node_v2, node,
     graph, after, edges, n, p)

/* ---- running ---------------------------------------------------------------------------------------- */

/* What ran may have changed what is kept; a graph without memory nodes costs a look at a word. */
static CUresult ran(unsigned api, CUresult status)
{
	struct call c;
	if (status != SUCCESS || !call_graphs_hold() || !call_may_ask() || !call_begin(&c, api, 0, -1))
		return status;
	call_graph_reserves(&c);
	call_end(&c);
	return status;
}

static CUresult run(unsigned api, CUresult (*real)(void *, void *), void *exec, void *stream) { return ran(api, real(exec, stream)); }
WRAP(cuGraphLaunch, (void *exec, void *stream), run, exec, stream)
WRAP(cuGraphLaunch_ptsz, (void *exec, void *stream), run, exec, stream)
WRAP(cuGraphUpload, (void *exec, void *stream), run, exec, stream)
WRAP(cuGraphUpload_ptsz, (void *exec, void *stream), run, exec, stream)

static CUresult trim(unsigned api, CUresult (*real)(CUdevice), CUdevice device) { return ran(api, real(device)); }
WRAP(cuDeviceGraphMemTrim, (CUdevice device), trim, device)

/* ---- captures --------------------------------------------------------------------------------------- */

/* Counted from before its begin until the driver says that it has ended; one
 * that ends otherwise, with its stream, counts on, and then less is asked. */
static CUresult begun(CUresult status)
{
	if (status != SUCCESS)
		call_capture(-1);
	return status;
}

static CUresult begin_v1(unsigned api, CUresult (*real)(void *), void *stream)
{
	(void)api;
	call_capture(1);
	return begun(real(stream));
}
WRAP(cuStreamBeginCapture, (void *stream), begin_v1, stream)
WRAP(cuStreamBeginCapture_ptsz, (void *stream), begin_v1, stream)

static CUresult begin(unsigned api, CUresult (*real)(void *, int), void *stream, int mode)
{
	(void)api;
	call_capture(1);
	return begun(real(stream, mode));
}
WRAP(cuStreamBeginCapture_v2, (void *stream, int mode), begin, stream, mode)
WRAP(cuStreamBeginCapture_v2_ptsz, (void *stream, int mode), begin, stream, mode)

static CUresult begin_to_graph(unsigned api, CUresult (*real)(void *, void *, const void *, const void *, size_t, int), void *stream,
                               void *graph, const void *after, const void *edges, size_t n, int mode)
{
	(void)api;
	call_capture(1);
	return begun(real(stream, graph, after, edges, n, mode));
}
WRAP(cuStreamBeginCaptureToGraph, (void *stream, void *graph, const void *after, const void *edges, size_t n, int mode), begin_to_graph,
     stream, graph, after, edges, n, mode)
WRAP(cuStreamBeginCaptureToGraph_ptsz, (void *stream, void *graph, const void *after, const void *edges, size_t n, int mode),
     begin_to_graph, stream, graph, after, edges, n, mode)

static bool capturing(void *stream, bool per_thread)
{
	enum { PER_THREAD = 2 };
	int status = 0;
	if (stream == NULL && per_thread)
		stream = (void *)PER_THREAD;
	return stream != NULL && gpurec_asked.cuStreamIsCapturing && gpurec_asked.cuStreamIsCapturing(stream, &status) == SUCCESS && status != 0;
}

static CUresult end(unsigned api, CUresult (*real)(void *, void **), void *stream, void **graph)
{
	bool per_thread = api == API(cuStreamEndCapture_ptsz), before = capturing(stream, per_thread);
	CUresult status = real(stream, graph);
	int err = errno;
	if (before && !capturing(stream, per_thread))
		call_capture(-1);
	errno = err;
	return status;
}
WRAP(cuStreamEndCapture, (void *stream, void **graph), end, stream, graph)
WRAP(cuStreamEndCapture_ptsz, (void *stream, void **graph), end, stream, graph)
