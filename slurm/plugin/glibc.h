/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_GLIBC_H
#define GRESIZE_GLIBC_H

/*
 * A plugin that was built on a new system must load into the slurmctld of an old
 * one: an unknown version of a symbol would keep slurmctld from starting. Newer C
 * libraries moved these names; here they are bound to their first version. A test
 * reads what was built.
 */
#if defined(__x86_64__)
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

#endif
