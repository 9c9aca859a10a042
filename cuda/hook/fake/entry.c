/* cuGetProcAddress and the errors of the simulated driver: see driver.h. */
#include "driver.h"

enum { FOUND = 0, NO_SYMBOL = 1, VERSION_TOO_OLD = 2 };
enum { FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };

static CUresult lookup(const char *name, void **out, int version, uint64_t flags, int *status)
{
	bool known;

	if (!name || !out || version < 0 || version > SIM_DRIVER_VERSION || flags > FLAG_PER_THREAD)
		return CUDA_ERROR_INVALID_VALUE;
	*out = entry_find(name, version, flags == FLAG_PER_THREAD, &known);
	if (status)
		*status = *out ? FOUND : known ? VERSION_TOO_OLD : NO_SYMBOL;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API(cuGetProcAddress, (const char *name, void **out, int version, uint64_t flags))
{
	ANYTIME();
	return lookup(name, out, version, flags, NULL);
}

API(cuGetProcAddress_v2, (const char *name, void **out, int version, uint64_t flags, int *status))
{
	ANYTIME();
	return lookup(name, out, version, flags, status);
}

/* ---- errors ---- */

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	 "part or all of the requested memory range is already mapped"},
	{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	 "pointer does not correspond to a registered memory region"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	 "operation not permitted when stream is capturing"},
	{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	 "operation failed due to a previous error during capture"},
	{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	 "attempt to terminate a thread-local capture sequence from another thread"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

API(cuGetErrorName, (CUresult error, const char **out))
{
	ANYTIME();
	for (unsigned i = 0; out && i < sizeof errors / sizeof *errors; i++) {
		if (errors[i].code == error) {
			*out = errors[i].name;
			return CUDA_SUCCESS;
		}
	}
	if (out)
		*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

API(cuGetErrorString, (CUresult error, const char **out))
{
	ANYTIME();
	for (unsigned i = 0; out && i < sizeof errors / sizeof *errors; i++) {
		if (errors[i].code == error) {
			*out = errors[i].text;
			return CUDA_SUCCESS;
		}
	}
	if (out)
		*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}
