// Package torch exports one process in the shape of PyTorch's memory snapshot:
// gpuanalyze export --to torch. What torch.cuda.memory._dump_snapshot writes,
// torch.cuda._memory_viz and pytorch.org/memory_viz read.
//
//	torch.go     Answer: what happened, as entries of device_traces
//	snapshot.go  what there is at the end, as segments and blocks
//	pickle.go    the few words of pickle that are needed
//
// Entries are the pool's blocks (alloc, free_requested, free_completed), its
// segments (segment_alloc, segment_free; segment_map, segment_unmap of mapped
// ones) and requests that were refused (oom). The end is that of the process, or
// of the window. What the pool did not take is no part of a snapshot. A block
// that lies in no segment that is known, as those of stream-ordered pools, is in
// one of its own size; of a process without a pool each driver allocation is
// segment and block.
//
// PyTorch reports only rounded sizes, and its streams are not recorded:
// requested_size is the block's where it is unknown, streams are 0, and whether
// a segment is of the small pool is told from its size. Addresses of several
// processes would be taken for one another: it refuses more than one.
//
// Memory is bounded by the live set; entries lie in temporary files until a
// device's are complete, because pickle has one list after the other.
package torch
