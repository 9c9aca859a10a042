// symbols.cu takes memory through inlined calls, templates, recursion and a second
// thread: its stacks are compared with addr2line's.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace grid {

struct Field {
	void *p = nullptr;
	__attribute__((always_inline)) explicit Field(size_t bytes) {
		if (cudaMalloc(&p, bytes) != cudaSuccess) abort();
	}
};

__attribute__((noinline)) Field refine(size_t bytes) {
	Field f(bytes);
	return f;
}

template <typename T>
__attribute__((noinline)) size_t solve(int depth) {
	if (depth > 0) return solve<T>(depth - 1) + 1;
	return refine(sizeof(T) << 20).p != nullptr;
}

// work is no lambda: addr2line gives one's inlined call the name of what it lies in.
void work(std::vector<Field> *held) { held->push_back(refine(5 << 20)); }

}  // namespace grid

int main() {
	std::vector<grid::Field> held;
	for (int i = 1; i <= 100; i++) held.push_back(grid::refine(i * 4096));
	size_t depth = grid::solve<double>(5) + grid::solve<char>(2);
	std::thread other(grid::work, &held);
	other.join();
	printf("%zu fields, depth %zu\n", held.size(), depth);
	return 0;
}
