/* Programs that XLA has compiled, kept from one run of a command for the next: what differs between them is not compiled again. */
#ifndef PJRT_COMPILED_H
#define PJRT_COMPILED_H

#include <stddef.h>
#include <stdint.h>

enum { GV_COMPILED_PARTS = 4 };

/* All that a compilation goes by: the program, what gv_compiled_options makes of the options, XLA's flags, the plugin. */
struct gv_source {
	struct {
		const void *text;
		size_t size;
	} parts[GV_COMPILED_PARTS];
};

/* gv_compiled_options is the same for the same options, in whatever order their maps are written. */
void gv_compiled_options(const void *options, size_t size, uint64_t to[2]);
/* gv_compiled_kept is what is kept of a source, its size in size: a copy, which the caller frees; NULL where nothing is. */
void *gv_compiled_kept(const struct gv_source *source, size_t *size);
/* gv_compiled_keep keeps it, where there is room. */
void gv_compiled_keep(const struct gv_source *source, const void *compiled, size_t size);

#endif
