/*
 * Names and versions of the simulated driver: see driver.h.
 *
 * cuGetProcAddress takes a name without its ABI suffix and gives the newest
 * ABI that is not younger than the version asked for; the table here says
 * which. The names stand apart from the functions, whose types are not wanted.
 */
#include "driver.h"

#include <string.h>

/* ONE(name, exported, version) and PER(name, exported, twin, version): with a
 * twin for the default stream per thread. ABIs of a name stand together, the
 * older first. */
#define ENTRIES                                                                 \
	ONE(cuInit, cuInit, 2000)                                               \
	ONE(cuDriverGetVersion, cuDriverGetVersion, 2020)                       \
	ONE(cuGetErrorName, cuGetErrorName, 6000)                               \
	ONE(cuGetErrorString, cuGetErrorString, 6000)                           \
	ONE(cuGetProcAddress, cuGetProcAddress, 11030)                          \
	ONE(cuGetProcAddress, cuGetProcAddress_v2, 12000)                       \
	ONE(cuDeviceGet, cuDeviceGet, 2000)                                     \
	ONE(cuDeviceGetCount, cuDeviceGetCount, 2000)                           \
	ONE(cuDeviceGetName, cuDeviceGetName, 2000)                             \
	ONE(cuDeviceGetUuid, cuDeviceGetUuid, 9020)                             \
	ONE(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                         \
	ONE(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                        \
	ONE(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                   \
	ONE(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)           \
	ONE(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000)         \
	ONE(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)     \
	ONE(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000)             \
	ONE(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000)         \
	ONE(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000)       \
	ONE(cuCtxCreate, cuCtxCreate, 2000)                                     \
	ONE(cuCtxCreate, cuCtxCreate_v2, 3020)                                  \
	ONE(cuCtxCreate, cuCtxCreate_v3, 11040)                                 \
	ONE(cuCtxCreate, cuCtxCreate_v4, 12050)                                 \
	ONE(cuCtxDestroy, cuCtxDestroy, 2000)                                   \
	ONE(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                \
	ONE(cuCtxDetach, cuCtxDetach, 2000)                                    \
	ONE(cuGreenCtxCreate, cuGreenCtxCreate, 12040)                         \
	ONE(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040)                       \
	ONE(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040)                       \
	ONE(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                             \
	ONE(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                             \
	ONE(cuCtxPushCurrent, cuCtxPushCurrent, 2000)                           \
	ONE(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000)                        \
	ONE(cuCtxPopCurrent, cuCtxPopCurrent, 2000)                             \
	ONE(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000)                          \
	ONE(cuCtxGetDevice, cuCtxGetDevice, 2000)                               \
	ONE(cuCtxSynchronize, cuCtxSynchronize, 2000)                           \
	ONE(cuStreamCreate, cuStreamCreate, 2000)                               \
	ONE(cuStreamDestroy, cuStreamDestroy, 2000)                             \
	ONE(cuStreamDestroy, cuStreamDestroy_v2, 4000)                          \
	PER(cuStreamSynchronize, cuStreamSynchronize, _ptsz, 2000)              \
	PER(cuStreamGetCtx, cuStreamGetCtx, _ptsz, 9020)                        \
	PER(cuStreamGetCtx, cuStreamGetCtx_v2, _ptsz, 12050)                    \
	PER(cuStreamGetDevice, cuStreamGetDevice, _ptsz, 12080)                 \
	PER(cuStreamIsCapturing, cuStreamIsCapturing, _ptsz, 10000)             \
	PER(cuStreamBeginCapture, cuStreamBeginCapture, _ptsz, 10000)          \
	PER(cuStreamBeginCapture, cuStreamBeginCapture_v2, _ptsz, 10010)        \
	PER(cuStreamEndCapture, cuStreamEndCapture, _ptsz, 10000)               \
	PER(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, _ptsz, 12030) \
	ONE(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010) \
	ONE(cuEventCreate, cuEventCreate, 2000)                                \
	ONE(cuEventSynchronize, cuEventSynchronize, 2000)                      \
	ONE(cuGraphCreate, cuGraphCreate, 10000)                               \
	ONE(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040)             \
	ONE(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040)               \
	ONE(cuGraphAddNode, cuGraphAddNode, 12020)                             \
	ONE(cuGraphAddNode, cuGraphAddNode_v2, 12030)                          \
	ONE(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)   \
	ONE(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                     \
	PER(cuGraphLaunch, cuGraphLaunch, _ptsz, 10000)                        \
	PER(cuGraphUpload, cuGraphUpload, _ptsz, 11010)                        \
	ONE(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040)                 \
	ONE(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040) \
	ONE(cuGraphDestroy, cuGraphDestroy, 10000)                              \
	ONE(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                \
	ONE(cuMemAlloc, cuMemAlloc, 2000)                                       \
	ONE(cuMemAlloc, cuMemAlloc_v2, 3020)                                    \
	ONE(cuMemAllocPitch, cuMemAllocPitch, 2000)                            \
	ONE(cuMemAllocPitch, cuMemAllocPitch_v2, 3020)                          \
	ONE(cuMemAllocManaged, cuMemAllocManaged, 6000)                         \
	ONE(cuMemFree, cuMemFree, 2000)                                         \
	ONE(cuMemFree, cuMemFree_v2, 3020)                                      \
	ONE(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020)                \
	ONE(cuMemAllocHost, cuMemAllocHost, 2000)                              \
	ONE(cuMemAllocHost, cuMemAllocHost_v2, 3020)                            \
	ONE(cuMemHostAlloc, cuMemHostAlloc, 2020)                               \
	ONE(cuMemFreeHost, cuMemFreeHost, 2000)                                 \
	ONE(cuMemHostRegister, cuMemHostRegister, 4000)                        \
	ONE(cuMemHostRegister, cuMemHostRegister_v2, 6050)                      \
	ONE(cuMemHostUnregister, cuMemHostUnregister, 4000)                     \
	ONE(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020)      \
	PER(cuMemAllocAsync, cuMemAllocAsync, _ptsz, 11020)                     \
	PER(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, _ptsz, 11020)     \
	PER(cuMemFreeAsync, cuMemFreeAsync, _ptsz, 11020)                       \
	ONE(cuMemPoolCreate, cuMemPoolCreate, 11020)                            \
	ONE(cuMemPoolDestroy, cuMemPoolDestroy, 11020)                          \
	ONE(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)                            \
	ONE(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020)                \
	ONE(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020)                \
	ONE(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)        \
	ONE(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020)                      \
	ONE(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020)                      \
	ONE(cuMemAddressReserve, cuMemAddressReserve, 10020)                    \
	ONE(cuMemAddressFree, cuMemAddressFree, 10020)                          \
	ONE(cuMemCreate, cuMemCreate, 10020)                                    \
	ONE(cuMemRelease, cuMemRelease, 10020)                                  \
	ONE(cuMemMap, cuMemMap, 10020)                                          \
	ONE(cuMemUnmap, cuMemUnmap, 10020)                                      \
	ONE(cuMemSetAccess, cuMemSetAccess, 10020)                              \
	ONE(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020) \
	ONE(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)    \
	ONE(cuArrayCreate, cuArrayCreate, 2000)                                \
	ONE(cuArrayCreate, cuArrayCreate_v2, 3020)                              \
	ONE(cuArray3DCreate, cuArray3DCreate, 2000)                            \
	ONE(cuArray3DCreate, cuArray3DCreate_v2, 3020)                          \
	ONE(cuArrayDestroy, cuArrayDestroy, 2000)                               \
	ONE(cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements, 11060)  \
	ONE(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000)               \
	ONE(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000)             \
	ONE(cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements, 11060) \
	ONE(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020) \
	ONE(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020) \
	ONE(cuMulticastCreate, cuMulticastCreate, 12010)                       \
	ONE(cuMulticastAddDevice, cuMulticastAddDevice, 12010)                 \
	ONE(cuMulticastBindMem, cuMulticastBindMem, 12010)                     \
	ONE(cuMulticastBindAddr, cuMulticastBindAddr, 12010)                   \
	ONE(cuMulticastUnbind, cuMulticastUnbind, 12010)                       \
	PER(cuMemMapArrayAsync, cuMemMapArrayAsync, _ptsz, 11010)              \
	ONE(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010)                        \
	ONE(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010)                      \
	ONE(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000)                  \
	ONE(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010)                    \
	ONE(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020) \
	ONE(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020) \
	ONE(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020)             \
	ONE(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020)             \
	ONE(cuImportExternalMemory, cuImportExternalMemory, 10000)             \
	ONE(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000) \
	ONE(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000) \
	ONE(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000)           \
	ONE(cuGraphicsGLRegisterBuffer, cuGraphicsGLRegisterBuffer, 3000)      \
	ONE(cuGraphicsUnregisterResource, cuGraphicsUnregisterResource, 3000)  \
	PER(cuGraphicsMapResources, cuGraphicsMapResources, _ptsz, 3000)       \
	PER(cuGraphicsUnmapResources, cuGraphicsUnmapResources, _ptsz, 3000)   \
	ONE(cuCheckpointProcessCheckpoint, cuCheckpointProcessCheckpoint, 12080) \
	ONE(cuCheckpointProcessRestore, cuCheckpointProcessRestore, 12080)     \
	ONE(cuMemAllocUnheard, cuMemAllocUnheard, 13000)                       \
	ONE(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                 \
	PER(cuMemcpyHtoD, cuMemcpyHtoD_v2, _ptds, 3020)                         \
	PER(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds, 3020)                         \
	PER(cuMemsetD8, cuMemsetD8_v2, _ptds, 3020)

#define HIDDEN __attribute__((visibility("hidden")))
#define ONE(name, exported, version) extern HIDDEN char own_##exported[];
#define PER(name, exported, twin, version)         \
	extern HIDDEN char own_##exported[];       \
	extern HIDDEN char own_##exported##twin[];
ENTRIES
#undef ONE
#undef PER

#define PTSZ_SINCE 7000 /* twins of older functions came with CUDA 7.0 */

static const struct entry {
	const char *name;
	void *legacy, *per_thread;
	int version;
} entries[] = {
#define ONE(name, exported, version) {#name, own_##exported, NULL, version},
#define PER(name, exported, twin, version) {#name, own_##exported, own_##exported##twin, version},
	ENTRIES
#undef ONE
#undef PER
};

void *entry_find(const char *name, int version, bool per_thread, bool *known)
{
	void *found = NULL;

	*known = false;
	for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++) {
		const struct entry *e = &entries[i];

		if (strcmp(e->name, name) != 0)
			continue;
		*known = true;
		if (e->version > version)
			break;
		found = per_thread && e->per_thread && version >= PTSZ_SINCE ? e->per_thread : e->legacy;
	}
	return found;
}
