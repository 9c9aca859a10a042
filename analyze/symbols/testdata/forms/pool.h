// What both units have in common, which dwz moves to one place: classes, and
// functions that are inlined wherever they are called.
namespace pool {

#define INLINE __attribute__((always_inline)) inline
#define NOINLINE __attribute__((noinline))

template <typename T>
struct Block {
	T *at;
	long size;
	INLINE T *grow(long by) {
		size = round(size + by);
		at[size & 7] = T(by);
		return at + (size & 7);
	}

private:
	static INLINE long round(long n) { return (n + 511) & ~511L ^ (n >> 3); }
};

INLINE long mix(long a, long b) { return (a ^ b) * 0x9e3779b97f4a7c15UL >> 7; }

long one(Block<long> &b, long n);
long two(Block<char> &b, long n);

}  // namespace pool
