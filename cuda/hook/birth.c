/*
 * birth.c - a lane's birth: a file of memory, and handing it to the recorder.
 */
#include "hook.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <fcntl.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_CLOEXEC 1u
#define MFD_ALLOW_SEALING 2u
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#endif
enum { SEAL_SEAL = 1, SEAL_SHRINK = 2, SEAL_GROW = 4 };

#define NAP 50000 /* ns, between two tries to hand a lane over */

bool gpurec_off;

static uint64_t lane_bytes; /* of this process */
static uint32_t making;     /* a thread makes lanes for others too */
static uint64_t start_time; /* of this process, 0 not read yet */

void gpurec_lane_reset(void)
{
	lane_bytes = 0;
	making = 0;
	start_time = 0;
}

/* Field 22 of /proc/self/stat: with the pid it names a process. The second
 * field is the program's name, which may hold anything but ends at the last ). */
static uint64_t read_start_time(void)
{
	char b[1024];
	long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	long n = syscall(SYS_read, fd, b, sizeof b - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return 0;
	b[n] = 0;
	char *p = strrchr(b, ')');
	for (int field = 2; p != NULL && field < 22; field++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	uint64_t t = 0;
	for (; p != NULL && *p >= '0' && *p <= '9'; p++)
		t = t * 10 + (uint64_t)(*p - '0');
	return t;
}

static uint64_t image(void)
{
	uint64_t first = 0;
	const void *random = (const void *)getauxval(AT_RANDOM);
	if (random)
		memcpy(&first, random, sizeof first);
	return first;
}

/* A sealed memory file of the lane's size; -1 with errno. ftruncate beyond
 * RLIMIT_FSIZE would raise SIGXFSZ and end the program. It has no pages yet: the
 * recorder gives it all when it takes it, soon after, for that takes 195 µs, and
 * a birth 15. Until then a page that cannot be had would be a SIGBUS, where
 * the system forbids overcommitment (vm.overcommit_memory 2) and is at its limit. */
static int make_file(uint64_t size)
{
	uint64_t limit[2] = {0, 0};
	if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, limit) == 0 && limit[0] < size) {
		errno = EFBIG;
		return -1;
	}
	long fd = syscall(SYS_memfd_create, "gpurec lane", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = syscall(SYS_memfd_create, "gpurec lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (syscall(SYS_ftruncate, fd, size) != 0 ||
	    syscall(SYS_fcntl, fd, F_ADD_SEALS, SEAL_SEAL | SEAL_SHRINK | SEAL_GROW) != 0) {
		int err = errno;
		syscall(SYS_close, fd);
		errno = err;
		return -1;
	}
	return (int)fd;
}

/* Sends one message to the recorder, over a connection of its own; 0 or an errno. */
static int send_alone(const struct msghdr *m)
{
	long s = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s < 0)
		return errno;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, gpurec_config.socket, sizeof address.sun_path);
	int err = 0;
	if (syscall(SYS_connect, s, &address, sizeof address) != 0 || syscall(SYS_sendmsg, s, m, MSG_NOSIGNAL) < 0)
		err = errno;
	syscall(SYS_close, s);
	return err;
}

/*
 * A process that can make no lane at all has nowhere to count what it loses, and
 * the recording would call itself complete. So it leaves a mark beside the
 * recorder's socket, SOCKET.PID, a link whose text is the errno: that needs no
 * descriptor, no memory and no connection, of which something is missing here.
 * When a lane is there after all, the loss is counted in it, and the mark goes.
 */
static uint32_t marked; /* the pid whose mark it is: a forked child has none */

void gpurec_lane_mark(int err)
{
	uint32_t pid = (uint32_t)syscall(SYS_getpid);
	char path[sizeof gpurec_config.socket + 12], digits[12], text[12];
	size_t n = strlen(gpurec_config.socket);
	if (__atomic_exchange_n(&marked, err ? pid : 0, __ATOMIC_SEQ_CST) == pid && err != 0)
		return;
	memcpy(path, gpurec_config.socket, n);
	path[n++] = '.';
	int k = 0;
	do
		digits[k++] = (char)('0' + pid % 10);
	while (pid /= 10);
	while (k > 0)
		path[n++] = digits[--k];
	path[n] = 0;
	if (err == 0) {
		syscall(SYS_unlinkat, AT_FDCWD, path, 0);
		return;
	}
	for (n = 0; err > 0 && k < 11; err /= 10)
		digits[k++] = (char)('0' + err % 10);
	while (k > 0)
		text[n++] = digits[--k];
	text[n] = 0;
	syscall(SYS_symlinkat, text, AT_FDCWD, path);
}

int gpurec_wake_recorder(void)
{
	uint64_t magic = GPUREC_ASK_MAGIC;
	struct iovec data = {&magic, sizeof magic};
	return send_alone(&(struct msghdr){.msg_iov = &data, .msg_iovlen = 1});
}

/* Sends hello and the lane's file to the recorder; 0 or an errno. */
static int introduce(int file, const gpurec_hello *hello)
{
	struct iovec data = {(void *)(uintptr_t)hello, sizeof *hello};
	union {
		char bytes[CMSG_SPACE(sizeof file)];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof file);
	memcpy(CMSG_DATA(c), &file, sizeof file);
	return send_alone(&m);
}

static uint64_t realtime(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Lane i of a file. */
static gpurec_lane *lane_of(void *file, unsigned i) { return (gpurec_lane *)((char *)file + i * GPUREC_LANE_STRIDE); }

void gpurec_lane_take(struct thread *t, gpurec_lane *lane)
{
	uintptr_t file = (uintptr_t)lane & ~(uintptr_t)(GPUREC_LANE_HEADER_SIZE - 1), i = ((uintptr_t)lane - file) / GPUREC_LANE_STRIDE;
	t->capacity = gpurec_config.lane_size;
	t->ring = (unsigned char *)file + GPUREC_LANE_HEADER_SIZE + i * t->capacity;
	t->head = t->tail = t->seq = t->mapped = 0;
	t->clear[0] = t->clear[1] = 0;
	t->born = gpurec_now();
	t->retry = 0;
	__atomic_store_n(&t->lane, lane, __ATOMIC_RELEASE);
}

/* Maps a file of n lanes and fills in their headers; -1 or the file, to be closed. */
static int make_lanes(struct thread *t, unsigned n, uint64_t capacity)
{
	uint64_t size = GPUREC_LANE_HEADER_SIZE + n * capacity;
	int file = make_file(size);
	if (file < 0)
		return -1;
	long p = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (p == -1) {
		syscall(SYS_close, file);
		return -1;
	}
	syscall(SYS_madvise, p, size, MADV_DONTDUMP);
	t->file = (void *)p;
	t->file_bytes = size;
	for (unsigned i = 0; i < n; i++) {
		gpurec_lane *lane = lane_of(t->file, i);
		lane->magic = GPUREC_LANE_MAGIC;
		lane->version = GPUREC_VERSION;
		lane->header = GPUREC_LANE_HEADER_SIZE;
		lane->capacity = capacity;
		lane->pid = (uint32_t)syscall(SYS_getpid);
		lane->tid = t->tid;
	}
	return file;
}

/* Hands the lanes over; 0 or an errno. */
static int announce(const struct thread *t, int file, unsigned n, uint64_t capacity)
{
	const gpurec_lane *lane = t->file;
	if (start_time == 0)
		start_time = read_start_time();
	gpurec_hello hello = {
		.magic = GPUREC_HELLO_MAGIC,
		.version = GPUREC_VERSION,
		.pid = lane->pid,
		.tid = lane->tid,
		.python = gpurec_python,
		.start_time = start_time,
		.image = image(),
		.monotonic = gpurec_now(),
		.realtime = realtime(),
		.capacity = capacity,
		.lanes = n,
	};
	int err = introduce(file, &hello);
	/* The recorder takes connections every millisecond or so; a crowd of new
	 * threads may be more than its queue holds. */
	for (int i = 0; err == EAGAIN && gpurec_config.wait && i < 2000; i++) {
		struct timespec nap = {0, NAP};
		syscall(SYS_nanosleep, &nap, NULL);
		err = introduce(file, &hello);
	}
	return err;
}

/*
 * How many lanes a birth makes. The first thread's is alone: many programs have
 * no other. A later one makes some for the threads to come as well, since handing
 * a file over is most of a birth; but of a crowd of new threads only one does, or
 * they would take the memory of four times as many.
 */
static unsigned how_many(uint64_t capacity)
{
	enum { FEW = 4 };
	uint64_t bytes = __atomic_load_n(&lane_bytes, __ATOMIC_RELAXED);
	uint32_t nobody = 0;
	if (bytes == 0 || capacity > GPUREC_DEFAULT_LANE_SIZE || bytes + FEW * capacity > GPUREC_MAX_LANE_BYTES ||
	    !__atomic_compare_exchange_n(&making, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return 1;
	return FEW;
}

/*
 * A thread's first event makes its lane, unless there is a spare one:
 *
 *  1 a file of memory, of fixed size, sealed
 *  2 mapped, and kept out of core dumps
 *  3 the headers of its lanes
 *  4 a connection, one message with the file, both closed
 *
 * No descriptor outlives this: programs close and reuse numbers, and a forked
 * worker would hold a connection open. Where nobody listens the hook is off for
 * good; after any other failure the event is lost, counted, and the next one
 * after 100 ms tries again. Of the n lanes asked for it returns how many there are.
 */
static unsigned birth(struct thread *t, unsigned n, uint64_t capacity)
{
	int file = make_lanes(t, n, capacity);
	if (file < 0 && n > 1) /* the program's limits may leave room for one */
		file = make_lanes(t, n = 1, capacity);
	if (file < 0) {
		gpurec_say("no lane: no sealed memory file of its size can be made");
		return 0;
	}
	int err = announce(t, file, n, capacity);
	syscall(SYS_close, file);
	if (err) {
		void *gone = t->file;
		t->file = NULL; /* first: a child forked now must not unmap what may be another's by then */
		syscall(SYS_munmap, gone, t->file_bytes);
		if (err == EACCES)
			gpurec_lane_mark(err);
		if (err == ECONNREFUSED || err == ENOENT || err == EACCES) {
			__atomic_store_n(&gpurec_off, true, __ATOMIC_RELAXED);
			gpurec_say("off: no recorder listens at " GPUREC_ENV_SOCKET);
		}
		errno = err;
		return 0;
	}
	gpurec_lane *lanes[GPUREC_MAX_LANES_A_FILE];
	for (unsigned i = 0; i < n; i++)
		lanes[i] = lane_of(t->file, i);
	gpurec_lane_take(t, lanes[0]);
	gpurec_missed(lanes[0]);
	if (__atomic_load_n(&marked, __ATOMIC_RELAXED) != 0)
		gpurec_lane_mark(0);
	gpurec_lanes_spare(lanes + 1, n - 1);
	return n;
}

bool gpurec_lane_birth(struct thread *t)
{
	uint64_t capacity = gpurec_config.lane_size;
	unsigned n = how_many(capacity), made = 0;
	if (__atomic_add_fetch(&lane_bytes, n * capacity, __ATOMIC_RELAXED) <= GPUREC_MAX_LANE_BYTES)
		made = birth(t, n, capacity);
	__atomic_sub_fetch(&lane_bytes, (n - made) * capacity, __ATOMIC_RELAXED);
	if (n > 1)
		__atomic_store_n(&making, 0, __ATOMIC_RELEASE);
	return made > 0;
}
