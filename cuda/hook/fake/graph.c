/*
 * Graphs with memory in the simulated driver: see driver.h.
 *
 * A graph's addresses are its own from the node on; memory comes behind them
 * when it is launched, and is kept for the graphs of the device, which share it:
 * the reserve is as large as the largest graph launched so far needs.
 */
#include "driver.h"

#define RESERVE_STEP (32ull << 20)

/* CUDA_MEM_ALLOC_NODE_PARAMS. */
struct alloc_params {
	CUmemPoolProps props;
	const CUmemAccessDesc *access;
	size_t count, size;
	CUdeviceptr p;
};
struct node_params {
	int type, reserved[3];
	union {
		struct alloc_params alloc;
		CUdeviceptr free;
		uint64_t words[29];
	};
	uint64_t reserved2;
};
_Static_assert(sizeof(struct node_params) == 256, "CUgraphNodeParams");
enum { NODE_EMPTY = 5, NODE_MEM_ALLOC = 10, NODE_MEM_FREE = 11 };

struct exec {
	_Atomic uint32_t live;
	uint64_t need[SIM_MAX_DEVICES];
};

/* Under driver.lock. */
static uint64_t reserve[SIM_MAX_DEVICES], reserve_high[SIM_MAX_DEVICES];

API(cuGraphCreate, (CUgraph *out, unsigned flags))
{
	ENTER();
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct graph *g = table_take(&driver.graphs, sizeof *g, out);
	pthread_mutex_unlock(&driver.lock);
	return g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A node is known by nothing: its handle only has to be one. */
static CUresult add(void **node, CUgraph graph, const void *after, size_t n)
{
	if (!node || !table_get(&driver.graphs, graph) || (n && !after))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult add_alloc(void **node, CUgraph graph, const void *after, size_t n, struct alloc_params *p)
{
	TRY(add(node, graph, after, n));
	if (!p || p->size == 0 || p->props.alloc_type != 1 || p->props.location.type != CU_LOCATION_DEVICE ||
	    p->props.location.id < 0 || p->props.location.id >= driver.devices)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(graph_take(graph, p->props.location.id, p->size, &p->p));
	*node = (void *)(uintptr_t)p->p;
	return CUDA_SUCCESS;
}

static CUresult add_free(void **node, CUgraph graph, const void *after, size_t n, CUdeviceptr p)
{
	TRY(add(node, graph, after, n));
	TRY(graph_give(graph, p));
	*node = (void *)(uintptr_t)(p + 1);
	return CUDA_SUCCESS;
}

API(cuGraphAddMemAllocNode, (void **node, CUgraph graph, const void *after, size_t n, struct alloc_params *p))
{
	ENTER();
	return add_alloc(node, graph, after, n, p);
}

API(cuGraphAddMemFreeNode, (void **node, CUgraph graph, const void *after, size_t n, CUdeviceptr p))
{
	ENTER();
	return add_free(node, graph, after, n, p);
}

static CUresult add_node(void **node, CUgraph graph, const void *after, size_t n, struct node_params *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case NODE_MEM_ALLOC:
		return add_alloc(node, graph, after, n, &p->alloc);
	case NODE_MEM_FREE:
		return add_free(node, graph, after, n, p->free);
	case NODE_EMPTY:
		TRY(add(node, graph, after, n));
		*node = graph;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphAddNode, (void **node, CUgraph graph, const void *after, size_t n, struct node_params *p))
{
	ENTER();
	return add_node(node, graph, after, n, p);
}

API(cuGraphAddNode_v2, (void **node, CUgraph graph, const void *after, const void *edges, size_t n, struct node_params *p))
{
	ENTER();
	(void)edges;
	return add_node(node, graph, after, n, p);
}

API(cuGraphInstantiateWithFlags, (void **out, CUgraph graph, unsigned long long flags))
{
	ENTER();
	(void)flags;
	if (!out || !table_get(&driver.graphs, graph))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct exec *x = table_take(&driver.execs, sizeof *x, out);
	if (x)
		graph_needs(graph, x->need);
	pthread_mutex_unlock(&driver.lock);
	return x ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuGraphExecDestroy, (void *exec))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	if (table_get(&driver.execs, exec)) {
		table_give(&driver.execs, exec);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

static CUresult run(void *exec, CUstream stream)
{
	struct stream *s;
	CUresult res = CUDA_SUCCESS;
	int d;

	TRY(stream_resolve(stream, &s, &d));
	pthread_mutex_lock(&driver.lock);
	struct exec *x = table_get(&driver.execs, exec);
	if (!x)
		res = CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; !res && i < driver.devices; i++) {
		uint64_t need = (x->need[i] + RESERVE_STEP - 1) / RESERVE_STEP * RESERVE_STEP;

		if (need <= reserve[i])
			continue;
		if (!device_charge(&driver.dev[i], (int64_t)(need - reserve[i]))) {
			res = CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
		reserve[i] = need;
		if (need > reserve_high[i])
			reserve_high[i] = need;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

static CUresult do_cuGraphLaunch(void *exec, CUstream stream)
{
	return run(exec, stream);
}
TWINS(cuGraphLaunch, _ptsz, (void *exec, CUstream stream), (exec, stream))

static CUresult do_cuGraphUpload(void *exec, CUstream stream)
{
	return run(exec, stream);
}
TWINS(cuGraphUpload, _ptsz, (void *exec, CUstream stream), (exec, stream))

void graphs_trim(int d)
{
	device_charge(&driver.dev[d], -(int64_t)reserve[d]);
	reserve[d] = 0;
}

API(cuDeviceGraphMemTrim, (CUdevice d))
{
	ENTER();
	if (d < 0 || d >= driver.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver.lock);
	graphs_trim(d);
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

/* Used: nothing runs, so nothing is. Taken for unsafe in a capture, like a pool's. */
API(cuDeviceGetGraphMemAttribute, (CUdevice d, int attr, void *value))
{
	ENTER();
	TRY(capture_unsafe());
	if (!value || attr < 0 || attr > 3)
		return CUDA_ERROR_INVALID_VALUE;
	if (d < 0 || d >= driver.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver.lock);
	*(uint64_t *)value = attr == 2 ? reserve[d] : attr == 3 ? reserve_high[d] : 0;
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}
