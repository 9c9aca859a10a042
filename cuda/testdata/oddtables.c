/*
 * oddtables.c - functions that call back and whose tables say what no compiler
 * writes. through has one, by -DODD; what it is, the test says.
 */
#if ODD == 1
/* Room for an expression whose length leads back to it: linkers refuse that one, so the test writes it. */
#define TABLE ".cfi_escape 0x0f, 9, 0x77, 0x10, 0x96, 0x96, 0x96, 0x96, 0x96, 0x96, 0x96\n"
#elif ODD == 2
#define TABLE ".cfi_signal_frame\n" /* as after a signal, but where the registers were saved it is no kernel's frame */
#elif ODD == 3
#define TABLE ".cfi_escape 0x0f, 0x02, 0x77, 0x10\n" /* rsp + 16, in words that are none of a compiler's */
#endif

__asm__(".text\n"
        ".globl through\n"
        ".type through, @function\n"
        "through:\n"
        "	.cfi_startproc\n"
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
        "	ret\n"
        "	.cfi_endproc\n"
        ".size through, . - through\n"
        ".section .note.GNU-stack,\"\",@progbits\n");
