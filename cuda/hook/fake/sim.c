/* Configuration, device identity and shared state: see sim.h. */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB (1ull << 30)

/* parse_size reads "N", "NKiB", "NMiB" or "NGiB" up to a comma or the end and
 * leaves *text behind it. */
static bool parse_size(const char **text, uint64_t *out)
{
	static const struct {
		const char *suffix;
		int shift;
	} units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"", 0}};
	const char *p = *text;
	char *end;

	if (*p < '0' || *p > '9')
		return false;
	errno = 0;
	unsigned long long n = strtoull(p, &end, 10);
	if (errno)
		return false;
	for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
		size_t len = strlen(units[i].suffix);

		if (strncmp(end, units[i].suffix, len) != 0)
			continue;
		if (end[len] != 0 && end[len] != ',')
			continue;
		if (n > UINT64_MAX >> units[i].shift >> 8)
			return false;
		*out = n << units[i].shift;
		*text = end + len;
		return true;
	}
	return false;
}

bool sim_config_load(struct sim_config *c)
{
	const char *text = getenv("GPUREC_SIM_DEVICES");
	uint64_t n = 2, bytes = 16 * GIB;

	if (text && *text && (!parse_size(&text, &n) || *text || n < 1 || n > SIM_MAX_DEVICES))
		return false;
	c->devices = (int)n;

	text = getenv("GPUREC_SIM_MEMORY");
	if (!text)
		text = "";
	for (int d = 0; d < c->devices; d++) {
		if (*text) {
			if (!parse_size(&text, &bytes))
				return false;
			if (*text == ',' && *++text == 0)
				return false;
		}
		/* NVML's reserved bytes, so that used + free is not total,
		 * as on a real device. */
		uint64_t reserved = bytes / 256 / SIM_UNIT * SIM_UNIT;
		if (reserved < SIM_UNIT)
			reserved = SIM_UNIT;
		if (bytes < 4 * SIM_UNIT)
			return false;
		c->total[d] = bytes;
		c->reserved[d] = reserved;
	}
	if (*text)
		return false;

	c->context_bytes = GIB / 2;
	text = getenv("GPUREC_SIM_CONTEXT_BYTES");
	if (text && *text && (!parse_size(&text, &c->context_bytes) || *text))
		return false;

	c->addresses = UINT64_MAX;
	text = getenv("GPUREC_SIM_ADDRESSES");
	if (text && *text && (!parse_size(&text, &c->addresses) || *text || c->addresses < GIB))
		return false;
	return true;
}

void sim_uuid(int device, unsigned char out[16])
{
	/* A fixed multiplicative sequence: looks like a UUID, is the same in
	 * every process, differs between devices. */
	uint64_t x = 0x9e3779b97f4a7c15ull * (uint64_t)(device + 1);

	for (int i = 0; i < 16; i++) {
		x ^= x >> 29;
		x *= 0xbf58476d1ce4e5b9ull;
		out[i] = (unsigned char)(x >> 56);
	}
	out[6] = (unsigned char)((out[6] & 0x0f) | 0x40);
	out[8] = (unsigned char)((out[8] & 0x3f) | 0x80);
}

void sim_uuid_text(int device, char out[41])
{
	unsigned char u[16];
	char *p = out + 4;

	sim_uuid(device, u);
	memcpy(out, "GPU-", 4);
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = "0123456789abcdef"[u[i] >> 4];
		*p++ = "0123456789abcdef"[u[i] & 15];
	}
	*p = 0;
}

void sim_name(int device, char *out, int size)
{
	if (size > 0)
		snprintf(out, (size_t)size, "Simulated GPU %d", device);
}

/* read_stat gives the start time of a process in clock ticks and its state
 * letter; false if /proc does not tell. */
static bool read_stat(const char *path, uint64_t *start, char *state)
{
	char buf[1024];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, buf, sizeof buf - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = 0;
	/* The name may hold spaces and brackets; the last ')' ends it. */
	char *p = strrchr(buf, ')');
	if (!p || p[1] != ' ')
		return false;
	*state = p[2];
	/* The state is field 3, the start time field 22. */
	p += 2;
	for (int field = 3; field < 22; field++) {
		p = strchr(p, ' ');
		if (!p)
			return false;
		p++;
	}
	*start = strtoull(p, NULL, 10);
	return true;
}

static uint64_t self_owner(void)
{
	uint64_t start = 0;
	char state;

	if (!read_stat("/proc/self/stat", &start, &state))
		start = 0;
	return (start & 0xffffffffull) << 32 | (uint32_t)getpid();
}

bool sim_owner_alive(uint64_t owner)
{
	pid_t pid = (pid_t)(uint32_t)owner;
	uint64_t start;
	char path[40], state;
	int saved = errno;

	if (pid <= 0)
		return false;
	if (kill(pid, 0) != 0 && errno == ESRCH) {
		errno = saved;
		return false;
	}
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	bool known = read_stat(path, &start, &state);
	errno = saved;
	if (!known)
		return true;
	if (state == 'Z' || state == 'X')
		return false;
	return owner >> 32 == 0 || (start & 0xffffffffull) == owner >> 32;
}

/* may_grow says whether the process may write a file so long: past its limit
 * the kernel would end the program with SIGXFSZ. */
static bool may_grow(off_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	       limit.rlim_cur >= (rlim_t)size;
}

/* grow gives a file its size and its blocks: a page of one that has none, touched
 * while the disk is full, would end the program with SIGBUS. To one fixed size it
 * is idempotent, so that two processes may do it at once. */
static bool grow(int fd, off_t size)
{
	int failed;

	if (!may_grow(size))
		return false;
	do
		failed = fallocate(fd, 0, 0, size);
	while (failed && errno == EINTR);
	return !failed || (errno == EOPNOTSUPP && ftruncate(fd, size) == 0);
}

struct sim_state *sim_state_open(bool private_if_unset)
{
	const char *path = getenv("GPUREC_SIM_STATE");
	struct sim_state *s = MAP_FAILED;

	if (path && *path) {
		struct stat st;
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0)
			return NULL;
		/* A longer file is somebody else's. */
		if (fstat(fd, &st) == 0 && st.st_size <= (off_t)sizeof *s &&
		    (st.st_size == (off_t)sizeof *s || grow(fd, sizeof *s)))
			s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	} else if (private_if_unset) {
		s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	if (s == MAP_FAILED)
		return NULL;
	uint64_t zero = 0;
	if (!atomic_compare_exchange_strong(&s->magic, &zero, SIM_MAGIC) && zero != SIM_MAGIC) {
		sim_state_close(s);
		return NULL;
	}
	return s;
}

void sim_state_close(struct sim_state *s)
{
	if (s)
		munmap(s, sizeof *s);
}

#define CLAIMING UINT64_MAX /* owner of a slot while it is being emptied; pid -1 never counts */

struct sim_slot *sim_slot_claim(struct sim_state *s)
{
	uint64_t me = self_owner();

	/* 1. The slot an earlier image of this process left (exec keeps pid
	 *    and start time).
	 * 2. Else a free one, or one whose owner is dead.
	 * 3. Take it, empty it, and only then let it count. */
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < SIM_SLOTS; i++) {
			struct sim_slot *slot = &s->slot[i];
			uint64_t owner = atomic_load(&slot->owner);

			if (pass == 0 ? owner != me : owner == CLAIMING || (owner && sim_owner_alive(owner)))
				continue;
			if (!atomic_compare_exchange_strong(&slot->owner, &owner, CLAIMING))
				continue;
			for (int d = 0; d < SIM_MAX_DEVICES; d++)
				atomic_store(&slot->used[d], 0);
			uint32_t high = atomic_load(&s->high);
			while (high < (uint32_t)i + 1 &&
			       !atomic_compare_exchange_weak(&s->high, &high, (uint32_t)i + 1))
				;
			atomic_store(&slot->owner, me);
			return slot;
		}
	}
	return NULL;
}

uint64_t sim_used(struct sim_state *s, int device, bool dead_too)
{
	uint32_t high = atomic_load(&s->high);
	int64_t sum = 0;

	if (high > SIM_SLOTS)
		high = SIM_SLOTS;
	for (uint32_t i = 0; i < high; i++) {
		uint64_t owner = atomic_load(&s->slot[i].owner);
		int64_t used = atomic_load(&s->slot[i].used[device]);

		if (!owner || owner == CLAIMING || used <= 0)
			continue;
		if (dead_too || sim_owner_alive(owner))
			sum += used;
	}
	return (uint64_t)sum;
}
