/*
 * cu.h - the part of the CUDA driver's interface that the simulated driver
 * offers: types, error codes and struct layouts, written from the public
 * documentation. No CUDA header is needed, and none may be included with it.
 */
#ifndef CU_H
#define CU_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUstream, *CUmemoryPool, *CUarray, *CUmipmappedArray, *CUgraph;
typedef uint64_t CUhandle; /* CUmemGenericAllocationHandle */

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_ALREADY_MAPPED = 208,
	CUDA_ERROR_NOT_MAPPED = 211,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
	CUDA_ERROR_UNKNOWN = 999,
};

enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 };
enum { CU_CAPTURE_NONE = 0, CU_CAPTURE_ACTIVE = 1, CU_CAPTURE_INVALIDATED = 2 };

enum { CU_LOCATION_DEVICE = 1, CU_LOCATION_HOST = 2, CU_LOCATION_HOST_NUMA = 3, CU_LOCATION_HOST_NUMA_CURRENT = 4 };

typedef struct {
	int type, id;
} CUmemLocation;

typedef struct {
	int type, handle_types;
	CUmemLocation location;
	void *win32;
	unsigned char compression, rdma;
	uint16_t usage;
	unsigned char reserved[4];
} CUmemAllocationProp;

typedef struct {
	int alloc_type, handle_types;
	CUmemLocation location;
	void *win32;
	size_t max_size;
	uint16_t usage;
	unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

typedef struct {
	size_t width, height;
	int format;
	unsigned channels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
	size_t width, height, depth;
	int format;
	unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;

/* The forms from before CUDA 3.2. */
typedef struct {
	uint32_t width, height;
	int format;
	unsigned channels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
	uint32_t width, height, depth;
	int format;
	unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
	unsigned devices;
	size_t size;
	uint64_t handle_types, flags;
} CUmulticastObjectProp;

typedef struct {
	unsigned resource_type;
	void *array;
	unsigned part_type;
	uint64_t part[4];
	unsigned operation, handle_type;
	uint64_t handle, offset;
	unsigned devices, flags, reserved[2];
} CUarrayMapInfo;

typedef struct {
	size_t size, alignment;
	unsigned reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct {
	void *affinity;
	int count;
	void *cig;
} CUctxCreateParams;

typedef struct {
	unsigned char bytes[16];
} CUuuid;

_Static_assert(sizeof(CUmemAllocationProp) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(CUarrayMapInfo) == 96, "CUarrayMapInfo");
_Static_assert(sizeof(CUmulticastObjectProp) == 32, "CUmulticastObjectProp");
_Static_assert(sizeof(CUmemPoolProps) == 88, "CUmemPoolProps");
_Static_assert(offsetof(CUDA_ARRAY3D_DESCRIPTOR, flags) == 32, "CUDA_ARRAY3D_DESCRIPTOR");

/* Pool attributes. */
enum {
	CU_POOL_REUSE_FOLLOW_EVENT = 1,
	CU_POOL_REUSE_OPPORTUNISTIC = 2,
	CU_POOL_REUSE_INTERNAL = 3,
	CU_POOL_RELEASE_THRESHOLD = 4,
	CU_POOL_RESERVED_CURRENT = 5,
	CU_POOL_RESERVED_HIGH = 6,
	CU_POOL_USED_CURRENT = 7,
	CU_POOL_USED_HIGH = 8,
};

#endif
