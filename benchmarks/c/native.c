/*
 * native.c - what an event costs with a native stack of so many frames, in a
 * program without frame pointers.
 *
 *	nativebench FRAMES ROUNDS
 */
#include "burst.h"

#include <stdio.h>
#include <stdlib.h>

static const char *name;
static int rounds;
static volatile int sink; /* what keeps a call from being the last */

static __attribute__((noinline)) void deeper(int frames)
{
	if (frames > 1)
		deeper(frames - 1);
	else
		burst_rounds(name, "gnsb", rounds, 12, 20000);
	sink = frames;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	char text[64];
	int frames = atoi(argv[1]);
	snprintf(text, sizeof text, "HookEvent/stack=native/program=C/frames=%d", frames);
	name = text;
	rounds = atoi(argv[2]);
	/* Others are burst_gpurec, burst_time, burst_rounds, main, two that start it, and _start. */
	deeper(frames - 7);
	return 0;
}
