// The library that the program opens.
#include <functional>

#include "shapes.h"

static void twice(Turn &t, int left, const std::function<void(int)> &f) {
	f(left);
	t.sink = 5;
}

extern "C" NOINLINE void plugin_turn(Turn &t, int left) {
	twice(t, left, [&t](int n) {
		shapes::Pool<float> p(1);
		p.apart(t, n);
		t.sink = 6;
	});
	t.sink = 7;
}
