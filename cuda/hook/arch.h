/*
 * arch.h - what the hook knows of the machine it runs on: x86-64 or aarch64.
 */
#ifndef ARCH_H
#define ARCH_H

/* The version of what every glibc has. A name of this version is found in younger
 * ones too, wherever it has moved. */
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#else
#error "the hook knows x86-64 and aarch64"
#endif

#endif
