/*
 * oddtables.c - functions that call back and whose tables say what no compiler
 * writes. through has one, by -DODD; what it is, the test says. ODD 0: it is even.
 */
#if ODD == 0
#define TABLE
#elif ODD == 1
/* Room for an expression whose length leads back to it: linkers refuse that one, so the test writes it. */
#define TABLE ".cfi_escape 0x0f, 9, 0x77, 0x10, 0x96, 0x96, 0x96, 0x96, 0x96, 0x96, 0x96\n"
#elif ODD == 2
#define TABLE ".cfi_signal_frame\n" /* as after a signal, but where the registers were saved it is no kernel's frame */
#elif ODD == 3 && defined(__x86_64__)
#define TABLE ".cfi_escape 0x0f, 0x02, 0x77, 0x10\n" /* rsp + 16, in words that are none of a compiler's */
#elif ODD == 3
#define TABLE ".cfi_escape 0x0f, 0x02, 0x8f, 0x10\n" /* sp + 16 */
#endif

__asm__(".text\n"
        ".globl through\n"
        ".type through, %function\n"
        "through:\n"
        "	.cfi_startproc\n"
#ifdef __x86_64__
        "	push %rbx\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	.cfi_offset rbx, -16\n"
        TABLE
        "	mov %rdi, %rax\n"
        "	mov %rsi, %rdi\n"
        "	mov $64, %esi\n"
        "	call *%rax\n"
        "	pop %rbx\n"
        "	.cfi_def_cfa rsp, 8\n"
#else /* x29 stays its caller's */
        "	stp x19, x30, [sp, #-16]!\n"
        "	.cfi_def_cfa_offset 16\n"
        "	.cfi_offset 19, -16\n"
        "	.cfi_offset 30, -8\n"
        TABLE
        "	mov x2, x0\n"
        "	mov x0, x1\n"
        "	mov x1, #64\n"
        "	blr x2\n"
        "	ldp x19, x30, [sp], #16\n"
        "	.cfi_def_cfa sp, 0\n"
#endif
        "	ret\n"
        "	.cfi_endproc\n"
        ".size through, . - through\n"
        ".section .note.GNU-stack,\"\",%progbits\n");
