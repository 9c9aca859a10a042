/*
 * Handles of the simulated driver's virtual memory management: vmm.c and bind.c.
 */
#ifndef VMM_H
#define VMM_H

#include "driver.h"

#define HOST_MEMORY (-1)

struct handle {
	_Atomic uint32_t live;
	int dev; /* or HOST_MEMORY, which costs the device nothing */
	uint64_t size;
	uint32_t refs, maps;
	bool multicast;
};

struct handle *handle_get(CUhandle h);

/* handle_settle ends a handle that nobody needs. It wants driver.lock. */
void handle_settle(CUhandle h, struct handle *p);

/* handle_at is the handle that is mapped there, 0 for none. It wants driver.lock. */
CUhandle handle_at(CUdeviceptr p);

#endif
