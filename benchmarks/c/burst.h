/*
 * burst.h - the contenders for the cost of one event, in bursts of a size that
 * fits a lane, so that no burst waits for the recorder or is refused.
 *
 * A burst is timed by its thread's CPU time: on a machine that others use, a
 * thread that is put aside for a while has not become slower by it.
 */
#ifndef BURST_H
#define BURST_H

#include <stdint.h>

enum { BURST = 8192, RING = 1 << 20, SLOT = 64 };

typedef void burst_fn(unsigned events);

burst_fn burst_gpurec; /* PyTorch's report; the hook stands in front when it is preloaded */
burst_fn burst_none;   /* the same report past the hook: what any caller pays */
burst_fn burst_store;  /* the limit: clock, 64 bytes, a release store, in a ring of this thread */
burst_fn burst_shared; /* the rival: the same into one ring of all threads, by fetch_add */
burst_fn burst_walk;   /* the limit of a stack: every Python frame's code and instruction, read and summed */
burst_fn burst_backtrace; /* the usual way to a native stack: glibc's backtrace */

/* ns of CPU time an event, of one burst. */
double burst_time(burst_fn *f, unsigned events);

/* Runs rounds of the contenders, each named by a letter (g n s r w b), in turns
 * A B C A B C; after each turn a pause, in which the recorder empties the lane.
 * Prints a benchmark line a contender and round: the median of its bursts. */
void burst_rounds(const char *name, const char *who, int rounds, int turns, int pause_us);

int burst_can_walk(void);

#endif
