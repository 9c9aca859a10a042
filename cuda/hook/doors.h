/*
 * doors.h - the functions that are wrapped and those that are asked, and how a
 * program comes to them.
 */
#ifndef DOORS_H
#define DOORS_H

#include "hook.h"

typedef int CUresult;
typedef int CUdevice;

/* The number of GPUREC_HOOKED rows, which are indexed from 1. */
#define COUNT_ROW(index, number, symbol, layer, class, kind) +1
enum { HOOKED = 0 GPUREC_HOOKED(COUNT_ROW) };
#undef COUNT_ROW

/*
 * A wrapped function. There are two wrappers of each, because two addresses may
 * stand for one name (a thunk that cuGetProcAddress makes up, a second libcuda):
 * each wrapper calls the address it was handed out for.
 */
struct hooked {
	const char *symbol;
	void *const *front; /* two */
	uint16_t number;    /* in the trace; 0: no event bears its name */
	uint8_t layer, class, kind;
};
extern const struct hooked gpurec_hooked[HOOKED + 1];
extern void *gpurec_real[2][HOOKED + 1];

/* The driver's functions that the wrappers call themselves: X(name, parameters). */
#define GPUREC_ASKED(X) \
	X(cuCtxGetDevice, (CUdevice * device)) \
	X(cuCtxGetCurrent, (void **ctx)) \
	X(cuPointerGetAttribute, (void *value, int attribute, uint64_t p)) \
	X(cuMemPoolGetAttribute, (void *pool, int attribute, void *value)) \
	X(cuDeviceGetDefaultMemPool, (void **pool, CUdevice device)) \
	X(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void *value)) \
	X(cuThreadExchangeStreamCaptureMode, (int *mode)) \
	X(cuArrayGetMemoryRequirements, (void *to, void *array, CUdevice device)) \
	X(cuMipmappedArrayGetMemoryRequirements, (void *to, void *array, CUdevice device)) \
	X(cuStreamIsCapturing, (void *stream, int *status)) \
	X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active)) \
	X(cuDeviceGetUuid, (void *uuid, CUdevice device)) \
	X(cuDeviceGetUuid_v2, (void *uuid, CUdevice device)) \
	X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) \
	X(cuDeviceGetName, (char *name, int length, CUdevice device))
struct asked {
#define ASKED_FIELD(name, parameters) CUresult(*name) parameters;
	GPUREC_ASKED(ASKED_FIELD)
#undef ASKED_FIELD
};
extern struct asked gpurec_asked_of[2];
extern bool gpurec_two; /* the second wrappers are of a second libcuda, and not of the first one's other functions */
#define gpurec_asked gpurec_asked_of[gpurec_tls.second]

/* Finds the real function of a wrapper; NULL when there is no driver. */
void *gpurec_find_real(unsigned api, unsigned which);

/* dlsym and dlopen of libc, with the hook as their caller. */
void *gpurec_dlsym(void *handle, const char *name);
void *gpurec_next(const char *name); /* with RTLD_NEXT */
void *gpurec_dlopen(const char *name, int flags);

/* Whether a name is one of our exports that stand for another library's function. */
bool gpurec_exported(const char *name);
/* Our function for what a library's import of that name leads to, NULL where that is none of the real ones. */
void *gpurec_front(const char *name, void *real);
/* At the start: what the program is linked to. */
void gpurec_look_first(void);

/* What doors.c and proc.c have of each other. EARLY: the address sanitizer looks up
 * functions before it is ready for instrumented code. */
#define EARLY __attribute__((no_sanitize("address")))
unsigned gpurec_find_name(const char *name); /* its index in gpurec_hooked, or 0 */
void gpurec_fill(void);                      /* the first libcuda: finds all that is wrapped and asked */
void gpurec_fill_second(const void *p);
void gpurec_set_once(void **slot, void *value);
void *gpurec_exchange(unsigned api, void *p); /* its wrapper, or p */
EARLY bool gpurec_is_proc(const char *name);  /* cuGetProcAddress, of either version */
void *gpurec_exchange_proc(bool v2, void *p);
bool gpurec_is_proc_front(const void *p);
bool gpurec_has_proc(bool v2);
void gpurec_fill_proc(void *libcuda, unsigned which);

/* Whether a driver has been opened. */
bool gpurec_has_driver(void);

void gpurec_torch_find(void);

/* ---- deepbind.c ----------------------------------------------------------- */

/* A look-up by a handle: what was opened past our doors is looked at. */
void gpurec_deep_look(void *handle);

/* ---- unhooked.c ----------------------------------------------------------- */

/* Whether a name of the driver's that has no wrapper may take memory, and has not been noted yet. */
bool gpurec_unhooked(const char *name);
/* Records, once a process, that a program asked for such a function. */
void gpurec_note_unhooked(const char *name);
/* The same of a library that has ways to the driver past us. */
void gpurec_note_past(const char *text);

#endif
