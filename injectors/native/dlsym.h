#ifndef TRACEKIT_DLSYM_H
#define TRACEKIT_DLSYM_H

/* The C library's dlsym; ours is exported under that name. */
typedef void *tk_dlsym_function(void *handle, const char *name);
extern tk_dlsym_function *tk_real_dlsym;

#endif
