/*
 * peers.c - two processes that lend each other device memory in the order in
 * which NCCL does it: handles exported as descriptors, sent over a socket,
 * imported and mapped; found again by address, and let go of.
 *
 * Shows: that a handle's references (create, import, retain by address) and its
 * mappings are each followed, in either process: what it has of its own is said
 * in a mark "live BYTES" after every step, and what a peer lends is no part of it.
 *
 * Build: cc -O2 -o peers peers.c -ldl
 * Run:   ./peers
 *
 * Exit: 0; 1 if a call fails, with a line on stderr, in either process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define BUFFERS 12

typedef uint64_t ptr;
typedef struct { int type, id; } location;
typedef struct { int type, handle_types; location at; void *win32; unsigned char flags[8]; } alloc_prop;
typedef struct { location at; int flags; } access_desc;

/* F(name, parameters): cuName through dlsym, here as Name. */
#define FUNCTIONS \
	F(Init, (unsigned)) F(DevicePrimaryCtxRetain, (void **, int)) F(CtxSetCurrent, (void *)) \
	F(MemCreate, (uint64_t *, size_t, const alloc_prop *, uint64_t)) F(MemRelease, (uint64_t)) F(MemRetainAllocationHandle, (uint64_t *, void *)) \
	F(MemAddressReserve, (ptr *, size_t, size_t, ptr, uint64_t)) F(MemAddressFree, (ptr, size_t)) F(MemMap, (ptr, size_t, size_t, uint64_t, uint64_t)) \
	F(MemUnmap, (ptr, size_t)) F(MemSetAccess, (ptr, size_t, const access_desc *, size_t)) \
	F(MemExportToShareableHandle, (void *, uint64_t, int, uint64_t)) F(MemImportFromShareableHandle, (uint64_t *, void *, int))

#define F(name, params) static int (*name) params;
FUNCTIONS
#undef F

static void (*mark)(const char *);
static size_t live;

static void need(const char *call, int status)
{
	if (status) {
		fprintf(stderr, "peers: %s is %d\n", call, status);
		exit(1);
	}
}
#define NEED(call) need(#call, call)

static void say(void)
{
	char text[40];

	snprintf(text, sizeof text, "live %zu", live);
	if (mark)
		mark(text);
}

static size_t size_of(int i) { return (size_t)(1 + i % 3) * 2 * MIB; }

static ptr map(uint64_t handle, size_t size)
{
	access_desc access = {{1, 0}, 3};
	ptr p;

	NEED(MemAddressReserve(&p, size, 0, 0, 0));
	NEED(MemMap(p, size, 0, handle, 0));
	NEED(MemSetAccess(p, size, &access, 1));
	return p;
}

static ptr take(int i)
{
	alloc_prop prop = {.type = 1, .handle_types = 1, .at = {1, 0}};
	uint64_t h;

	NEED(MemCreate(&h, size_of(i), &prop, 0));
	live += size_of(i);
	return map(h, size_of(i));
}

/* By its address alone: the reference that finds the handle ends first, its own
 * last, as in ncclCuMemFree. */
static void give(ptr p, size_t size)
{
	uint64_t h;

	NEED(MemRetainAllocationHandle(&h, (void *)p));
	NEED(MemRelease(h));
	NEED(MemUnmap(p, size));
	NEED(MemRelease(h));
	NEED(MemAddressFree(p, size));
}

static void send_fd(int to, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&m);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	NEED(sendmsg(to, &m, 0) != 1);
}

static int receive_fd(int from)
{
	int fd = -1;
	char byte, control[CMSG_SPACE(sizeof fd)];
	struct iovec part = {&byte, 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};

	NEED(recvmsg(from, &m, 0) != 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static ptr borrow(int fd, size_t size)
{
	uint64_t h;

	NEED(MemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1));
	close(fd);
	return map(h, size);
}

static int peer(int socket)
{
	ptr own[BUFFERS], theirs[BUFFERS], again[BUFFERS];
	void *ctx;
	char byte = 0;

	NEED(Init(0));
	NEED(DevicePrimaryCtxRetain(&ctx, 0));
	NEED(CtxSetCurrent(ctx));
	for (int i = 0; i < BUFFERS; i++) {
		uint64_t h;
		int fd;

		own[i] = take(i);
		say();
		NEED(MemRetainAllocationHandle(&h, (void *)own[i])); /* a user's buffer, by its address */
		NEED(MemExportToShareableHandle(&fd, h, 1, 0));
		NEED(MemRelease(h));
		send_fd(socket, fd);
		theirs[i] = borrow(receive_fd(socket), size_of(i));
		say();
		again[i] = borrow(fd, size_of(i)); /* its own comes back too, where both ranks are one process */
		say();
	}
	for (int i = 0; i < BUFFERS; i++) {
		give(again[i], size_of(i));
		give(theirs[i], size_of(i));
		say();
		give(own[i], size_of(i));
		live -= size_of(i);
		say();
	}
	return write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 1; /* neither ends before the other has let go */
}

int main(void)
{
	int pair[2], status = 0;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *p = dlsym(RTLD_DEFAULT, "gpurec_mark");

	if (!lib) {
		fprintf(stderr, "peers: %s\n", dlerror());
		return 1;
	}
	memcpy(&mark, &p, sizeof p);
#define F(name, params) p = dlsym(lib, "cu" #name); memcpy(&name, &p, sizeof p); NEED(name == NULL);
	FUNCTIONS
#undef F
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = fork(); /* before CUDA begins in either */
	if (child == 0)
		return peer(pair[1]);
	int res = peer(pair[0]);
	return waitpid(child, &status, 0) != child || status != 0 || res;
}
