// The library that the program is linked to: a class with virtual functions, and
// functions that only this file sees.
#include <map>
#include <memory>
#include <string>

#include "shapes.h"

namespace {

NOINLINE void hidden(Turn &t, int left) {
	shapes::Pool<double>(left).grow(t, left);
	t.sink = 2;
}

struct Square : shapes::Shape {
	std::map<std::string, int> sides{{"a", 1}, {"b", 2}};
	void call(Turn &t, int left) override {
		for (auto &[name, side] : sides)
			t.sink = side + static_cast<int>(name.size());
		hidden(t, left);
		t.sink = 3;
	}
};

} // namespace

extern "C" NOINLINE void library_turn(Turn &t, int left) {
	std::unique_ptr<shapes::Shape> s = std::make_unique<Square>();
	shapes::Shape *volatile p = s.get();
	p->call(t, left);
	t.sink = 4;
}
