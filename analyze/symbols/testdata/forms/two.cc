#include "pool.h"

namespace pool {
static NOINLINE long step(Block<char> &b, long n) {
	if (n < 0) return mix(n, *b.grow(n));
	return mix(*b.grow(1), n);
}

NOINLINE long two(Block<char> &b, long n) {
	long all = 0;
	for (long i = 0; i < n; i++) all += step(b, i) ^ mix(i, n);
	return all;
}
}  // namespace pool
