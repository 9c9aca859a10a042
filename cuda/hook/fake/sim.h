/*
 * sim.h - what the simulated driver and the simulated NVML share: the
 * configuration read from the environment, the identity of the devices, and
 * the state that says how many bytes each process holds on each device.
 *
 * Environment, read at cuInit and nvmlInit:
 *
 *   GPUREC_SIM_DEVICES        number of devices, 1..16, default 2
 *   GPUREC_SIM_MEMORY         bytes of each device as NVML calls them (total),
 *                             one size or a comma list, the last one repeats;
 *                             suffixes KiB, MiB, GiB; default 16GiB
 *   GPUREC_SIM_CONTEXT_BYTES  what the first CUcontext of a process takes on a
 *                             device, default 512MiB
 *   GPUREC_SIM_ADDRESSES      the most of the address space that is reserved at
 *                             once: an emulator has books of each of its pages,
 *                             of which 2 TiB are half a billion; default no limit
 *   GPUREC_SIM_STATE          path of the shared state file; unset: the state
 *                             is private to the process
 *   GPUREC_SIM_FAIL           libcuda only, see driver.h
 *   GPUREC_SIM_NVML_FAIL      NVML only, see nvml.c
 *
 * The state file needs no preparation: an empty or missing file is a valid
 * one, whoever maps it first gives it its size, and all zeros means that
 * nobody holds anything. It is
 *
 *   +0    magic, high-water mark of used slots
 *   +64   slot 0: owner (start time << 32 | pid), bytes held on each device
 *   +256  slot 1 ...
 *
 * A slot is written by its owner alone, so no process ever waits for another
 * and a killed one leaves nothing to repair: its slot simply stops counting.
 * A counter per device beside the slots would be quicker to read, but a
 * process killed between the two additions would hold memory for ever.
 */
#ifndef SIM_H
#define SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_MAX_DEVICES 16
#define SIM_SLOTS 1024
#define SIM_MAGIC 0x3147504d49535247ull /* "GRSIMPG1", little endian */
#define SIM_UNIT (2ull << 20)           /* the device hands out physical memory in 2 MiB */
#define SIM_DRIVER_VERSION 13000
#define SIM_DRIVER_TEXT "580.00.00"

struct sim_slot {
	_Atomic uint64_t owner;
	_Atomic int64_t used[SIM_MAX_DEVICES];
	uint64_t pad[7];
};

struct sim_state {
	_Atomic uint64_t magic;
	_Atomic uint32_t high; /* slots at and above this one were never used */
	uint32_t pad0;
	uint64_t pad[6];
	struct sim_slot slot[SIM_SLOTS];
};

_Static_assert(sizeof(struct sim_slot) == 192, "a slot is three cache lines");
_Static_assert(sizeof(struct sim_state) == 64 + 192 * SIM_SLOTS, "state layout");

struct sim_config {
	int devices;
	uint64_t total[SIM_MAX_DEVICES];    /* NVML's total */
	uint64_t reserved[SIM_MAX_DEVICES]; /* kept by the driver; total - reserved is what CUDA offers */
	uint64_t context_bytes;
	uint64_t addresses;
};

/* sim_config_load reads the environment; false when a variable is malformed. */
bool sim_config_load(struct sim_config *c);

/* sim_uuid writes the 16 bytes of a device, sim_uuid_text their text with the
 * GPU- prefix (41 bytes with the final 0). Equal for an index in every run. */
void sim_uuid(int device, unsigned char out[16]);
void sim_uuid_text(int device, char out[41]);

/* sim_name writes the device's name. */
void sim_name(int device, char *out, int size);

/* sim_state_open maps GPUREC_SIM_STATE, or private memory if it is unset and
 * the caller wants that; NULL if it cannot be had or is some other file. */
struct sim_state *sim_state_open(bool private_if_unset);
void sim_state_close(struct sim_state *s);

/* sim_slot_claim gives the calling process a slot with nothing in it. */
struct sim_slot *sim_slot_claim(struct sim_state *s);

/* sim_used sums what all processes hold on a device. With dead_too it trusts
 * the slots, which costs no system call; without, it asks which owners live. */
uint64_t sim_used(struct sim_state *s, int device, bool dead_too);

/* sim_owner_alive says whether the process behind a slot still runs; a zombie
 * has returned its memory. */
bool sim_owner_alive(uint64_t owner);

#endif
