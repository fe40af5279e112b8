/* SPDX-License-Identifier: Apache-2.0 */
#include "cudnn_workspace_key.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No tensor of a GPU job has more elements along one axis than this. */
#define LARGEST_EXTENT ((int64_t)1 << 40)

static int in_range(int64_t value, int64_t low, int64_t high)
{
	return value >= low && value <= high;
}

static int tensor_well_formed(const struct gv_conv_tensor *t, int32_t dims)
{
	if (t->dims != dims || !in_range(t->alignment_bytes, 0, 4096))
		return 0;
	for (int i = 0; i < dims; i++)
		if (!in_range(t->dim[i], 1, LARGEST_EXTENT) || !in_range(t->stride[i], 0, LARGEST_EXTENT))
			return 0;
	return 1;
}

int gv_conv_well_formed(const struct gv_conv *c)
{
	if (!in_range(c->op, GV_CONV_FORWARD, GV_CONV_WGRAD) || !in_range(c->spatial, 1, GV_CONV_MAX_SPATIAL))
		return 0;
	if (!in_range(c->groups, 0, LARGEST_EXTENT))
		return 0;
	for (int i = 0; i < c->spatial; i++)
		if (!in_range(c->pre_pad[i], 0, LARGEST_EXTENT) || !in_range(c->post_pad[i], 0, LARGEST_EXTENT) ||
		    !in_range(c->filter_stride[i], 1, LARGEST_EXTENT) || !in_range(c->dilation[i], 1, LARGEST_EXTENT))
			return 0;
	return tensor_well_formed(&c->x, c->spatial + 2) && tensor_well_formed(&c->w, c->spatial + 2) &&
	       tensor_well_formed(&c->y, c->spatial + 2);
}

struct writer {
	char *at;
	int room, ok;
};

static void put(struct writer *w, int64_t value)
{
	int n = snprintf(w->at, (size_t)w->room, "%" PRId64 " ", value);
	if (n < 0 || n >= w->room) {
		w->ok = 0;
		return;
	}
	w->at += n;
	w->room -= n;
}

static void put_all(struct writer *w, const int64_t *values, int count)
{
	for (int i = 0; w->ok && i < count; i++)
		put(w, values[i]);
}

static void put_tensor(struct writer *w, const struct gv_conv_tensor *t)
{
	put(w, t->dtype);
	put(w, t->alignment_bytes);
	put_all(w, t->dim, t->dims);
	put_all(w, t->stride, t->dims);
}

int gv_conv_key(const struct gv_conv *c, char *line, int room)
{
	struct writer w = {line, room, room > 0};
	if (!w.ok || !gv_conv_well_formed(c))
		return 0;
	put(&w, c->op);
	put(&w, c->spatial);
	put(&w, c->compute_dtype);
	put(&w, c->mode);
	put(&w, c->groups);
	put_tensor(&w, &c->x);
	put_tensor(&w, &c->w);
	put_tensor(&w, &c->y);
	put_all(&w, c->pre_pad, c->spatial);
	put_all(&w, c->post_pad, c->spatial);
	put_all(&w, c->filter_stride, c->spatial);
	put_all(&w, c->dilation, c->spatial);
	if (!w.ok)
		return 0;
	w.at[-1] = '\n';
	return (int)(w.at - line);
}

struct reader {
	const char *at;
	int ok;
};

static int64_t take(struct reader *r)
{
	char *end;
	int64_t value;
	errno = 0;
	value = strtoll(r->at, &end, 10);
	if (end == r->at || errno != 0)
		r->ok = 0;
	r->at = end;
	return value;
}

static int32_t take_small(struct reader *r)
{
	int64_t value = take(r);
	if (!in_range(value, 0, INT32_MAX))
		r->ok = 0;
	return r->ok ? (int32_t)value : 0;
}

static void take_all(struct reader *r, int64_t *values, int count)
{
	for (int i = 0; r->ok && i < count; i++)
		values[i] = take(r);
}

static void take_tensor(struct reader *r, struct gv_conv_tensor *t, int dims)
{
	t->dtype = take_small(r);
	t->alignment_bytes = take(r);
	t->dims = dims;
	take_all(r, t->dim, dims);
	take_all(r, t->stride, dims);
}

int gv_conv_parse_key(const char *line, struct gv_conv *c)
{
	struct reader r = {line, 1};
	memset(c, 0, sizeof *c);
	c->op = take_small(&r);
	c->spatial = take_small(&r);
	c->compute_dtype = take_small(&r);
	c->mode = take_small(&r);
	c->groups = take(&r);
	if (!r.ok || !in_range(c->spatial, 1, GV_CONV_MAX_SPATIAL))
		return 0;
	take_tensor(&r, &c->x, c->spatial + 2);
	take_tensor(&r, &c->w, c->spatial + 2);
	take_tensor(&r, &c->y, c->spatial + 2);
	take_all(&r, c->pre_pad, c->spatial);
	take_all(&r, c->post_pad, c->spatial);
	take_all(&r, c->filter_stride, c->spatial);
	take_all(&r, c->dilation, c->spatial);
	if (!r.ok || (*r.at != '\n' && *r.at != '\0'))
		return 0;
	return gv_conv_well_formed(c);
}
