/*
 * nvml.c - the simulated libnvidia-ml.so.1: what the devices of sim.h look
 * like from outside, to any process that names the same state file. It reads
 * books that the simulated drivers keep and writes none. All devices are
 * there, whatever CUDA_VISIBLE_DEVICES says, as with the real library.
 *
 * GPUREC_SIM_NVML_FAIL=N: from the Nth memory query on, counted over all
 * devices from 1, every query about a device answers that the GPU is lost.
 */
#define _GNU_SOURCE
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define API __attribute__((visibility("default")))

typedef int nvmlReturn_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

struct gpu {
	int index;
};
typedef struct gpu *nvmlDevice_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned pid;
	unsigned long long used;
} nvmlProcessInfo_v1_t;

typedef struct {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;

typedef struct {
	char bus_id_legacy[16];
	unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
} nvmlPciInfo_t;

_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");

#define MEMORY_V2 (sizeof(nvmlMemory_v2_t) | 2u << 24)

static struct {
	pthread_mutex_t lock;
	_Atomic int refs;
	struct sim_config config;
	struct sim_state *_Atomic state;
	bool from_file;
	_Atomic long queries;
	long lost_at; /* 0: never */
	struct gpu gpu[SIM_MAX_DEVICES];
} nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* state gives the shared state. Without a file only the driver in this very
 * process can have one, and it may be loaded after us; NULL: nobody holds
 * anything. */
static struct sim_state *state(void)
{
	struct sim_state *s = atomic_load(&nvml.state);

	if (s || nvml.from_file)
		return s;
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!cuda)
		return NULL;
	struct sim_state *(*get)(void) = (struct sim_state * (*)(void)) dlsym(cuda, "cuda_sim_state");
	s = get ? get() : NULL;
	if (s)
		atomic_store(&nvml.state, s); /* and the driver stays loaded */
	else
		dlclose(cuda);
	return s;
}

/* ---- the library ---- */

static nvmlReturn_t start(void)
{
	const char *path = getenv("GPUREC_SIM_STATE"), *lost = getenv("GPUREC_SIM_NVML_FAIL");
	char *end = "";

	if (!sim_config_load(&nvml.config))
		return NVML_ERROR_INVALID_ARGUMENT;
	nvml.lost_at = lost && *lost ? strtol(lost, &end, 10) : 0;
	if (*end || nvml.lost_at < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	atomic_store(&nvml.queries, 0);
	nvml.from_file = path && *path;
	atomic_store(&nvml.state, nvml.from_file ? sim_state_open(false) : NULL);
	if (nvml.from_file && !nvml.state)
		return NVML_ERROR_UNKNOWN;
	for (int i = 0; i < SIM_MAX_DEVICES; i++)
		nvml.gpu[i].index = i;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	nvmlReturn_t res = NVML_SUCCESS;

	(void)flags;
	pthread_mutex_lock(&nvml.lock);
	if (!nvml.refs)
		res = start();
	if (!res)
		nvml.refs++;
	pthread_mutex_unlock(&nvml.lock);
	return res;
}

API nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t res = NVML_SUCCESS;

	pthread_mutex_lock(&nvml.lock);
	if (!nvml.refs)
		res = NVML_ERROR_UNINITIALIZED;
	else if (--nvml.refs == 0) {
		if (nvml.from_file)
			sim_state_close(nvml.state);
		atomic_store(&nvml.state, NULL);
	}
	pthread_mutex_unlock(&nvml.lock);
	return res;
}

API const char *nvmlErrorString(nvmlReturn_t res)
{
	static const struct {
		nvmlReturn_t code;
		const char *text;
	} errors[] = {
		{NVML_SUCCESS, "Success"},
		{NVML_ERROR_UNINITIALIZED, "Uninitialized"},
		{NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
		{NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
		{NVML_ERROR_NOT_FOUND, "Not Found"},
		{NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
		{NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
		{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
	};

	for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == res)
			return errors[i].text;
	return "Unknown Error";
}

static nvmlReturn_t put(char *out, unsigned size, const char *text)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (size < strlen(text) + 1)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

#define READY()                                          \
	do {                                             \
		if (!nvml.refs)                          \
			return NVML_ERROR_UNINITIALIZED; \
	} while (0)

API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size)
{
	READY();
	return put(out, size, SIM_DRIVER_TEXT);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
	READY();
	return put(out, size, "13." SIM_DRIVER_TEXT);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = SIM_DRIVER_VERSION;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
	return nvmlSystemGetCudaDriverVersion(out);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
	char path[40];

	READY();
	if (!out || !size)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return NVML_ERROR_NOT_FOUND;
	out[fread(out, 1, size - 1, f)] = 0;
	fclose(f);
	return NVML_SUCCESS;
}

/* ---- devices ---- */

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out)
{
	READY();
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = (unsigned)nvml.config.devices;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *out)
{
	return nvmlDeviceGetCount_v2(out);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
	READY();
	if (!out || index >= (unsigned)nvml.config.devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = &nvml.gpu[index];
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out)
{
	return nvmlDeviceGetHandleByIndex_v2(index, out);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
	char text[41];

	READY();
	if (!uuid || !out)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < nvml.config.devices; i++) {
		sim_uuid_text(i, text);
		if (strcasecmp(text, uuid) == 0) {
			*out = &nvml.gpu[i];
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* bus_id writes an address with a domain of 8 digits, or of 4 as it used to be. */
static void bus_id(int index, char *out, size_t size, bool legacy)
{
	snprintf(out, size, "%s:%02X:00.0", legacy ? "0000" : "00000000", (unsigned char)(index + 1));
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out)
{
	char full[32], legacy[16];

	READY();
	if (!id || !out)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < nvml.config.devices; i++) {
		bus_id(i, full, sizeof full, false);
		bus_id(i, legacy, sizeof legacy, true);
		if (strcasecmp(full, id) == 0 || strcasecmp(legacy, id) == 0) {
			*out = &nvml.gpu[i];
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* check opens every function that takes a device. */
static nvmlReturn_t check(nvmlDevice_t dev, const void *out)
{
	READY();
	if (!out || dev < nvml.gpu || dev >= nvml.gpu + nvml.config.devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml.lost_at && nvml.queries >= nvml.lost_at)
		return NVML_ERROR_GPU_IS_LOST;
	return NVML_SUCCESS;
}

#define CHECK(dev, out)                               \
	do {                                          \
		nvmlReturn_t check_ = check(dev, out); \
		if (check_)                           \
			return check_;                \
	} while (0)

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t dev, char *out, unsigned size)
{
	char text[41];

	CHECK(dev, out);
	sim_uuid_text(dev->index, text);
	return put(out, size, text);
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t dev, char *out, unsigned size)
{
	char text[64];

	CHECK(dev, out);
	sim_name(dev->index, text, sizeof text);
	return put(out, size, text);
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t dev, unsigned *out)
{
	CHECK(dev, out);
	*out = (unsigned)dev->index;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t dev, unsigned *out)
{
	return nvmlDeviceGetIndex(dev, out);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t dev, nvmlPciInfo_t *out)
{
	CHECK(dev, out);
	memset(out, 0, sizeof *out);
	bus_id(dev->index, out->bus_id_legacy, sizeof out->bus_id_legacy, true);
	bus_id(dev->index, out->bus_id, sizeof out->bus_id, false);
	out->bus = (unsigned)dev->index + 1;
	return NVML_SUCCESS;
}

/* There is no MIG here. */
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t dev, unsigned *current, unsigned *pending)
{
	CHECK(dev, current);
	CHECK(dev, pending);
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t dev, unsigned *out)
{
	CHECK(dev, out);
	*out = 0;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t dev, unsigned *out)
{
	return nvmlDeviceIsMigDeviceHandle(dev, out);
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t dev, unsigned index, nvmlDevice_t *out)
{
	(void)index;
	CHECK(dev, out);
	return NVML_ERROR_NOT_FOUND;
}

/* ---- memory ---- */

/* measure answers in the newer form, where reserved bytes stand apart. */
static nvmlReturn_t measure(nvmlDevice_t dev, const void *out, nvmlMemory_v2_t *m)
{
	READY();
	atomic_fetch_add(&nvml.queries, 1);
	CHECK(dev, out);
	struct sim_state *s = state();
	unsigned long long total = nvml.config.total[dev->index], reserved = nvml.config.reserved[dev->index];
	unsigned long long used = s ? sim_used(s, dev->index, false) : 0;

	/* A process about to be refused holds too much for a moment. */
	if (used > total - reserved)
		used = total - reserved;
	*m = (nvmlMemory_v2_t){.total = total, .reserved = reserved, .used = used, .free = total - reserved - used};
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t dev, nvmlMemory_v2_t *out)
{
	nvmlMemory_v2_t m;

	if (out && out->version != MEMORY_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t res = measure(dev, out, &m);
	if (!res) {
		m.version = out->version;
		*out = m;
	}
	return res;
}

/* In the older form used includes what is reserved. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t dev, nvmlMemory_t *out)
{
	nvmlMemory_v2_t m;
	nvmlReturn_t res = measure(dev, out, &m);

	if (!res)
		*out = (nvmlMemory_t){.total = m.total, .free = m.free, .used = m.used + m.reserved};
	return res;
}

/* processes lists who holds memory. As NVML does, it says how many there are
 * when the room is too small. */
static nvmlReturn_t processes(nvmlDevice_t dev, unsigned *count, nvmlProcessInfo_v1_t *v1, nvmlProcessInfo_t *v2)
{
	CHECK(dev, count);
	struct sim_state *s = state();
	uint32_t high = s ? atomic_load(&s->high) : 0;
	unsigned n = 0, room = v1 || v2 ? *count : 0;

	for (uint32_t i = 0; i < high && i < SIM_SLOTS; i++) {
		uint64_t owner = atomic_load(&s->slot[i].owner);
		int64_t used = atomic_load(&s->slot[i].used[dev->index]);

		if (used <= 0 || !sim_owner_alive(owner))
			continue;
		if (n < room && v1)
			v1[n] = (nvmlProcessInfo_v1_t){(uint32_t)owner, (unsigned long long)used};
		if (n < room && v2)
			v2[n] = (nvmlProcessInfo_t){(uint32_t)owner, (unsigned long long)used, ~0u, ~0u};
		n++;
	}
	*count = n;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t nobody(nvmlDevice_t dev, unsigned *count)
{
	CHECK(dev, count);
	*count = 0;
	return NVML_SUCCESS;
}

/* The three versions differ in what a row holds; all processes here compute. */
#define LIST(sort, v1, v2)                                                                                     \
	API nvmlReturn_t nvmlDeviceGet##sort##RunningProcesses(nvmlDevice_t dev, unsigned *count, void *out)   \
	{                                                                                                      \
		(void)out;                                                                                     \
		return v1;                                                                                     \
	}                                                                                                      \
	API nvmlReturn_t nvmlDeviceGet##sort##RunningProcesses_v2(nvmlDevice_t dev, unsigned *count, void *out) \
	{                                                                                                      \
		(void)out;                                                                                     \
		return v2;                                                                                     \
	}                                                                                                      \
	API nvmlReturn_t nvmlDeviceGet##sort##RunningProcesses_v3(nvmlDevice_t dev, unsigned *count, void *out) \
	{                                                                                                      \
		(void)out;                                                                                     \
		return v2;                                                                                     \
	}

LIST(Compute, processes(dev, count, out, NULL), processes(dev, count, NULL, out))
LIST(Graphics, nobody(dev, count), nobody(dev, count))
LIST(MPSCompute, nobody(dev, count), nobody(dev, count))
