/* Shared between the files of the libcudart stub. */
#ifndef GRESIZE_CUDART_H
#define GRESIZE_CUDART_H

#include "gv.h"

/* rt_status notes a failure for cudaGetLastError and returns it. */
int rt_status(int status);
/* rt_capturing says whether the stream is being captured into a graph. */
void *rt_module_variable(void); /* stands for every variable of every module */
bool rt_capturing(void *stream);

/* What one process gives another to open its memory or its event. */
enum { IPC_HANDLE_BYTES = 64 };
struct ipc_handle { unsigned char bytes[IPC_HANDLE_BYTES]; };

#endif
