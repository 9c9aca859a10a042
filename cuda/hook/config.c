/*
 * config.c - the environment, read once in the constructor: later the program
 * may be changing it on another thread, and getenv is not safe then. Beside it
 * only the loader is asked what the program is linked to; a process that never
 * touches CUDA sees no more of us.
 */
#include "hook.h"

#include <elf.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

struct config gpurec_config;

static bool equal(const char *a, const char *b) { return a != NULL && strcmp(a, b) == 0; }

/* Our own, because glibc 2.38's headers turn strtoul into a symbol that older
 * systems lack. 0 where s is no number. */
static uint64_t number(const char *s)
{
	uint64_t n = 0;
	if (s == NULL || *s == 0)
		return 0;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || n > UINT64_MAX / 10 - 1)
			return 0;
		n = n * 10 + (uint64_t)(*s - '0');
	}
	return n;
}

static bool copy(char *to, size_t room, const char *from)
{
	size_t n = from == NULL ? 0 : strlen(from);
	if (n == 0 || n >= room)
		return false;
	memcpy(to, from, n + 1);
	return true;
}

static void read_environment(void)
{
	struct config *c = &gpurec_config;
	const char *socket = getenv(GPUREC_ENV_SOCKET);
	if (socket == NULL)
		return;
	c->verbose = equal(getenv(GPUREC_ENV_VERBOSE), "1");
	if (getauxval(AT_SECURE)) {
		gpurec_say("off: this program runs with raised privileges");
		return;
	}
	if (socket[0] != '/' || !copy(c->socket, sizeof c->socket, socket)) {
		gpurec_say("off: " GPUREC_ENV_SOCKET " is not an absolute path of under 108 bytes");
		return;
	}
	copy(c->chain, sizeof c->chain, getenv(GPUREC_ENV_NVTX_CHAIN));
	c->deepbind = equal(getenv(GPUREC_ENV_DEEPBIND), "1");
	c->wait = equal(getenv(GPUREC_ENV_ON_FULL), "wait");

	const char *stacks = getenv(GPUREC_ENV_STACKS);
	bool none = equal(stacks, "none"), python = equal(stacks, "python"), native = equal(stacks, "native"), both = equal(stacks, "both");
	c->python = !(none || native);
	c->native = none || python ? NATIVE_NEVER : native || both ? NATIVE_ALWAYS : NATIVE_ELSE;
	c->max_frames = 128;
	uint64_t frames = number(getenv(GPUREC_ENV_MAX_FRAMES));
	if (frames > 0)
		c->max_frames = frames < GPUREC_MAX_FRAMES ? (unsigned)frames : GPUREC_MAX_FRAMES;

	uint64_t size = number(getenv(GPUREC_ENV_LANE_SIZE));
	c->lane_size = GPUREC_DEFAULT_LANE_SIZE;
	if (size > 0) {
		c->lane_size = GPUREC_MIN_LANE_SIZE;
		while (c->lane_size < size && c->lane_size < GPUREC_MAX_LANE_BYTES)
			c->lane_size *= 2;
	}
	c->on = true;
}

/* Without a recorder too: PyTorch's reports are to go on. */
__attribute__((constructor)) static void begin(void)
{
	read_environment();
	gpurec_look_first();
}

void gpurec_say(const char *text)
{
	if (!gpurec_config.verbose)
		return;
	char line[256] = "gpurec: ";
	size_t n = strlen(line), m = strlen(text);
	if (m > sizeof line - n - 1)
		m = sizeof line - n - 1;
	memcpy(line + n, text, m);
	line[n + m] = '\n';
	syscall(SYS_write, 2, line, n + m + 1);
}
