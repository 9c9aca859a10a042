/*
 * door.h - the three ways by which programs reach the CUDA driver, for the test
 * programs beside it. Written from the public documentation; no CUDA header.
 *
 *   procaddress  dlopen, then everything by cuGetProcAddress_v2: as libcudart does
 *   dlsym        dlopen, then every exported name by dlsym: as older libcudart,
 *                JAX and ctypes do
 *   linked       the program needs libcuda.so.1 itself and calls it by name;
 *                compiled with -DLINKED and linked with the library
 *
 * Call door_open first; then the functions are there as cu.MemAlloc and so on.
 */
#ifndef DOOR_H
#define DOOR_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t CUdeviceptr;
typedef struct { int type, id; } CUmemLocation;
typedef struct { int type, handle_types; CUmemLocation location; void *win32; unsigned char flags[8]; } CUmemAllocationProp;
typedef struct { int type, handle_types; CUmemLocation location; void *win32; size_t max_size; unsigned char reserved[56]; } CUmemPoolProps;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct { size_t width, height; int format; unsigned channels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUDA_ARRAY3D_DESCRIPTOR;

#define FORMAT_FLOAT 0x20

/* F(field, exported name, name for cuGetProcAddress, version, parameters) */
#define DRIVER_FUNCTIONS                                                                                             \
	F(Init, cuInit, cuInit, 2000, (unsigned))                                                                    \
	F(DeviceGetCount, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))                                         \
	F(PrimaryCtxRetain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **, int))                \
	F(PrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (int))                  \
	F(PrimaryCtxReset, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (int))                        \
	F(CtxSetCurrent, cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *))                                           \
	F(CtxSynchronize, cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                          \
	F(MemGetInfo, cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *, size_t *))                                     \
	F(MemAlloc, cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr *, size_t))                                        \
	F(MemAllocPitch, cuMemAllocPitch_v2, cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
	F(MemAllocManaged, cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))            \
	F(MemFree, cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr))                                                     \
	F(MemAllocHost, cuMemAllocHost_v2, cuMemAllocHost, 3020, (void **, size_t))                                  \
	F(MemHostAlloc, cuMemHostAlloc, cuMemHostAlloc, 2020, (void **, size_t, unsigned))                           \
	F(MemFreeHost, cuMemFreeHost, cuMemFreeHost, 2000, (void *))                                                 \
	F(MemHostRegister, cuMemHostRegister_v2, cuMemHostRegister, 6050, (void *, size_t, unsigned))                \
	F(MemHostUnregister, cuMemHostUnregister, cuMemHostUnregister, 4000, (void *))                               \
	F(MemAllocAsync, cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, void *))                   \
	F(MemAllocFromPoolAsync, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                            \
	  (CUdeviceptr *, size_t, void *, void *))                                                                   \
	F(MemFreeAsync, cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr, void *))                                \
	F(MemPoolCreate, cuMemPoolCreate, cuMemPoolCreate, 11020, (void **, const CUmemPoolProps *))                 \
	F(MemPoolDestroy, cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *))                                       \
	F(MemPoolTrimTo, cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (void *, size_t))                                  \
	F(MemAddressReserve, cuMemAddressReserve, cuMemAddressReserve, 10020,                                        \
	  (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                                          \
	F(MemAddressFree, cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr, size_t))                          \
	F(MemCreate, cuMemCreate, cuMemCreate, 10020,                                                                \
	  (uint64_t *, size_t, const CUmemAllocationProp *, unsigned long long))                                     \
	F(MemRelease, cuMemRelease, cuMemRelease, 10020, (uint64_t))                                                 \
	F(MemMap, cuMemMap, cuMemMap, 10020, (CUdeviceptr, size_t, size_t, uint64_t, unsigned long long))            \
	F(MemUnmap, cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr, size_t))                                            \
	F(MemSetAccess, cuMemSetAccess, cuMemSetAccess, 10020, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
	F(MemRetain, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (uint64_t *, void *))          \
	F(ArrayCreate, cuArrayCreate_v2, cuArrayCreate, 3020, (void **, const CUDA_ARRAY_DESCRIPTOR *))              \
	F(Array3DCreate, cuArray3DCreate_v2, cuArray3DCreate, 3020, (void **, const CUDA_ARRAY3D_DESCRIPTOR *))      \
	F(ArrayDestroy, cuArrayDestroy, cuArrayDestroy, 2000, (void *))                                              \
	F(MipmappedArrayCreate, cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000,                                \
	  (void **, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned))                                                      \
	F(MipmappedArrayDestroy, cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (void *))

#define F(field, exported, name, version, params) int (*field) params;
static struct {
	DRIVER_FUNCTIONS
} cu;
#undef F

#ifdef LINKED
#define F(field, exported, name, version, params) int exported params;
DRIVER_FUNCTIONS
#undef F
#endif

static const struct {
	const char *exported, *name;
	int version;
	size_t slot;
	void *linked;
} door_functions[] = {
#ifdef LINKED
#define F(field, exported, name, version, params) {#exported, #name, version, offsetof(__typeof__(cu), field), (void *)exported},
#else
#define F(field, exported, name, version, params) {#exported, #name, version, offsetof(__typeof__(cu), field), NULL},
#endif
	DRIVER_FUNCTIONS
#undef F
};

/* door_open finds every function through a door: 0, or 1 with a sentence on
 * stderr. per_thread asks for the twins of the stream functions that use the
 * default stream of each thread. */
static int door_open(const char *door, int per_thread)
{
	int linked = strcmp(door, "linked") == 0, by_name = strcmp(door, "dlsym") == 0;
	void *lib = linked ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
	int (*get)(const char *, void **, int, uint64_t, int *) = NULL;

	if (!linked && !by_name && strcmp(door, "procaddress") != 0) {
		fprintf(stderr, "no door \"%s\": linked, dlsym or procaddress\n", door);
		return 1;
	}
	if (!linked && !lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	if (!linked && !by_name)
		get = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(lib, "cuGetProcAddress_v2");
	for (size_t i = 0; i < sizeof door_functions / sizeof *door_functions; i++) {
		size_t len = strlen(door_functions[i].exported);
		int twin = per_thread && len > 5 && strcmp(door_functions[i].exported + len - 5, "Async") == 0;
		void *p = NULL;
		char name[80];

		snprintf(name, sizeof name, "%s%s", door_functions[i].exported, twin ? "_ptsz" : "");
		if (linked)
			p = twin ? dlsym(RTLD_DEFAULT, name) : door_functions[i].linked;
		else if (by_name)
			p = dlsym(lib, name);
		else if (get && get(door_functions[i].name, &p, door_functions[i].version, twin ? 2 : 0, NULL))
			p = NULL;
		if (!p) {
			fprintf(stderr, "%s: not found through the door %s%s\n", name, door,
				linked ? " (compiled without -DLINKED?)" : "");
			return 1;
		}
		memcpy((char *)&cu + door_functions[i].slot, &p, sizeof p);
	}
	return 0;
}

/* need ends the program when a call failed that cannot fail. */
static void need(const char *what, int res)
{
	if (res) {
		fprintf(stderr, "%s: error %d\n", what, res);
		exit(1);
	}
}

#endif
