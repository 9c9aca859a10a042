/*
 * entry.c - every function of the driver that the recorder wraps, called with
 * success, with failure and with odd arguments (NULL, 0, huge), and every free
 * across the families of functions.
 *
 * Shows: that what a call returns is what it returns without the recorder, and
 * which events it makes: each call is preceded by a mark of its number in the
 * trace. One line a call, columns separated by tabs:
 *
 *   number  function  case  call  status  taken  reserved  graph  own-before  own
 *
 * taken is by how much cuMemGetInfo's free bytes fell in this call; reserved what
 * the device's own pool keeps (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), graph what is
 * kept for graphs (CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), both after the call, own
 * what the program's pool keeps, before and after it; each call ends with a mark too, "#"; "-" where nothing may be asked, as in a capture. A case that is
 * not for this driver is a line with "skipped" and the reason in place of a status.
 *
 * Build: cc -O2 -o entry entry.c -ldl
 * Run:   ./entry          on the simulated driver: all
 *        ./entry --gpu    on a real one: what can do no harm there
 *
 * A call that prepares others and fails is a line too, "differs: needs 0, got N" in
 * place of a status, and the rest of its case is left out.
 *
 * Exit: 0; 1 if nothing can be asked at all, or the other process failed.
 */
#define _GNU_SOURCE
#include "entry.h"
#include "entry_memory.h"

/* ---- graphs and captures ---- */

/* Runs what has been put together, twice, with what can be asked asked in between. */
static int run_graph(void *graph)
{
	void *exec;

	MUST(GraphInstantiateWithFlags(&exec, graph, 0));
	MUST(STEP(GraphUpload(exec, stream)));
	MUST(StreamSynchronize(stream));
	MUST(STEP(GraphLaunch(exec, stream)));
	MUST(StreamSynchronize(stream));
	MUST(STEP(GraphLaunch_ptsz(exec, stream)));
	MUST(StreamSynchronize(stream));
	MUST(GraphExecDestroy(exec));
	MUST(GraphDestroy(graph));
	MUST(STEP(DeviceGraphMemTrim(0)));
	return 0;
}

static void graphs(void)
{
	access_desc access = {{1, 0}, 3};
	alloc_node a = {.props = {.type = 1, .at = {1, 0}}, .access = &access, .count = 1, .size = 64 * MIB}, bad = {.size = 0};
	node_params alloc = {.type = 10, .alloc = {.props = {.type = 1, .at = {1, 0}}, .access = &access, .count = 1, .size = 64 * MIB}}, release = {.type = 11}, empty = {.type = 5};
	void *graph, *first, *second, *none = NULL;

	CASE(GraphAddMemAllocNode, success, ANYWHERE) {
		NEED(GraphCreate(&graph, 0));
		NEED(STEP(GraphAddMemAllocNode(&first, graph, NULL, 0, &a)));
		NEED(STEP(GraphAddMemFreeNode(&second, graph, &first, 1, a.p)));
		if (run_graph(graph)) break;
	}
	CASE(GraphAddMemAllocNode, failure, ANYWHERE) { NEED(GraphCreate(&graph, 0)); STEP(GraphAddMemAllocNode(&first, graph, NULL, 0, &bad)); }
	CASE(GraphAddMemAllocNode, odd, NULL_OUT) { STEP(GraphAddMemAllocNode(NULL, NULL, NULL, 0, NULL)); }
	CASE(GraphAddMemFreeNode, success, ANYWHERE) { NEED(STEP(GraphAddMemAllocNode(&first, graph, NULL, 0, &a))); NEED(STEP(GraphAddMemFreeNode(&second, graph, &first, 1, a.p))); }
	CASE(GraphAddMemFreeNode, failure, ANYWHERE) { STEP(GraphAddMemFreeNode(&second, graph, &first, 1, a.p)); NEED(GraphDestroy(graph)); }
	CASE(GraphAddMemFreeNode, odd, NULL_OUT) { STEP(GraphAddMemFreeNode(NULL, NULL, NULL, 0, 0)); }
	CASE(GraphAddNode, success, ANYWHERE) {
		NEED(GraphCreate(&graph, 0));
		NEED(STEP(GraphAddNode(&first, graph, NULL, 0, &alloc)));
		release.free = alloc.alloc.p;
		NEED(STEP(GraphAddNode(&second, graph, &first, 1, &release)));
		NEED(STEP(GraphAddNode(&first, graph, NULL, 0, &empty)));
	}
	CASE(GraphAddNode, failure, ANYWHERE) { release.free = 0; STEP(GraphAddNode(&second, graph, NULL, 0, &release)); NEED(GraphDestroy(graph)); }
	CASE(GraphAddNode, odd, NULL_OUT) { STEP(GraphAddNode(NULL, NULL, NULL, 0, NULL)); }
	CASE(GraphAddNode_v2, success, ANYWHERE) {
		NEED(GraphCreate(&graph, 0));
		NEED(STEP(GraphAddNode_v2(&first, graph, NULL, NULL, 0, &alloc)));
		release.free = alloc.alloc.p;
		NEED(STEP(GraphAddNode_v2(&second, graph, &first, NULL, 1, &release)));
		if (run_graph(graph)) break;
	}
	CASE(GraphAddNode_v2, failure, NULL_OUT) { alloc.alloc.size = 0; STEP(GraphAddNode_v2(NULL, NULL, NULL, NULL, 0, &alloc)); }
	CASE(GraphAddNode_v2, odd, NULL_OUT) { STEP(GraphAddNode_v2(NULL, NULL, NULL, NULL, 0, NULL)); }
	CASE(GraphUpload, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); if (run_graph(graph)) break; }
	CASE(GraphUpload, failure, BOGUS) { STEP(GraphUpload(&none, stream)); }
	CASE(GraphUpload, odd, BOGUS) { STEP(GraphUpload(NULL, NULL)); }
	CASE(GraphUpload_ptsz, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); NEED(GraphInstantiateWithFlags(&first, graph, 0)); NEED(STEP(GraphUpload_ptsz(first, stream))); NEED(StreamSynchronize(stream)); NEED(GraphExecDestroy(first)); NEED(GraphDestroy(graph)); }
	CASE(GraphUpload_ptsz, failure, BOGUS) { STEP(GraphUpload_ptsz(&none, stream)); }
	CASE(GraphUpload_ptsz, odd, BOGUS) { STEP(GraphUpload_ptsz(NULL, NULL)); }
	CASE(GraphLaunch, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); if (run_graph(graph)) break; }
	CASE(GraphLaunch, failure, BOGUS) { STEP(GraphLaunch(&none, stream)); }
	CASE(GraphLaunch, odd, BOGUS) { STEP(GraphLaunch(NULL, NULL)); }
	CASE(GraphLaunch_ptsz, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); if (run_graph(graph)) break; }
	CASE(GraphLaunch_ptsz, failure, BOGUS) { STEP(GraphLaunch_ptsz(&none, stream)); }
	CASE(GraphLaunch_ptsz, odd, BOGUS) { STEP(GraphLaunch_ptsz(NULL, NULL)); }
	CASE(DeviceGraphMemTrim, success, ANYWHERE) { NEED(STEP(DeviceGraphMemTrim(0))); }
	CASE(DeviceGraphMemTrim, failure, ANYWHERE) { STEP(DeviceGraphMemTrim(77)); }
	CASE(DeviceGraphMemTrim, odd, ANYWHERE) { STEP(DeviceGraphMemTrim(-1)); }
}

/* What is asked of a stream that is being captured goes into its graph, and the
 * capture stays valid. One that began elsewhere keeps the recorder from asking. */
static int capture_into(void *graph)
{
	ptr p;

	MUST(STEP(MemAllocAsync(&p, 8 * MIB, stream)));
	MUST(STEP(MemFreeAsync(p, stream)));
	/* On a stream that is not captured, while another is. The real driver's answer to
	 * it on a thread's own stream is 900, not permitted. */
	if (!gpu) {
		MUST(STEP(MemAllocAsync_ptsz(&p, 4 * MIB, NULL)));
		MUST(STEP(MemFreeAsync_ptsz(p, NULL)));
	}
	MUST(STEP(StreamEndCapture(stream, &graph)));
	capturing = 0;
	MUST(graph == NULL);
	MUST(CtxSynchronize());
	return 0;
}

static void captures(void)
{
	void *graph = NULL, *event;

	CASE(StreamBeginCapture_v2, success, ANYWHERE) { capturing = 1; NEED(STEP(StreamBeginCapture_v2(stream, 0))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture_v2, failure, ANYWHERE) { STEP(StreamBeginCapture_v2((void *)1, 0)); }
	CASE(StreamBeginCapture_v2, odd, ANYWHERE) { STEP(StreamBeginCapture_v2(stream, 99)); }
	CASE(StreamBeginCapture_v2_ptsz, success, ANYWHERE) { capturing = 1; NEED(STEP(StreamBeginCapture_v2_ptsz(stream, 1))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture_v2_ptsz, failure, ANYWHERE) { STEP(StreamBeginCapture_v2_ptsz((void *)1, 0)); }
	CASE(StreamBeginCapture_v2_ptsz, odd, ANYWHERE) { STEP(StreamBeginCapture_v2_ptsz(stream, 99)); }
	CASE(StreamBeginCapture, success, OLD) { capturing = 1; NEED(STEP(StreamBeginCapture(stream))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture, failure, OLD) { STEP(StreamBeginCapture((void *)1)); }
	CASE(StreamBeginCapture, odd, OLD) { STEP(StreamBeginCapture(NULL)); }
	CASE(StreamBeginCapture_ptsz, success, OLD) { capturing = 1; NEED(STEP(StreamBeginCapture_ptsz(stream))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture_ptsz, failure, OLD) { STEP(StreamBeginCapture_ptsz((void *)1)); }
	CASE(StreamBeginCapture_ptsz, odd, OLD) { STEP(StreamBeginCapture_ptsz((void *)1)); }
	CASE(StreamBeginCaptureToGraph, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); capturing = 1; NEED(STEP(StreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, 2))); if (capture_into(graph)) break; }
	CASE(StreamBeginCaptureToGraph, failure, BOGUS) { STEP(StreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, 0)); }
	CASE(StreamBeginCaptureToGraph, odd, BOGUS) { STEP(StreamBeginCaptureToGraph(NULL, NULL, NULL, NULL, 1, 99)); }
	CASE(StreamBeginCaptureToGraph_ptsz, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); capturing = 1; NEED(STEP(StreamBeginCaptureToGraph_ptsz(stream, graph, NULL, NULL, 0, 0))); if (capture_into(graph)) break; }
	CASE(StreamBeginCaptureToGraph_ptsz, failure, BOGUS) { STEP(StreamBeginCaptureToGraph_ptsz(stream, NULL, NULL, NULL, 0, 0)); }
	CASE(StreamBeginCaptureToGraph_ptsz, odd, BOGUS) { STEP(StreamBeginCaptureToGraph_ptsz(NULL, NULL, NULL, NULL, 1, 99)); }
	CASE(StreamEndCapture, success, ANYWHERE) { NEED(StreamBeginCapture_v2(stream, 0)); capturing = 1; NEED(STEP(StreamEndCapture(stream, &graph))); capturing = 0; }
	CASE(StreamEndCapture, failure, ANYWHERE) { STEP(StreamEndCapture(stream, &graph)); }
	CASE(StreamEndCapture, odd, NULL_OUT) { STEP(StreamEndCapture(NULL, NULL)); }
	CASE(StreamEndCapture_ptsz, success, ANYWHERE) { NEED(StreamBeginCapture_v2(stream, 0)); capturing = 1; NEED(STEP(StreamEndCapture_ptsz(stream, &graph))); capturing = 0; }
	CASE(StreamEndCapture_ptsz, failure, ANYWHERE) { STEP(StreamEndCapture_ptsz(stream, &graph)); }
	CASE(StreamEndCapture_ptsz, odd, NULL_OUT) { STEP(StreamEndCapture_ptsz(NULL, NULL)); }

	CASE(StreamSynchronize, success, ANYWHERE) { NEED(STEP(StreamSynchronize(stream))); }
	CASE(StreamSynchronize, failure, BOGUS) { STEP(StreamSynchronize(&graph)); }
	CASE(StreamSynchronize, odd, ANYWHERE) { STEP(StreamSynchronize(NULL)); }
	CASE(StreamSynchronize_ptsz, success, ANYWHERE) { NEED(STEP(StreamSynchronize_ptsz(NULL))); }
	CASE(StreamSynchronize_ptsz, failure, BOGUS) { STEP(StreamSynchronize_ptsz(&graph)); }
	CASE(StreamSynchronize_ptsz, odd, ANYWHERE) { STEP(StreamSynchronize_ptsz((void *)2)); }
	CASE(EventSynchronize, success, ANYWHERE) { NEED(EventCreate(&event, 0)); NEED(STEP(EventSynchronize(event))); }
	CASE(EventSynchronize, failure, BOGUS) { STEP(EventSynchronize(&graph)); }
	CASE(EventSynchronize, odd, BOGUS) { STEP(EventSynchronize(NULL)); }
	CASE(CtxSynchronize, success, ANYWHERE) { NEED(STEP(CtxSynchronize())); }
	CASE(CtxSynchronize, failure, ANYWHERE) { NEED(CtxSetCurrent(NULL)); capturing = 1; STEP(CtxSynchronize()); capturing = 0; NEED(CtxSetCurrent(ctx)); }
	CASE(CtxSynchronize, odd, ANYWHERE) { STEP(CtxSynchronize()); }
}

/* ---- contexts ---- */

/* A block that the end of its context ends too. */
static int left(void)
{
	ptr p;

	MUST(MemAlloc_v2(&p, MIB)); /* a CUcontext's first takes some for itself */
	MUST(MemFree_v2(p));
	MUST(STEP(MemAlloc_v2(&p, 4 * MIB)));
	return 0;
}

/* With a CUcontext ends what a real driver took for it, too, so that its end's bytes
 * are not asked there. */
static int contexts(void)
{
	void *own = NULL;

	CASE(CtxDestroy_v2, success, ANYWHERE) { NEED(CtxCreate_v2(&own, 0, 0)); if (left()) break; capturing = gpu; NEED(STEP(CtxDestroy_v2(own))); capturing = 0; NEED(CtxSetCurrent(ctx)); }
	CASE(CtxDestroy_v2, failure, BOGUS) { STEP(CtxDestroy_v2(own)); }
	CASE(CtxDestroy_v2, odd, BOGUS) { STEP(CtxDestroy_v2(NULL)); }
	CASE(CtxDestroy, success, OLD) { NEED(CtxCreate_v2(&own, 0, 0)); if (left()) break; NEED(STEP(CtxDestroy(own))); NEED(CtxSetCurrent(ctx)); }
	CASE(CtxDestroy, failure, OLD) { STEP(CtxDestroy(own)); }
	CASE(CtxDestroy, odd, OLD) { STEP(CtxDestroy(NULL)); }
	CASE(CtxDetach, success, OLD) { NEED(CtxCreate_v2(&own, 0, 0)); if (left()) break; NEED(STEP(CtxDetach(own))); NEED(CtxSetCurrent(ctx)); }
	CASE(CtxDetach, failure, OLD) { STEP(CtxDetach(own)); }
	CASE(CtxDetach, odd, OLD) { STEP(CtxDetach(NULL)); }
	CASE(CheckpointProcessCheckpoint, success, CHECKPOINT) { NEED(STEP(CheckpointProcessCheckpoint(1, NULL))); }
	CASE(CheckpointProcessCheckpoint, failure, CHECKPOINT) { STEP(CheckpointProcessCheckpoint(0x7fffffff, NULL)); }
	CASE(CheckpointProcessCheckpoint, odd, CHECKPOINT) { STEP(CheckpointProcessCheckpoint(-1, NULL)); }
	CASE(CheckpointProcessRestore, success, CHECKPOINT) { NEED(STEP(CheckpointProcessRestore(1, NULL))); }
	CASE(CheckpointProcessRestore, failure, CHECKPOINT) { STEP(CheckpointProcessRestore(0x7fffffff, NULL)); }
	CASE(CheckpointProcessRestore, odd, CHECKPOINT) { STEP(CheckpointProcessRestore(0, NULL)); }

	/* From here on each ends the device's primary context, and what is in it. */
	MUST(StreamDestroy_v2(stream));
	stream = NULL;
	CASE(GreenCtxDestroy, success, UNSURE) {
		if (left()) break;
		NEED(GreenCtxCreate(&own, NULL, 0, 1));
		NEED(DevicePrimaryCtxRelease_v2(0));
		capturing = 1;
		NEED(STEP(GreenCtxDestroy(own)));
		capturing = 0;
		if (again()) break;
	}
	CASE(GreenCtxDestroy, failure, BOGUS) { STEP(GreenCtxDestroy(&own)); }
	CASE(GreenCtxDestroy, odd, BOGUS) { STEP(GreenCtxDestroy(NULL)); }
	CASE(DevicePrimaryCtxRelease_v2, success, ANYWHERE) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxRelease_v2(0))); capturing = 0; if (again()) break; }
	CASE(DevicePrimaryCtxRelease_v2, failure, ANYWHERE) { STEP(DevicePrimaryCtxRelease_v2(77)); }
	CASE(DevicePrimaryCtxRelease_v2, odd, ANYWHERE) { STEP(DevicePrimaryCtxRelease_v2(-1)); }
	CASE(DevicePrimaryCtxRelease, success, OLD) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxRelease(0))); capturing = 0; if (again()) break; }
	CASE(DevicePrimaryCtxRelease, failure, OLD) { STEP(DevicePrimaryCtxRelease(77)); }
	CASE(DevicePrimaryCtxRelease, odd, OLD) { STEP(DevicePrimaryCtxRelease(-1)); }
	CASE(DevicePrimaryCtxReset, success, OLD) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxReset(0))); capturing = 0; if (again()) break; }
	CASE(DevicePrimaryCtxReset, failure, OLD) { STEP(DevicePrimaryCtxReset(77)); }
	CASE(DevicePrimaryCtxReset, odd, OLD) { STEP(DevicePrimaryCtxReset(-1)); }
	CASE(DevicePrimaryCtxReset_v2, failure, ANYWHERE) { STEP(DevicePrimaryCtxReset_v2(77)); }
	CASE(DevicePrimaryCtxReset_v2, odd, ANYWHERE) { STEP(DevicePrimaryCtxReset_v2(-1)); }
	CASE(DevicePrimaryCtxReset_v2, success, ANYWHERE) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxReset_v2(0))); capturing = 0; }
	return 0;
}

/* A driver's first use of a kind of memory takes some for itself: not in the rows. */
static int warm(void)
{
	access_desc access = {{1, 0}, 3};
	alloc_node a = {.props = {.type = 1, .at = {1, 0}}, .access = &access, .count = 1, .size = 4 * MIB};
	array2 flat = {64, 64, 0x20, 1};
	void *graph, *exec, *first, *second, *array;
	ptr p;

	function = "warm";
	kind = "up";
	MUST(MemAlloc_v2(&p, MIB));
	MUST(MemFree_v2(p));
	MUST(MemAllocAsync(&p, MIB, stream));
	MUST(MemFreeAsync(p, stream));
	MUST(MemAllocAsync_ptsz(&p, MIB, NULL)); /* the thread's own stream is made then */
	MUST(MemFreeAsync_ptsz(p, NULL));
	MUST(CtxSynchronize());
	MUST(ArrayCreate_v2(&array, &flat));
	MUST(ArrayDestroy(array));
	MUST(GraphCreate(&graph, 0));
	MUST(GraphAddMemAllocNode(&first, graph, NULL, 0, &a));
	MUST(GraphAddMemFreeNode(&second, graph, &first, 1, a.p));
	MUST(GraphInstantiateWithFlags(&exec, graph, 0));
	MUST(GraphLaunch(exec, stream));
	MUST(CtxSynchronize());
	MUST(GraphExecDestroy(exec));
	MUST(GraphDestroy(graph));
	MUST(DeviceGraphMemTrim(0));
	return 0;
}

static int run(int from)
{
	struct offer o;

	function = kind = "main";
	MUST(Init(0));
	if (again())
		return 1;
	MUST(StreamCreate(&stream, 1));
	if (offered(from, &o) || warm()) /* from now on the other process takes nothing */
		return 1;
	device();
	host();
	pools();
	mappings();
	arrays();
	others(o);
	graphs();
	captures();
	return contexts();
}

int main(int argc, char **argv)
{
	int pair[2], status;

	gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	load();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		return 1;
	pid_t other = fork(); /* before CUDA begins in either */
	if (other == 0) {
		close(pair[0]);
		exit(offer(pair[1]) != 0);
	}
	close(pair[1]);
	int failed = run(pair[0]) != 0;
	close(pair[0]);
	return waitpid(other, &status, 0) != other || status != 0 || failed;
}
