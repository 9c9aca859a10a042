/* A stand-in for the hook: gpurec.h, with each call written as a line to the
 * file that STUB_LOG names. Built by support.py together with the hook's
 * own cupy.c. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpurec.h"

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	const char *path = getenv("STUB_LOG");
	FILE *f = path ? fopen(path, "a") : NULL;
	va_list arguments;
	if (!f)
		return;
	va_start(arguments, format);
	vfprintf(f, format, arguments);
	va_end(arguments);
	fclose(f);
}

int gpurec_active(void) { return !getenv("STUB_INACTIVE"); }

static uint64_t last;

uint64_t gpurec_scope_begin(const char *name, const char *domain)
{
	uint64_t id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	say("scope_begin %s %s -> %" PRIu64 "\n", name ? name : "-", domain ? domain : "-", id);
	return id;
}
uint64_t gpurec_scope_begin_on(const char *name, const char *domain, int32_t device)
{
	if (device >= 0)
		say("on %d: ", device);
	return gpurec_scope_begin(name, domain);
}
/* Answers STUB_ANSWER, "OUTCOME STATE LOST BEGIN END MAX" of the used curve. */
int gpurec_scope_ask(uint64_t id, int how, const char *sub, gpurec_measures *m)
{
	static const char *const ways[] = {"ask", "report", "end"};
	const char *answer = getenv("STUB_ANSWER");
	int outcome = GPUREC_ANSWERED;
	say("scope_ask %s %" PRIu64 " %s\n", ways[how], id, sub ? sub : "-");
	*m = (gpurec_measures){.known = 3, .state = 1};
	if (answer)
		sscanf(answer, "%d %" SCNu32 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &outcome, &m->state, &m->lost, &m->begin[0], &m->end[0],
		       &m->max[0]);
	return outcome;
}
void gpurec_scope_end(uint64_t id) { say("scope_end %" PRIu64 "\n", id); }
void gpurec_scope_reset(uint64_t id) { say("scope_reset %" PRIu64 "\n", id); }
void gpurec_scope_report(uint64_t id, const char *sub) { say("scope_report %" PRIu64 " %s\n", id, sub ? sub : "-"); }
void gpurec_mark(const char *text) { say("mark %s\n", text); }

void gpurec_pool_alloc(uint32_t api, int32_t device, uint64_t address, uint64_t object, int64_t requested, int64_t size,
                       int64_t duration, int32_t status, uint32_t flags, int32_t skip)
{
	say("pool_alloc api=%u device=%d address=%" PRIu64 " object=%s requested=%" PRId64 " size=%" PRId64
	    " duration=%s status=%d flags=%u skip=%d\n",
	    api, device, address, object ? "id" : "0", requested, size, duration >= 0 ? "known" : "unknown", status, flags,
	    skip);
}
void gpurec_pool_free(uint32_t api, int32_t device, uint64_t address, uint64_t object, int32_t skip)
{
	say("pool_free api=%u device=%d address=%" PRIu64 " object=%s skip=%d\n", api, device, address, object ? "id" : "0",
	    skip);
}
void gpurec_pool_enter(void) { say("enter\n"); }
void gpurec_pool_leave(void) { say("leave\n"); }

#ifdef NO_CPYTHON
/* For this library alone: none of the interpreter's functions can be found. */
__attribute__((visibility("hidden"))) void *dlsym(void *handle, const char *name)
{
	(void)handle, (void)name;
	return NULL;
}
#endif
