#include "pool.h"

namespace {
long held[8];
struct Walker {
	NOINLINE long walk(long n) { return n < 2 ? n : walk(n - 1) + *pool::Block<long>{held, n}.grow(n); }
};
}  // namespace

namespace pool {
NOINLINE long one(Block<long> &b, long n) {
	auto twice = [&](long m) __attribute__((always_inline)) { return *b.grow(m) + *b.grow(m + 1); };
	return mix(twice(n), Walker().walk(n));
}
}  // namespace pool

int main(int argc, char **) {
	char bytes[8] = {};
	pool::Block<long> b{held, argc};
	pool::Block<char> c{bytes, argc};
	return int(pool::one(b, argc) + pool::two(c, argc));
}

extern "C" void _start() {
	main(7, nullptr);
	for (;;) {}
}
