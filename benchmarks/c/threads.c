/*
 * threads.c - what an event costs on 1 or on N threads at once: each contender
 * in turns, all threads in the same one at the same time.
 *
 *	hookbench THREADS ROUNDS
 *
 * It prints a benchmark line a round and contender: the median over turns of
 * the mean over threads.
 */
#include "burst.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 256, TURNS = 12, CONTENDERS = 4 };

static const struct {
	const char *name;
	burst_fn *run;
} contenders[CONTENDERS] = {{"gpurec", burst_gpurec}, {"store", burst_store}, {"shared", burst_shared}, {"none", burst_none}};

static int threads, rounds;
static pthread_barrier_t gate;
static uint64_t arrived;
static double times[CONTENDERS][TURNS][MOST];

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print(void)
{
	for (int c = 0; c < CONTENDERS; c++) {
		double mean[TURNS];
		for (int t = 0; t < TURNS; t++) {
			mean[t] = 0;
			for (int i = 0; i < threads; i++)
				mean[t] += times[c][t][i] / threads;
		}
		qsort(mean, TURNS, sizeof mean[0], order);
		printf("BenchmarkHookEvent/stack=none/threads=%d/who=%s %d %.2f ns/op\n", threads, contenders[c].name,
		       TURNS * BURST * threads, mean[TURNS / 2]);
	}
	fflush(stdout);
}

/* Waking from a barrier takes a part of a burst; so that bursts overlap, the
 * threads then wait for each other without sleeping. */
static void together(uint64_t turn)
{
	pthread_barrier_wait(&gate);
	__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < turn * (uint64_t)threads)
		sched_yield();
}

static void *work(void *arg)
{
	uint64_t turns = 0;
	int self = (int)(intptr_t)arg;
	burst_gpurec(1); /* makes the lane; the recorder takes it in */
	usleep(300000);
	for (int round = -1; round < rounds; round++) { /* -1 warms up */
		for (int turn = 0; turn < TURNS; turn++) {
			for (int c = 0; c < CONTENDERS; c++) {
				together(++turns);
				times[c][turn][self] = burst_time(contenders[c].run, BURST);
			}
			pthread_barrier_wait(&gate);
			if (self == 0)
				usleep((useconds_t)(8000 + 12000 * threads)); /* the recorder takes what is in the lanes */
		}
		pthread_barrier_wait(&gate);
		if (self == 0 && round >= 0)
			print();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	threads = argc > 1 ? atoi(argv[1]) : 1;
	rounds = argc > 2 ? atoi(argv[2]) : 10;
	if (threads < 1 || threads > MOST) {
		fprintf(stderr, "hookbench: 1 to %d threads\n", MOST);
		return 2;
	}
	pthread_barrier_init(&gate, NULL, (unsigned)threads);
	pthread_t t[MOST];
	for (int i = 1; i < threads; i++)
		pthread_create(&t[i], NULL, work, (void *)(intptr_t)i);
	work(NULL);
	for (int i = 1; i < threads; i++)
		pthread_join(t[i], NULL);
	return 0;
}
