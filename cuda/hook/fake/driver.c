/* Initialisation, devices and contexts of the simulated driver: see driver.h. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct driver driver; /* all zeros, so that its tables take no room in the file */

/* ---- injected failures ---- */

#define MAX_FAILURES 16
static struct {
	char name[48];
	int status;
	long at;   /* 0: always */
	long slow; /* microseconds that a call takes longer; then it does not fail */
	_Atomic long calls;
} failures[MAX_FAILURES];
static int nfailures;

__attribute__((constructor)) static void read_failures(void)
{
	const char *p = getenv("GPUREC_SIM_FAIL");

	while (p && *p && nfailures < MAX_FAILURES) {
		int len = 0;

		if (sscanf(p, "%47[A-Za-z0-9_]+%ld%n", failures[nfailures].name, &failures[nfailures].slow, &len) != 2 &&
		    sscanf(p, "%47[A-Za-z0-9_]:%d%n", failures[nfailures].name, &failures[nfailures].status, &len) != 2)
			break;
		p += len;
		if (sscanf(p, "@%ld%n", &failures[nfailures].at, &len) == 1)
			p += len;
		nfailures++;
		if (*p == ',')
			p++;
	}
	/* A test that asks for a failure and misspells it must not pass. */
	if (p && *p)
		fprintf(stderr, "simulated driver: GPUREC_SIM_FAIL: cannot read \"%s\", expected NAME:STATUS[@N] or NAME+MICROSECONDS\n", p);
	driver.failing = nfailures > 0;
}

CUresult driver_fail(const char *name)
{
	for (int i = 0; i < nfailures; i++) {
		if (strcmp(failures[i].name, name) != 0)
			continue;
		if (failures[i].slow > 0) {
			int err = errno;
			usleep((useconds_t)failures[i].slow);
			errno = err;
			continue;
		}
		long call = atomic_fetch_add(&failures[i].calls, 1) + 1;
		if (failures[i].at == 0 || failures[i].at == call)
			return failures[i].status;
	}
	return CUDA_SUCCESS;
}

/* ---- handles ---- */

void *table_take(struct table *t, size_t size, void **handle)
{
	uint32_t i;

	if (t->nfree)
		i = t->freed[--t->nfree];
	else if (t->n < MAX_OBJECTS)
		i = t->n++;
	else
		return NULL;
	void *obj = atomic_load(&t->slot[i]);
	if (obj)
		memset(obj, 0, size);
	else
		obj = calloc(1, size);
	if (!obj) {
		t->freed[t->nfree++] = i;
		return NULL;
	}
	*(_Atomic uint32_t *)obj = 1;
	atomic_store(&t->slot[i], obj);
	*handle = (void *)(uintptr_t)(t->tag + (uint64_t)(i + 1) * 64);
	return obj;
}

void *table_get(struct table *t, const void *handle)
{
	uint64_t off = (uintptr_t)handle - t->tag;

	if (off % 64 || off / 64 - 1 >= MAX_OBJECTS)
		return NULL;
	void *obj = atomic_load(&t->slot[off / 64 - 1]);
	return obj && *(_Atomic uint32_t *)obj ? obj : NULL;
}

void table_give(struct table *t, const void *handle)
{
	uint32_t i = (uint32_t)(((uintptr_t)handle - t->tag) / 64 - 1);

	*(_Atomic uint32_t *)atomic_load(&t->slot[i]) = 0;
	t->freed[t->nfree++] = i;
}

/* ---- books ---- */

bool device_charge(void *device, int64_t bytes)
{
	struct device *dev = device;
	_Atomic int64_t *used = &driver.slot->used[dev->index];

	/* Take first, look then: of two processes that race for the last
	 * bytes at least one sees the other, so the sum never stays above
	 * the capacity. Both may be refused, which is what a full device does. */
	atomic_fetch_add(used, bytes);
	if (bytes <= 0 || sim_used(driver.state, dev->index, true) <= dev->capacity ||
	    sim_used(driver.state, dev->index, false) <= dev->capacity)
		return true;
	atomic_fetch_sub(used, bytes);
	return false;
}

/* ---- init ---- */

static void in_child(void)
{
	if (atomic_load(&driver.ready))
		atomic_store(&driver.child, 1);
	atomic_store(&driver.ready, 0);
}

/* named finds the one device whose UUID begins with an entry, blanks around it
 * left out; -1 if there is none, or several. */
static int named(const char *p, size_t len, int devices)
{
	int found = -1;

	while (len > 0 && p[len - 1] == ' ')
		len--;
	for (int d = 0; d < devices; d++) {
		char text[41];

		sim_uuid_text(d, text);
		if (len > 40 || strncmp(text, p, len) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = d;
	}
	return found;
}

/* counted reads an entry as strtol does: blanks before the number and letters
 * after it are passed over. */
static int counted(const char *p, int devices)
{
	char *end;
	long n = strtol(p, &end, 10);

	return end == p || n < 0 || n >= devices ? -1 : (int)n;
}

/* visible reads CUDA_VISIBLE_DEVICES as the driver does (what was seen of it is
 * in cuda/nvml/visible.go): a list of numbers or one of UUIDs that may be
 * shortened; the first invalid entry ends it, and so does one of the other sort;
 * a device named twice leaves none. There are no MIG instances here. */
static int visible(int *index, int devices)
{
	const char *p = getenv("CUDA_VISIBLE_DEVICES");
	int n = 0, sort = -1;

	if (!p) {
		for (; n < devices; n++)
			index[n] = n;
		return n;
	}
	for (;; p++) {
		size_t len = strcspn(p, ","), blanks = strspn(p, " \t");
		const char *entry = p + (blanks < len ? blanks : len);
		int by_uuid = strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0, found = -1;

		if (sort < 0)
			sort = by_uuid;
		if (by_uuid == sort && blanks < len)
			found = by_uuid ? named(entry, len - blanks, devices) : counted(entry, devices);
		if (found < 0)
			return n;
		for (int i = 0; i < n; i++)
			if (index[i] == found)
				return 0;
		index[n++] = found;
		p += len;
		if (*p == 0)
			return n;
	}
}

/* Addresses above 4 GiB, as many as wanted and allowed. */
static bool reserve(struct heap *h, uint64_t want)
{
	return heap_init(h, want < driver.config.addresses ? want : driver.config.addresses, false);
}

static CUresult start(void)
{
	int index[SIM_MAX_DEVICES];
	static bool watching;

	driver.contexts.tag = 0x51ull << 56;
	driver.streams.tag = 0x52ull << 56;
	driver.pools.tag = 0x53ull << 56;
	driver.arrays.tag = 0x54ull << 56;
	driver.graphs.tag = 0x55ull << 56;
	driver.handles.tag = 0x56ull << 56;
	driver.externals.tag = 0x57ull << 56;
	driver.resources.tag = 0x58ull << 56;
	driver.execs.tag = 0x59ull << 56;
	if (!sim_config_load(&driver.config))
		return CUDA_ERROR_INVALID_VALUE;
	driver.devices = visible(index, driver.config.devices);
	if (driver.devices == 0)
		return CUDA_ERROR_NO_DEVICE;
	if (!driver.state)
		driver.state = sim_state_open(true);
	if (!driver.state)
		return CUDA_ERROR_UNKNOWN;
	if (!driver.slot)
		driver.slot = sim_slot_claim(driver.state);
	if (!driver.slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; i < driver.devices; i++) {
		struct device *dev = &driver.dev[i];
		uint64_t total = driver.config.total[index[i]];

		dev->index = index[i];
		dev->capacity = total - driver.config.reserved[index[i]];
		if (dev->heap.base)
			continue;
		dev->heap.charge = device_charge;
		dev->heap.arg = dev;
		/* Room for fragmentation around a full device. */
		if (!reserve(&dev->heap, total * 4 + (64ull << 30)))
			return CUDA_ERROR_OUT_OF_MEMORY;
		TRY(pools_init(dev, i));
	}
	driver.host.touchable = true;
	if (!driver.host.base && !reserve(&driver.host, 256ull << 30))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!driver.va.base && !reserve(&driver.va, 2048ull << 30))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Without room below 4 GiB the 32-bit entry points are out of memory. */
	if (!driver.low.base && !heap_init(&driver.low, 512ull << 20, true))
		driver.low.base = driver.low.end = 0;
	if (!watching)
		watching = pthread_atfork(NULL, NULL, in_child) == 0;
	return watching ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuInit, (unsigned flags))
{
	ANYTIME();
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (atomic_load(&driver.child))
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&driver.lock);
	CUresult res = driver.ready ? CUDA_SUCCESS : start();
	if (!res)
		atomic_store(&driver.ready, 1);
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuDriverGetVersion, (int *version))
{
	ANYTIME();
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = SIM_DRIVER_VERSION;
	return CUDA_SUCCESS;
}

/* cuda_sim_state is how the simulated NVML in the same process finds a state
 * that has no file. It is no part of CUDA's interface. */
__attribute__((visibility("default"))) struct sim_state *cuda_sim_state(void)
{
	return atomic_load(&driver.ready) ? driver.state : NULL;
}

/* ---- devices ---- */

static bool ordinal_ok(CUdevice d)
{
	return d >= 0 && d < driver.devices;
}

API(cuDeviceGetCount, (int *n))
{
	ENTER();
	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	*n = driver.devices;
	return CUDA_SUCCESS;
}

API(cuDeviceGet, (CUdevice *dev, int ordinal))
{
	ENTER();
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = ordinal;
	return CUDA_SUCCESS;
}

API(cuDeviceGetName, (char *name, int len, CUdevice d))
{
	ENTER();
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	sim_name(driver.dev[d].index, name, len);
	return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice d)
{
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	sim_uuid(driver.dev[d].index, uuid->bytes);
	return CUDA_SUCCESS;
}

API(cuDeviceGetUuid, (CUuuid *uuid, CUdevice d))
{
	ENTER();
	return get_uuid(uuid, d);
}

API(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice d))
{
	ENTER();
	return get_uuid(uuid, d);
}

API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice d))
{
	ENTER();
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = driver.dev[d].capacity;
	return CUDA_SUCCESS;
}

API(cuDeviceGetAttribute, (int *value, int attr, CUdevice d))
{
	static const struct {
		int attr, value;
	} known[] = {
		{1, 1024},   /* max threads per block */
		{10, 32},    /* warp size */
		{13, 1500000}, /* clock rate, kHz */
		{16, 64},    /* multiprocessors */
		{18, 0},     /* integrated */
		{19, 1},     /* can map host memory */
		{34, 0},     /* PCI device */
		{41, 1},     /* unified addressing */
		{50, 0},     /* PCI domain */
		{75, 9},     /* compute capability, major */
		{76, 0},     /* and minor */
		{83, 1},     /* managed memory */
		{89, 1},     /* concurrent managed access */
		{91, 1},     /* host pointer for registered memory */
		{99, 1},     /* host register */
		{102, 1},    /* virtual memory management */
		{115, 1},    /* memory pools */
	};

	ENTER();
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	if (attr == 33) { /* PCI bus */
		*value = driver.dev[d].index + 1;
		return CUDA_SUCCESS;
	}
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
		if (known[i].attr == attr) {
			*value = known[i].value;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}
