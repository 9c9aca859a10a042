/*
 * main.cpp - takes memory from stacks of every shape that C++ makes: templates,
 * lambdas, inlined, virtual and tail calls, exceptions, std::function, functions that
 * do not return, a library, a plugin. Each allocation has a size of its own.
 *
 * Usage: main PLUGIN N; the driver is found by dlsym.
 */
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <dlfcn.h>

#include "shapes.h"

static int (*mem_alloc)(uint64_t *, size_t), (*set_current)(void *);
static void (*plugin_turn)(Turn &, int);
static void *ctx;
static size_t size = 4096;

static NOINLINE void point(Turn &t) {
	uint64_t address = 0;
	mem_alloc(&address, size++);
	t.sink = 8;
}

namespace shapes {

template <typename T>
NOINLINE void templated(Turn &t, int left, T n) {
	Pool<T> p(n);
	p.grow(t, left);
	t.sink = static_cast<int>(n);
}

template <typename... Ts>
NOINLINE void variadic(Turn &t, int left, Ts... ns) {
	std::variant<Ts...> v = std::get<0>(std::make_tuple(ns...));
	std::visit([&](auto n) { templated(t, left, n); }, v);
	t.sink = 9;
}

struct Circle : Shape {
	std::vector<int> held = std::vector<int>(8);
	void call(Turn &t, int left) override {
		std::function<void()> f = [&, this] { t.go(t, left - 1); held[0]++; };
		f();
		t.sink = held[0];
	}
};

NOINLINE void object(Turn &t, int left) {
	Circle c;
	Shape *volatile s = &c;
	s->call(t, left);
	t.sink = 10;
}

} // namespace shapes

namespace {

NOINLINE void lambdas(Turn &t, int left) {
	int all = 0;
	auto outer = [&](int n) {
		auto inner = [&](int m) __attribute__((noinline)) {
			all += m;
			t.go(t, left - 1);
			t.sink = all;
		};
		inner(n + 1);
		t.sink = n;
	};
	shapes::times<1>(t, outer);
	t.sink = all;
}

NOINLINE void algorithm(Turn &t, int left) {
	std::vector<int> v(3);
	std::iota(v.begin(), v.end(), 1);
	int seen = 0;
	std::for_each(v.begin(), v.end(), [&](int n) {
		if (n == 2)
			t.go(t, left - 1);
		seen += n;
	});
	std::sort(v.begin(), v.end(), [&](int a, int b) { return a * seen > b * seen; });
	t.sink = v[0] + seen;
}

struct Guard {
	Turn &t;
	int left;
	~Guard() {
		t.go(t, left - 2);
		t.sink = 11;
	}
};

NOINLINE void fly(Turn &t, int left) {
	Guard g{t, left};
	if (t.roll(2) >= 0)
		throw left;
	t.sink = 12;
}

NOINLINE void exceptions(Turn &t, int left) {
	try {
		fly(t, left);
	} catch (int n) {
		t.go(t, n - 2);
		t.sink = n;
	}
}

NOINLINE void tail(Turn &t, int left) { return t.go(t, left - 1); } // a jump

thread_local jmp_buf back;
[[noreturn]] NOINLINE void gone(Turn &t, int left) { // what follows its call is another function
	shapes::Pool<long> p(left);
	p.grow(t, left);
	longjmp(back, 1);
}
NOINLINE void noreturn(Turn &t, int left) {
	jmp_buf old;
	__builtin_memcpy(&old, &back, sizeof old);
	if (!setjmp(back))
		gone(t, left);
	__builtin_memcpy(&back, &old, sizeof old);
	t.sink = 13;
}

struct Walker {
	Turn &t;
	NOINLINE void operator()(int left) const {
		t.go(t, left - 1);
		t.sink = 14;
	}
	NOINLINE Walker &operator<<(int left) {
		(*this)(left);
		return *this;
	}
	NOINLINE explicit operator int() const { return t.sink; }
};

NOINLINE void operators(Turn &t, int left) {
	Walker w{t};
	w << left;
	t.sink = static_cast<int>(w);
}

} // namespace

static void any(Turn &t, int left) {
	if (left <= 0)
		return point(t);
	switch (t.roll(12)) {
	case 0: shapes::templated<int>(t, left, 1); break;
	case 1: shapes::templated<unsigned char>(t, left, 'c'); break;
	case 2: shapes::variadic<short, double>(t, left, 1, 2); break;
	case 3: shapes::object(t, left); break;
	case 4: lambdas(t, left); break;
	case 5: algorithm(t, left); break;
	case 6: left > 3 ? exceptions(t, left / 2) : operators(t, left); break;
	case 7: tail(t, left); break;
	case 8: noreturn(t, left); break;
	case 9: operators(t, left); break;
	case 10: library_turn(t, left); break;
	case 11: plugin_turn(t, left); break;
	}
	t.sink = 15;
}

int main(int, char **argv) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *plugin = dlopen(argv[1], RTLD_NOW);
	auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
	auto retain = reinterpret_cast<int (*)(void **, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
	set_current = reinterpret_cast<int (*)(void *)>(dlsym(driver, "cuCtxSetCurrent"));
	mem_alloc = reinterpret_cast<int (*)(uint64_t *, size_t)>(dlsym(driver, "cuMemAlloc_v2"));
	if (!plugin || init(0) || retain(&ctx, 0) || set_current(ctx))
		return 1;
	plugin_turn = reinterpret_cast<void (*)(Turn &, int)>(dlsym(plugin, "plugin_turn"));
	size_t last = size + static_cast<size_t>(atoi(argv[2]));
	Turn t{7, any};
	while (size < last - 50)
		any(t, t.roll(14));
	std::thread other([&t] {
		set_current(ctx);
		for (int i = 0; i < 50; i++)
			any(t, t.roll(6));
	});
	other.join();
	return 0;
}
