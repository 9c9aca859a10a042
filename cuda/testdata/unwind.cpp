/*
 * unwind.cpp - takes memory from stacks of every shape and prints, for each
 * allocation, its address and the frames above it, innermost first, as the
 * compiler's own unwinder sees them at that moment: PATH:ADDRESS in the file, of a
 * caller its call's last byte.
 *
 * Usage: unwind KIND... ; the driver is found by dlsym.
 *   random N    N allocations from a random tree of calls
 *   deep        900 frames of recursion
 *   threads     8 threads at once
 *   signals     in a signal's handler, on the thread's stack and on another
 *   exceptions  in a destructor while an exception flies, and in its handler
 *   coroutine   on a stack of its own
 *   closing LIB opens LIB, calls it, closes it, on one thread, while others allocate
 *   twins A B   opens A, calls it, closes it, then B, which may lie at its place
 *   forks       in a child
 *   bare LIB    through a library without tables
 *   odd LIB     the same of one with tables that the compiler's unwinder is not
 *               shown: only the address is printed
 *   mapped LIB  the same of one that lies as a kernel of 64 KiB pages maps it, whose
 *               code has the file's beginning in its first page
 *   made HOW    through code made at run time, of which only the first frames are
 *               printed: with a frame pointer, without one (blind), in a file of
 *               memory (file)
 *   below       through code made at run time that leaves a wild number where a
 *               frame pointer would be, on a stack right below a thread's guard
 *   forbid      process_vm_readv is refused from here on
 *   kill        it, and mincore, end the program from here on
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <alloca.h>
#include <atomic>
#include <csignal>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline, noclone))

/* ---- machine code --------------------------------------------------------------- */

#ifdef __x86_64__

static const unsigned char code_sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};             /* mov rax, 15; syscall */
static const unsigned char code_pointer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};            /* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char code_blind[] = {0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0xc3};                    /* push rbp; xor ebp, ebp; call rdi; … */
static const unsigned char code_wild[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};               /* push rbp; mov rbp, rsi; call rdi; … */
#define TRAP "int3"
static void after_trap(void *) {}

#else

static const uint32_t code_sigreturn[] = {0xd2801168, 0xd4000001};                                       /* mov x8, 139; svc 0 */
static const uint32_t code_pointer[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};     /* stp x29, x30, [sp, -16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], 16; ret */
static const uint32_t code_blind[] = {0xa9bf7bfd, 0xaa1f03fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};       /* …; mov x29, xzr; … */
static const uint32_t code_wild[] = {0xa9bf7bfd, 0xaa0103fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};        /* …; mov x29, x1; … */
#define TRAP "brk #0"
static void after_trap(void *context) { static_cast<ucontext_t *>(context)->uc_mcontext.pc += 4; }

/* As the kernel's page of code has it: no tables, and a nop before. An emulator has
 * its own, in no file. */
extern "C" void returns_from_signal();
__asm__(".text\n	nop\n.globl returns_from_signal\nreturns_from_signal:\n	mov x8, #139\n	svc #0\n");

#endif

static int (*mem_alloc)(uint64_t *, size_t), (*set_current)(void *);
static void *ctx;
static thread_local volatile int sink; /* what keeps a call from being the last */
static std::string exe;

/* ---- the reference ------------------------------------------------------------ */

struct place {
	uintptr_t at;
	std::string path;
	uintptr_t bias;
};

static int find(dl_phdr_info *info, size_t, void *to)
{
	place *p = static_cast<place *>(to);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) &h = info->dlpi_phdr[i];
		if (h.p_type == PT_LOAD && p->at - info->dlpi_addr - h.p_vaddr < h.p_memsz) {
			p->bias = info->dlpi_addr;
			p->path = info->dlpi_name[0] ? info->dlpi_name : exe;
			char real[4096];
			if (realpath(p->path.c_str(), real))
				p->path = real;
			return 1;
		}
	}
	return 0;
}

struct seen {
	uintptr_t at[2000];
	int n;
};

static _Unwind_Reason_Code see(_Unwind_Context *c, void *to)
{
	seen *s = static_cast<seen *>(to);
	int before = 0;
	uintptr_t ip = _Unwind_GetIPInfo(c, &before);
	if (ip != 0 && s->n < 2000) {
		if (!before && memcmp(reinterpret_cast<void *>(ip), code_sigreturn, sizeof code_sigreturn) == 0)
			before = 1;
		s->at[s->n++] = ip - !before;
	}
	return _URC_NO_REASON;
}

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void print(const char *kind, uint64_t address, const seen &s, int from)
{
	/* Nobody called a coroutine's first function: what it returns to is a function's beginning. */
	bool first = strcmp(kind, "coroutine") == 0;
	std::string line = std::string(kind) + "\t" + std::to_string(address);
	for (int i = from; i < s.n; i++) {
		place p{s.at[i] + (first && i == s.n - 1), "?", 0};
		dl_iterate_phdr(find, &p);
		char hex[32];
		snprintf(hex, sizeof hex, ":%lx", p.at - p.bias);
		line += "\t" + p.path + hex;
	}
	line += "\n";
	pthread_mutex_lock(&printing);
	fwrite(line.data(), 1, line.size(), stdout);
	pthread_mutex_unlock(&printing);
}

/* Both calls lie in this function: its own frame is not compared. */
static NOINLINE void point(const char *kind, size_t size)
{
	seen *s = static_cast<seen *>(malloc(sizeof(seen)));
	s->n = 0;
	uint64_t address = 0;
	_Unwind_Backtrace(see, s);
	mem_alloc(&address, size);
	print(kind, address, *s, 1);
	free(s);
	sink = 1;
}

/* ---- shapes ---------------------------------------------------------------------- */

static thread_local uint64_t dice = 1;
static unsigned roll(unsigned n)
{
	dice = dice * 6364136223846793005ull + 1442695040888963407ull;
	return static_cast<unsigned>(dice >> 33) % n;
}

static void any(const char *kind, int left);

static NOINLINE void plain(const char *kind, int left) { any(kind, left - 1); sink = 2; }

static NOINLINE void vla(const char *kind, int left)
{
	volatile char *p = static_cast<char *>(alloca(16 + roll(3000)));
	p[0] = 1;
	any(kind, left - 1);
	sink = p[0];
}

static NOINLINE void large(const char *kind, int left)
{
	volatile char p[9000];
	p[left] = 1;
	any(kind, left - 1);
	sink = p[left];
}

typedef float lanes8 __attribute__((vector_size(64)));
static NOINLINE void aligned(const char *kind, int left)
{
	volatile lanes8 v = {1};
	any(kind, left - 1);
	sink = static_cast<int>(v[0]);
}

/* Aligned, with room of a size known late, and more arguments than registers. */
static NOINLINE int all_of_it(const char *kind, int left, long a, long b, long c, long d, long e, long f)
{
	volatile lanes8 v = {1};
	volatile char *p = static_cast<char *>(alloca(16 + roll(500)));
	p[0] = static_cast<char>(a + f);
	any(kind, left - 1);
	return static_cast<int>(v[0]) + p[0] + static_cast<int>(b + c + d + e);
}

static NOINLINE void tail(const char *kind, int left) { any(kind, left - 1); } /* a jump */

static NOINLINE void many(const char *kind, int left)
{
	uint64_t a = dice, b = a * 3, c = a ^ b, d = c * 5, e = d ^ a, f = e * 7;
	any(kind, left - 1);
	sink = static_cast<int>(a + b + c + d + e + f);
}

struct base {
	virtual void call(const char *kind, int left) = 0;
	virtual ~base() {}
};
struct derived : base {
	std::vector<int> held = std::vector<int>(8);
	void call(const char *kind, int left) override
	{
		std::function<void()> f = [=, this] { any(kind, left - 1); sink = held[0]; };
		f();
		sink = 3;
	}
};
static NOINLINE void object(const char *kind, int left)
{
	derived d;
	base *volatile b = &d;
	b->call(kind, left);
	sink = 4;
}

static thread_local const char *sort_kind;
static thread_local int sort_left;
static int compare(const void *, const void *)
{
	if (int left = sort_left) {
		sort_left = 0;
		any(sort_kind, left - 1);
	}
	return 0;
}
static NOINLINE void sorted(const char *kind, int left)
{
	int two[2] = {1, 2};
	sort_kind = kind;
	sort_left = left;
	qsort(two, 2, sizeof two[0], compare);
	sink = two[0];
}

static NOINLINE void thrown(const char *kind, int left)
{
	try {
		if (left > 0)
			throw left;
	} catch (int n) {
		any(kind, n - 1);
		sink = n;
	}
}

static NOINLINE void any(const char *kind, int left)
{
	if (left <= 0) {
		point(kind, 256 + roll(4096));
		sink = 5;
		return;
	}
	switch (roll(9)) {
	case 0: plain(kind, left); break;
	case 1: vla(kind, left); break;
	case 2: large(kind, left); break;
	case 3: aligned(kind, left); break;
	case 4: sink = all_of_it(kind, left, 1, 2, 3, 4, 5, 6); break;
	case 5: tail(kind, left); break;
	case 6: many(kind, left); break;
	case 7: object(kind, left); break;
	case 8: if (roll(2)) sorted(kind, left); else thrown(kind, left); break;
	}
	sink = 6;
}

static NOINLINE void recurse(int n)
{
	if (n == 0)
		point("deep", 512);
	else
		recurse(n - 1);
	sink = n;
}

/* ---- kinds -------------------------------------------------------------------------- */

static void *thread_of(void *seed)
{
	dice = reinterpret_cast<uintptr_t>(seed) * 77;
	set_current(ctx);
	for (int i = 0; i < 100; i++)
		any("threads", static_cast<int>(roll(20)));
	return nullptr;
}

static void handler(int, siginfo_t *, void *)
{
	any("signals", 3);
	sink = 7;
}

static void traps(int, siginfo_t *, void *context)
{
	any("signals", 3);
	after_trap(context);
}

static void handle(int signal, void (*with)(int, siginfo_t *, void *), int flags)
{
#ifdef __aarch64__
	struct {
		void (*handler)(int, siginfo_t *, void *);
		unsigned long flags;
		void (*restorer)();
		uint64_t mask;
	} own = {with, SA_SIGINFO | 0x04000000ul | static_cast<unsigned long>(flags), returns_from_signal, 0};
	if (syscall(SYS_rt_sigaction, signal, &own, nullptr, sizeof own.mask) != 0)
		exit(1);
#else
	struct sigaction a = {};
	a.sa_sigaction = with;
	a.sa_flags = SA_SIGINFO | flags;
	sigaction(signal, &a, nullptr);
#endif
}

static NOINLINE void signals(bool aside)
{
	stack_t other = {};
	other.ss_sp = mmap(nullptr, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	other.ss_size = 1 << 17;
	if (aside)
		sigaltstack(&other, nullptr);
	handle(SIGUSR1, handler, aside ? SA_ONSTACK : 0);
	raise(SIGUSR1);
	/* One that comes at an instruction, and not in a call. */
	handle(SIGTRAP, traps, aside ? SA_ONSTACK : 0);
	for (int i = 0; i < 3; i++) {
		__asm__ volatile(TRAP);
		sink = i;
	}
	sink = 8;
}

struct guard {
	~guard() { any("exceptions", 2); sink = 9; }
};
static NOINLINE void fly(int n)
{
	guard g;
	if (n == 0)
		throw n;
	fly(n - 1);
	sink = n;
}
static NOINLINE void exceptions()
{
	try {
		fly(5);
	} catch (int) {
		any("exceptions", 3);
	}
	sink = 10;
}

static ucontext_t home, away;
static void coroutine()
{
	for (int i = 0; i < 5; i++) {
		any("coroutine", 4);
		swapcontext(&away, &home);
	}
}

static std::atomic<bool> stop;
static void *allocating(void *seed)
{
	dice = reinterpret_cast<uintptr_t>(seed) * 99;
	set_current(ctx);
	for (int i = 0; i < 300 || !stop; i++)
		if (i < 300)
			any("others", static_cast<int>(roll(15)));
		else
			usleep(1000);
	return nullptr;
}

typedef void report(const char *kind, size_t size);
typedef void called(report *, const char *kind);

static NOINLINE void through(const char *path, const char *kind, report *back = point)
{
	void *lib = dlopen(path, RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	reinterpret_cast<called *>(dlsym(lib, "through"))(back, kind);
	dlclose(lib);
	sink = 11;
}

static void closing(const char *path)
{
	pthread_t t[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], nullptr, allocating, reinterpret_cast<void *>(i + 1));
	for (int i = 0; i < 200; i++)
		through(path, "closing");
	stop = true;
	for (pthread_t x : t)
		pthread_join(x, nullptr);
}

static NOINLINE void unseen(const char *kind, size_t size)
{
	uint64_t address = 0;
	mem_alloc(&address, size);
	print(kind, address, seen{{}, 0}, 0);
	sink = 15;
}

static NOINLINE void mapped(const char *path)
{
	const size_t page = 1 << 16;
	void *lib = dlopen(path, RTLD_NOW), *at = lib ? dlsym(lib, "through") : nullptr;
	int file = open(path, O_RDONLY);
	if (at == nullptr || file < 0)
		exit(1);
	uintptr_t place = reinterpret_cast<uintptr_t>(at) - static_cast<link_map *>(lib)->l_addr;
	char *low = static_cast<char *>(mmap(nullptr, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	mmap(low, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
	mmap(low + page, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
	mmap(low + 2 * page, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, page); /* its tables */
	printf("place\t%lx\n", place);
	reinterpret_cast<called *>(low + place)(unseen, "mapped");
	sink = 16;
}

static NOINLINE void called_back()
{
	point("made", 1024);
	sink = 13;
}

static void made(const std::string &how)
{
	int file = how == "file" ? memfd_create("made", 0) : -1;
	if (file >= 0 && ftruncate(file, 4096) != 0)
		exit(1);
	void *code = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
	if (how == "blind")
		memcpy(code, code_blind, sizeof code_blind);
	else
		memcpy(code, code_pointer, sizeof code_pointer);
	__builtin___clear_cache(static_cast<char *>(code), static_cast<char *>(code) + 64);
	reinterpret_cast<void (*)(void (*)())>(code)(called_back);
	sink = 14;
}

/* Code whose rbp, where it calls back, is what it was given. */
static uintptr_t wild;
static void *made_wild;
static ucontext_t above, under;

static void on_stack_below()
{
	reinterpret_cast<void (*)(void (*)(), uintptr_t)>(made_wild)(called_back, wild);
	swapcontext(&under, &above);
}

static void *stack_below(void *)
{
	pthread_attr_t attributes;
	void *low;
	size_t size, guard, mine = 1 << 17;
	set_current(ctx);
	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstack(&attributes, &low, &size);
	pthread_attr_getguardsize(&attributes, &guard);
	char *wanted = static_cast<char *>(low) - guard - mine;
	if (mmap(wanted, mine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != wanted)
		exit(1);
	wild = reinterpret_cast<uintptr_t>(low) - guard + 256;
	getcontext(&under);
	under.uc_stack.ss_sp = wanted;
	under.uc_stack.ss_size = mine;
	under.uc_link = &above;
	makecontext(&under, on_stack_below, 0);
	swapcontext(&above, &under);
	return nullptr;
}

static void below()
{
	pthread_t t;
	made_wild = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(made_wild, code_wild, sizeof code_wild);
	__builtin___clear_cache(static_cast<char *>(made_wild), static_cast<char *>(made_wild) + 64);
	pthread_create(&t, nullptr, stack_below, nullptr);
	pthread_join(t, nullptr);
}

static void forbid(uint32_t verdict)
{
	sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the call's number */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mincore, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, verdict),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	sock_fprog program = {5, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		exit(1);
}

/* CUDA cannot be used in a child of a process that has used it. */
static int pool_alloc(uint64_t *address, size_t size)
{
	static auto report = reinterpret_cast<void (*)(uint32_t, int32_t, uint64_t, uint64_t, int64_t, int64_t, int64_t, int32_t, uint32_t, int32_t)>(
		dlsym(RTLD_DEFAULT, "gpurec_pool_alloc"));
	static uint64_t next = 1;
	report(256, 0, *address = next++, 0, static_cast<int64_t>(size), static_cast<int64_t>(size), -1, 0, 0, 0);
	sink = 12;
	return 0;
}

int main(int argc, char **argv)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	exe.assign(path, n > 0 ? static_cast<size_t>(n) : 0);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
	auto retain = reinterpret_cast<int (*)(void **, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
	set_current = reinterpret_cast<int (*)(void *)>(dlsym(driver, "cuCtxSetCurrent"));
	mem_alloc = reinterpret_cast<int (*)(uint64_t *, size_t)>(dlsym(driver, "cuMemAlloc_v2"));
	if (init(0) || retain(&ctx, 0) || set_current(ctx))
		return 1;
	for (int i = 1; i < argc; i++) {
		std::string kind = argv[i];
		if (kind == "random")
			for (int left = atoi(argv[++i]); left > 0; left--)
				any("random", static_cast<int>(roll(40)));
		else if (kind == "deep")
			recurse(900);
		else if (kind == "threads") {
			pthread_t t[8];
			for (long k = 0; k < 8; k++)
				pthread_create(&t[k], nullptr, thread_of, reinterpret_cast<void *>(k + 1));
			for (pthread_t x : t)
				pthread_join(x, nullptr);
		} else if (kind == "signals") {
			signals(false);
			signals(true);
		} else if (kind == "exceptions")
			exceptions();
		else if (kind == "coroutine") {
			getcontext(&away);
			away.uc_stack.ss_sp = mmap(nullptr, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			away.uc_stack.ss_size = 1 << 17;
			away.uc_link = &home;
			makecontext(&away, coroutine, 0);
			for (int k = 0; k < 5; k++)
				swapcontext(&home, &away);
		} else if (kind == "closing")
			closing(argv[++i]);
		else if (kind == "twins")
			for (int k = 0; k < 10; k++)
				through(argv[i + 1 + k % 2], "twins");
		else if (kind == "bare")
			through(argv[++i], "bare");
		else if (kind == "odd")
			through(argv[++i], "odd", unseen);
		else if (kind == "mapped")
			mapped(argv[++i]);
		else if (kind == "made")
			made(argv[++i]);
		else if (kind == "forbid")
			forbid(SECCOMP_RET_ERRNO | 1);
		else if (kind == "kill")
			forbid(SECCOMP_RET_KILL_PROCESS);
		else if (kind == "below")
			below();
		else if (kind == "forks") {
			fflush(stdout);
			pid_t child = fork();
			if (child == 0) {
				mem_alloc = pool_alloc;
				for (int k = 0; k < 20; k++)
					any("forks", static_cast<int>(roll(20)));
				fflush(stdout);
				_exit(0);
			}
			waitpid(child, nullptr, 0);
		} else {
			fprintf(stderr, "%s?\n", kind.c_str());
			return 1;
		}
		if (kind == "twins")
			i += 2;
	}
	return 0;
}
