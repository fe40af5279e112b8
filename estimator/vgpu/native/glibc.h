/*
 * The stubs must load into processes whose C library is as old as 2.17. Names that newer C libraries moved or
 * re-versioned are bound to their first version here; a test reads the version nodes of what was built.
 */
#ifndef GRESIZE_GLIBC_H
#define GRESIZE_GLIBC_H

#if defined(__x86_64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

#endif
