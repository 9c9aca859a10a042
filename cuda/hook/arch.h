/*
 * arch.h - what the hook knows of the machine it runs on: x86-64 or aarch64.
 */
#ifndef ARCH_H
#define ARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 * OLDEST is the version of what every glibc has. A name of this version is found in
 * younger ones too, wherever it has moved.
 *
 * REG_… are DWARF's numbers, UC_… where registers lie from the stack pointer on in
 * a handler's caller, which returns from the signal. RULE is unwind.h's.
 *
 * RETURN_KEPT: a call leaves its return address in a register, and functions that
 * call none keep it there. FRAME_RECORDS: all compilers keep a chain of frame
 * pointers unless told otherwise, each of which points to the caller's and the
 * return address; where that pair lies in its frame is not said.
 */
#if defined(__x86_64__)

#define OLDEST "GLIBC_2.2.5"

enum { REG_BP = 6, REG_SP = 7, REG_PC = 16, RETURN_KEPT = 0, FRAME_RECORDS = 0 };
enum { UC_BP = 120, UC_SP = 160, UC_PC = 168, UC_RETURN = 0 };

#define RULE(kind, module, saved, loop, offset) \
	((uint64_t)(kind) | (uint64_t)(module) << 4 | (uint64_t)(saved) << 16 | (uint64_t)(loop) << 28 | (uint64_t)(uint32_t)(offset) << 32)
#define RULE_MODULE(r) ((unsigned)((r) >> 4) & (GPUREC_MAX_MODULES - 1))
#define RULE_SAVED(r) ((unsigned)((r) >> 16) & RULE_SAVED_MOST)
#define RULE_LOOP(r) ((unsigned)((r) >> 28) & 1)
#define RULE_OFFSET(r) ((int64_t)(int32_t)((r) >> 32))
#define RULE_PC(r) 1
enum { RULE_SAVED_MOST = 0xfff };

#define ARCH_HERE(pc, sp, bp, kept) \
	__asm__ volatile("lea 0(%%rip), %0\n	mov %%rsp, %1\n	mov %%rbp, %2" : "=r"(pc), "=r"(sp), "=r"(bp)); \
	(kept) = 0

static inline uintptr_t arch_thread(void)
{
	uintptr_t t;
	__asm__("mov %%fs:0x10, %0" : "=r"(t));
	return t;
}

static inline uint64_t arch_return(uint64_t pc) { return pc; }

/* Whether the bytes before an address, ARCH_CALL of them, end with a call. */
enum { ARCH_CALL = 7 };
static inline bool arch_is_call(const unsigned char *b)
{
	if (b[2] == 0xe8)
		return true;
	for (unsigned i = 0; i <= 5; i++) /* ff /2: of 2 to 7 bytes */
		if (b[i] == 0xff && (b[i + 1] & 0x38) == 0x10)
			return true;
	return false;
}

#elif defined(__aarch64__)

#define OLDEST "GLIBC_2.17"

/* A siginfo of 128 bytes lies before the ucontext. */
enum { REG_BP = 29, REG_SP = 31, REG_PC = 30, RETURN_KEPT = 1, FRAME_RECORDS = 1 };
enum { UC_BP = 128 + 416, UC_RETURN = 128 + 424, UC_SP = 128 + 432, UC_PC = 128 + 440 };

/* Offsets and places in words; RULE_RETURN is where the return address lies. */
#define RULE(kind, module, saved, loop, offset) \
	((uint64_t)(kind) | (uint64_t)(module) << 4 | (uint64_t)(loop) << 16 | (uint64_t)(saved) << 17 | (uint64_t)(offset) / 8 << 45)
#define RULE_RETURN(pc) ((uint64_t)(pc) << 31)
#define RULE_MODULE(r) ((unsigned)((r) >> 4) & (GPUREC_MAX_MODULES - 1))
#define RULE_LOOP(r) ((unsigned)((r) >> 16) & 1)
#define RULE_SAVED(r) ((unsigned)((r) >> 17) & RULE_SAVED_MOST)
#define RULE_PC(r) ((unsigned)((r) >> 31) & RULE_SAVED_MOST)
#define RULE_OFFSET(r) ((int64_t)((r) >> 45) * 8)
enum { RULE_SAVED_MOST = 0x3fff, RULE_OFFSET_MOST = 8 * 0x7ffff };

#define ARCH_HERE(pc, sp, bp, kept) \
	__asm__ volatile("adr %0, .\n	mov %1, sp\n	mov %2, x29\n	mov %3, x30" : "=r"(pc), "=r"(sp), "=r"(bp), "=r"(kept))

/* The thread's descriptor ends here, its own variables follow. */
static inline uintptr_t arch_thread(void)
{
	uintptr_t t;
	__asm__("mrs %0, tpidr_el0" : "=r"(t));
	return t;
}

/* A return address without the signature that it may have: xpaclri, which knows
 * how many bits that has here, and which older processors take for no operation. */
static inline uint64_t arch_return(uint64_t pc)
{
	register uint64_t x30 __asm__("x30") = pc;
	__asm__("hint #7" : "+r"(x30));
	return x30;
}

enum { ARCH_CALL = 4 };
static inline bool arch_is_call(const unsigned char *b)
{
	uint32_t i;
	memcpy(&i, b, sizeof i);
	return (i & 0xfc000000) == 0x94000000 /* bl */ || (i & 0xfefff000) == 0xd63f0000 /* blr, also of what is signed */;
}

/* Whether an instruction makes a frame's record: add or, in Go, sub x29, sp, #n. */
static inline bool arch_is_record(uint32_t i) { return (i & 0xbfc003ff) == 0x910003fd; }

/* Whether one ends a function: ret, signed or not, or ldp x29, x30, [sp …] before a jump. */
static inline bool arch_is_end(uint32_t i)
{
	return i == 0xd65f03c0 || (i & 0xfffffbff) == 0xd65f0bff || (i & 0xfe407fff) == 0xa8407bfd;
}

/* Whether the bytes at an address return from a signal: the kernel's page of code,
 * whose tables would lead into what the handler's caller had called. */
enum { ARCH_SIGRETURN = 8 };
static inline bool arch_is_sigreturn(const unsigned char *b)
{
	return memcmp(b, "\x68\x11\x80\xd2\x01\x00\x00\xd4", ARCH_SIGRETURN) == 0; /* mov x8, #139; svc #0 */
}

#else
#error "the hook knows x86-64 and aarch64"
#endif

#endif
