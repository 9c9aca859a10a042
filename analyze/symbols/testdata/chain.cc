// chain.cc is a program whose allocations lie in inlined calls, three deep.
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace pool {

template <typename T>
struct Block {
	T *data;
	__attribute__((always_inline)) explicit Block(size_t n) : data(static_cast<T *>(take(n * sizeof(T)))) {}

private:
	static __attribute__((always_inline)) void *take(size_t n) {
		void *p = malloc(n + 1);
		if (!p) abort();
		return p;
	}
};

__attribute__((noinline)) int step(int n) {
	Block<float> a(n);
	Block<double> b(2 * n);
	int sum = int(a.data[0] = n) + int(b.data[0] = 1);
	free(a.data);
	free(b.data);
	return sum;
}

static __attribute__((noinline)) int recurse(int n) {
	if (n == 0) return step(7);
	return recurse(n - 1) + step(n);
}

}  // namespace pool

extern "C" __attribute__((noinline)) int plain_c(int n) {
	std::vector<int> v(n);
	return pool::recurse(n) + v[0];
}

int main(int argc, char **argv) {
	printf("%d\n", plain_c(argc + 2));
	return 0;
}
