// What the program, its library and its plugin have in common: the random tree of
// calls goes on in a module that takes turns.
#pragma once
#include <cstddef>
#include <cstdint>

#define NOINLINE __attribute__((noinline, noclone))

struct Turn {
	uint64_t dice;
	void (*go)(Turn &, int left); // anywhere in the program
	int roll(int n) {
		dice = dice * 6364136223846793005ull + 1442695040888963407ull;
		return static_cast<int>((dice >> 33) % static_cast<unsigned>(n));
	}
	volatile int sink = 0; // what keeps a call from being the last
};

namespace shapes {

// Inlined wherever it is called, in each module.
template <int N, typename F>
inline void times(Turn &t, F &&f) {
	for (int i = 0; i < N; i++)
		f(i);
	t.sink = N;
}

template <typename T>
class Pool {
	T held[4];

public:
	explicit Pool(T first) : held{first} {}
	inline __attribute__((always_inline)) void grow(Turn &t, int left) {
		held[left & 3] += static_cast<T>(left);
		inner(t, left);
		t.sink = static_cast<int>(held[0]);
	}
	NOINLINE void apart(Turn &t, int left) { grow(t, left); }

private:
	inline __attribute__((always_inline)) void inner(Turn &t, int left) {
		t.go(t, left - 1);
		t.sink = 1;
	}
};

struct Shape {
	virtual void call(Turn &t, int left) = 0;
	virtual ~Shape() = default;
};

} // namespace shapes

extern "C" void library_turn(Turn &t, int left);
